"""Compute at lowering time what follows from stored tensors alone, without letting the program grow."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import (
    MOST_DEFERRED_CALLS,
    Calculation,
    DeferredTensor,
    GraphEditor,
    NotComputableError,
    UsageError,
    as_constant,
    copy_program,
    dim_order_from_stride,
    end_bytes,
    is_large,
    is_quantization,
    laid_out,
    moves_elements,
    sliced_dim,
    underlying,
    widens,
)
from exirkit.passes.analysis import StoredValues, is_plain_call, nbytes_of, place_of
from exirkit.passes.contract import ReportingPass

LARGEST_NBYTES = 1 << 30
"""Values that are larger are never computed."""

Place: TypeAlias = tuple[Any, ...]
"""What tells stored tensors apart: equal for inputs that stand for one tensor."""


class KnownValues:
    """Nodes whose values are known while a program is lowered, and the stored tensors that they come from.

    Attributes:
        stored: What the program stores and writes.
        sources: The nodes that are known, in graph order, and what each comes from; nothing if from literals alone.
        results: Known tensors that something unknown uses.
        nbytes: Bytes of each stored tensor that is only read.
        holders: Inputs that stand for it.
        pinned: Those that stay in use, whatever is computed.
    """

    def __init__(self, stored: StoredValues, may_compute: Callable[[Node], bool]) -> None:
        self.stored = stored
        self.sources: dict[Node, frozenset[Place]] = {}
        self.results: list[Node] = []
        self.nbytes: dict[Place, int] = {}
        self.holders: dict[Place, list[Node]] = {}
        self.pinned: set[Place] = set()
        for node in stored.program.graph.nodes:
            if node.op == "placeholder":
                self._add_input(node)
            elif self._follows(node) and may_compute(node):
                parts = [self.sources[one] for one in node.all_input_nodes]
                self.sources[node] = parts[0].union(*parts[1:]) if parts else frozenset()
        for node in self.sources:
            self._visit_users(node)

    def values(self, wanted: Sequence[Node]) -> tuple[dict[Node, torch.Tensor], list[Node]]:
        """Compute nodes.

        Returns:
            Their values, and the nodes that could not be computed or came out other than recorded.
        """
        needed = self._with_ancestors(wanted)
        found: dict[Node, Any] = {}
        nodes: dict[Calculation, Node] = {}
        values: dict[Node, torch.Tensor] = {}
        failed: dict[Node, None] = {}
        is_wanted = frozenset(wanted)
        for node in (one for one in self.sources if one in needed):
            if node.op == "placeholder":
                found[node] = self.stored.tensor(node)
            elif all(source in found for source in node.all_input_nodes):
                args, kwargs = map_arg((node.args, dict(node.kwargs)), found.__getitem__)
                calculation = Calculation(node.target, args, kwargs, node.meta["val"])  # type: ignore[arg-type]
                nodes[calculation] = node
                try:
                    found[node] = calculation if _is_deferred(calculation) else calculation.evaluated()
                    if node in is_wanted:
                        values[node] = self._stored_as(found[node])
                except NotComputableError as error:
                    # What needs it is unknown.
                    found.pop(node, None)
                    failed[nodes[error.calculation]] = None
        return {node: values[node] for node in wanted if node in values}, list(failed)

    def _stored_as(self, value: Any) -> torch.Tensor:
        """Return what is stored: the value itself where it is in memory, or what is computed when it is read."""
        if not isinstance(value, Calculation):
            tensor: torch.Tensor = value
            return tensor
        made = DeferredTensor(value)
        order = tuple(dim_order_from_stride(made.stride(), made.shape))
        if sliced_dim(made, order) is None:
            # Done once, one at a time, to know that it can be done.
            found: torch.Tensor = value.evaluated()
            is_alias = place_of(found) in self.holders and not _moves_elements(value)
            if is_alias:
                return found
            value.ends[order] = end_bytes(found, order)
        else:
            end_bytes(made, order)
        return made

    def _add_input(self, node: Node) -> None:
        tensor = self.stored.tensor(node)
        if tensor is not None:
            place = place_of(tensor)
            self.sources[node] = frozenset((place,))
            self.nbytes[place] = nbytes_of(tensor)
            self.holders.setdefault(place, []).append(node)

    def _follows(self, node: Node) -> bool:
        if node.op != "call_function" or self.stored.touches_written(node):
            return False
        # What is written back is copied, and a copy of a constant is as much work as before.
        if set(self.stored.output_kinds.get(node, ())) - {OutputKind.USER_OUTPUT}:
            return False
        return all(source in self.sources for source in node.all_input_nodes) and is_small(node.meta.get("val"))

    def _visit_users(self, node: Node) -> None:
        is_used_elsewhere = not all(user in self.sources for user in node.users)
        is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
        if node.op == "call_function" and is_used_elsewhere and is_tensor:
            self.results.append(node)
        elif is_used_elsewhere or (node.op == "call_function" and not node.users):
            self.pinned |= self.sources[node]

    def _with_ancestors(self, nodes: Sequence[Node]) -> set[Node]:
        needed, pending = set(nodes), list(nodes)
        while pending:
            fresh = [one for one in pending.pop().all_input_nodes if one not in needed]
            needed.update(fresh)
            pending += fresh
        return needed


def is_small(value: Any) -> bool:
    """Whether a recorded value is a tensor of static shape, or a list of these, that is not too large to compute."""
    if isinstance(value, list | tuple):
        return all(map(is_small, value))
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return all(isinstance(size, int) for size in value.shape) and nbytes_of(value) <= LARGEST_NBYTES


def within_budget(known: KnownValues, candidates: Collection[Node], nbytes: int | None) -> list[Node]:
    """Return those results that can be stored, so that stored tensors grow by no more than a number of bytes.

    A stored tensor is dropped if everything that comes from it is stored instead. Its bytes are shared out among its
    results; while the balance is too high, the result that costs most is given up.

    Args:
        known: What is known.
        candidates: Results to choose from.
        nbytes: Bytes of growth, negative to ask for savings; None for any number.
    """
    chosen = dict.fromkeys(candidates)
    if nbytes is None:
        return list(chosen)
    readers: dict[Place, list[Node]] = {}
    for node in known.results:
        for place in known.sources[node] - known.pinned:
            readers.setdefault(place, []).append(node)
    costs = {node: nbytes_of(node.meta["val"]) for node in chosen}
    lost = {place for place, nodes in readers.items() if not all(node in chosen for node in nodes)}
    dropped = {place for place in readers if place not in lost}
    growth = sum(costs.values()) - sum(known.nbytes[place] for place in dropped)

    def share(node: Node) -> float:
        return costs[node] - sum(known.nbytes[one] / len(readers[one]) for one in known.sources[node] & dropped)

    order = {node: index for index, node in enumerate(chosen)}
    queue = [(-share(node), order[node], node) for node in chosen]
    heapq.heapify(queue)
    while growth > nbytes and queue:
        cost, _, node = heapq.heappop(queue)
        if node not in chosen:
            continue
        if share(node) > -cost:
            heapq.heappush(queue, (-share(node), order[node], node))
            continue
        del chosen[node]
        given_up = known.sources[node] & dropped
        dropped -= given_up
        growth += sum(known.nbytes[place] for place in given_up) - costs[node]
    return list(chosen)


def _is_deferred(calculation: Calculation) -> bool:
    """Whether a result is so large that it is not kept, and not the end of so many steps that these take long."""
    return is_large(calculation.recorded) and calculation.depth <= MOST_DEFERRED_CALLS


def _moves_elements(calculation: Calculation) -> bool:
    """Whether a copy of a view is among the steps, of which evaluation makes the view."""
    pending = [calculation]
    while pending:
        one = pending.pop()
        if moves_elements(one.target):
            return True
        pending += one.sources
    return False


@dataclass(frozen=True, slots=True)
class FoldReport:
    """What folding one program did.

    Attributes:
        folded: Names of the nodes that became constants.
        kept: Names of known nodes that did not: the program would have grown too much, or they do not compute.
        nbytes_before: Bytes of stored tensors before.
        nbytes_after: Bytes of stored tensors after.
    """

    folded: tuple[str, ...]
    kept: tuple[str, ...]
    nbytes_before: int
    nbytes_after: int


@dataclass(eq=False)
class FoldConstants(ReportingPass[FoldReport]):
    """Replace what is computed from stored tensors and literals by stored tensors.

    Of a calculation only its results are stored, and what it started from is removed if nothing else uses it: a weight
    that is only used permuted is replaced by the permuted weight. Not folded are operators that write, draw random
    numbers or have control flow, what depends on tensors that the program writes to, results of dynamic shape, and
    tensors made from literals alone. Run `MergeEqualNodes` first, or equal results are stored, and counted, twice.

    Args:
        byte_budget: Bytes by which the stored tensors of a program may grow on balance; None for any number.
        fold_quantization: Compute quantize and dequantize operators too, which backends look for, and cast integers of
            16 bits or fewer to wider dtypes. The program stores wide weights then.
        creation_nbytes: Tensors made from literals alone (`full`, `arange`) are folded if they have at most so many
            bytes; they count as growth.

    Before: `%t = aten.permute_copy.default(%p_weight, [1, 0])`; `%y = aten.mm.default(%x, %t)`
    After: `%y = aten.mm.default(%x, %c_t)`

    Raises:
        UsageError: EK443, a number of bytes is negative.
    """

    name = "fold-constants"

    byte_budget: int | None = 0
    _: KW_ONLY
    fold_quantization: bool = False
    creation_nbytes: int = 0

    def __post_init__(self) -> None:
        for what in ("byte_budget", "creation_nbytes"):
            nbytes = getattr(self, what)
            if nbytes is not None and nbytes < 0:
                raise UsageError(
                    code="EK443",
                    message=f"{what} is {nbytes}",
                )

    def edit(self, editor: GraphEditor) -> None:
        """Fold until the budget allows no more."""
        before = stored = _stored_nbytes(editor)
        folded: list[str] = []
        broken: dict[Node, None] = {}
        while True:
            known = KnownValues(
                StoredValues(editor.program), lambda node: node not in broken and self._may_compute(node)
            )
            wanted = [node for node in known.results if self._is_wanted(node, known)]
            left = None if self.byte_budget is None else self.byte_budget - (stored - before)
            chosen = within_budget(known, wanted, left)
            values, failed = known.values(chosen)
            if failed:
                broken.update(dict.fromkeys(failed))
                continue
            if not chosen:
                break
            folded += [node.name for node in chosen]
            _replace(editor, known, values)
            # The budget may allow more now: what was folded no longer shares tensors with the rest.
            stored = _stored_nbytes(editor)
        kept = [node.name for node in (*wanted, *broken)]
        self.reports.append(FoldReport(tuple(folded), tuple(kept), before, stored))

    def _may_compute(self, node: Node) -> bool:
        if not is_plain_call(node):
            return False
        if self.fold_quantization:
            return True
        schema = getattr(underlying(node.target), "_schema", None)
        if schema is not None and schema.name.startswith("quantized_decomposed::"):
            # Look-ups in quantized tables as well, whose results are wide.
            return False
        return not widens(node) and (schema is None or "quantize" not in schema.name.partition("::")[2])

    def _is_wanted(self, node: Node, known: KnownValues) -> bool:
        return bool(known.sources[node]) or nbytes_of(node.meta["val"]) <= self.creation_nbytes


class _QuantizeStored(FoldConstants):
    """Fold calls that quantize what is stored, and nothing else."""

    def _may_compute(self, node: Node) -> bool:
        if is_quantize(node):
            return is_plain_call(node)
        # What reads the integers stays: they are what is stored.
        return super()._may_compute(node) and not any(map(is_quantize, node.all_input_nodes))

    def _is_wanted(self, node: Node, known: KnownValues) -> bool:
        return is_quantize(node) and super()._is_wanted(node, known)


def is_quantize(node: Node) -> bool:
    """Return whether a call makes integers of floats by given scales."""
    if node.op != "call_function" or not is_quantization(node.target):
        return False
    name: str = underlying(node.target)._schema.name
    return name.partition("::")[2].startswith("quantize_")


def with_stored_integers(program: ExportedProgram) -> ExportedProgram:
    """Return a program that stores quantized weights, where it stores floats and quantizes them in each call.

    `convert_pt2e(model, fold_quantize=False)` leaves such programs. Backends take integers for weights only where they
    are stored: XNNPACK makes wrong numbers of weights that the program computes.

    Args:
        program: Of ATen or Edge operators; it is not changed, and returned as it is if nothing is to be done.
    """
    if not any(map(is_quantize, program.graph.nodes)):
        return program
    made = copy_program(program)
    folding = _QuantizeStored(None)
    folding.run(GraphEditor(made))
    if not any(report.folded for report in folding.reports):
        return program
    made.graph_module.recompile()
    return made


def _replace(editor: GraphEditor, known: KnownValues, values: Mapping[Node, torch.Tensor]) -> None:
    for node, value in values.items():
        holders = known.holders.get(place_of(value))
        if holders and laid_out(value, node.meta["val"]) is value:
            # It is nothing but another name of what is stored.
            editor.replace(node, holders[0])
            continue
        made = value if isinstance(value, DeferredTensor) else as_constant(value, node.meta["val"])
        editor.replace(node, editor.add_constant(made, name=f"c_{node.name}", origins=node))
    for node in values:
        if not node._erased:
            editor.erase_unused(node)
    touched = frozenset[Place]().union(*(known.sources[node] for node in values))
    unused = [
        holder
        for place, holders in known.holders.items()
        if place in touched and not any(one.users for one in holders)
        for holder in holders
    ]
    editor.remove_inputs(unused)


def _stored_nbytes(editor: GraphEditor) -> int:
    """Return the bytes of stored tensors; a tensor that several inputs stand for counts once."""
    stored = StoredValues(editor.program).stored()
    return sum({place_of(tensor): nbytes_of(tensor) for _, tensor in stored}.values())

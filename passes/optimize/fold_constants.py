"""Compute at lowering time what follows from stored tensors alone, without letting the program grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

import torch
from torch.fx import Node

from exirkit.ir import Diagnostic, GraphEditor, UsageError, underlying
from exirkit.passes.analysis.known_values import KnownValues, Place, as_constant, within_budget
from exirkit.passes.analysis.stored_values import StoredValues, is_plain_call, nbytes_of, place_of
from exirkit.passes.contract import ReportingPass


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
        fold_quantization: Compute quantize and dequantize operators too, which backends look for.
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
                    Diagnostic(code="EK443", message=f"{what} is {nbytes}", expected="a number of bytes, 0 or more")
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
        schema = getattr(underlying(node.target), "_schema", None)
        return self.fold_quantization or schema is None or "quantize" not in schema.name.partition("::")[2]

    def _is_wanted(self, node: Node, known: KnownValues) -> bool:
        return bool(known.sources[node]) or nbytes_of(node.meta["val"]) <= self.creation_nbytes


def _replace(editor: GraphEditor, known: KnownValues, values: Mapping[Node, torch.Tensor]) -> None:
    for node, value in values.items():
        holders = known.holders.get(place_of(value))
        if holders:
            # It is nothing but another name of what is stored.
            editor.replace(node, holders[0])
            continue
        made = as_constant(value, node.meta["val"])
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

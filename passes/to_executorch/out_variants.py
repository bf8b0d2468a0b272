"""Calls that write into given memory: out variants, results with memory of their own, states written back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from exirkit.ir import (
    COND,
    MUTATION_KINDS,
    SCAN,
    WHILE,
    ControlFlowCall,
    DefinedOperator,
    Diagnostic,
    EdgeOpOverload,
    GraphEditor,
    Location,
    ModelError,
    OpOverload,
    ProgramInterface,
    TensorSpec,
    UsageError,
    alloc,
    control_flow_call,
    dim_order_from_stride,
    find_out_variant,
    has_trait,
    is_pure,
    locate,
    named_arguments,
    ops,
    results_of_graph,
    split_arguments,
    subgraph_editors,
    underlying,
    written_in_place,
)
from exirkit.passes.contract import Pass

from .symbolic_shapes import is_assertion


def insert_clone(editor: GraphEditor, node: Node, before: Node, *, skip_dim_order: bool = False) -> Node:
    """Return a new node with the value and the layout of `node` in memory of its own.

    Args:
        editor: Editor of the graph.
        node: Node whose value is a tensor.
        before: Node in front of which the copy is placed.
        skip_dim_order: Use `aten.clone` instead of the operator that states the dim order.
    """
    if skip_dim_order:
        return editor.call(ops.edge.aten.clone.default, (node,), before=before, origins=node)
    value = node.meta["val"]
    order = list(dim_order_from_stride(value.stride(), value.shape))
    clone = ops.edge.dim_order_ops._clone_dim_order.default
    return editor.call(clone, (node,), {"dim_order": order}, before=before, origins=node)


@dataclass(eq=False, kw_only=True)
class WriteBackMutations(Pass):
    """Write the new value of each mutated buffer, parameter or input into it at the end of the graph.

    All computation reads old values, since every write stands behind it. What is left to go wrong is a write-back or
    an output that is itself the old value of another mutated placeholder. Write-backs are put in an order in which
    each reads its source before that is overwritten; where they form a cycle (two buffers change places) or where a
    user output is an old value, a copy of the old value is made first: one for each cycle, and one for each returned
    old value.

    Args:
        skip_dim_order: Introduce no operators of `dim_order_ops`.

    Before: `return (%b_second, %b_first)` as the new values of `b_first` and `b_second`
    After: `%clone = _clone_dim_order(%b_first)`; `%copy_ = copy_(%b_first, %b_second)`;
    `%copy__1 = copy_(%b_second, %clone)`; `return (%copy_, %copy__1)`
    """

    name = "write-back-mutations"
    requires = ("edge-operators", "functional")
    ensures = ("mutations-written-back",)
    invalidates = ("edge-operators", "functional", "dim-orders-agree", "specs", "bounded-shapes")

    skip_dim_order: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Insert the copies and the writes, and make the writes the outputs they stand for."""
        output = editor.graph.output_node()
        results = list(output.args[0])  # type: ignore[arg-type]
        positions = mutated_outputs(editor.program)
        sources = {
            owner: results[index] for index, owner in positions.items() if not _is_written(owner, results[index])
        }
        if not sources:
            return
        saved = _Saved(editor, output, self.skip_dim_order)
        for index, value in enumerate(results):
            if index not in positions and value in sources:
                results[index] = saved.value_of(value)
        writes: dict[Node, Node] = {}
        for owner in _order(sources, saved):
            writes[owner] = _write(editor, owner, saved.known.get(sources[owner], sources[owner]), output)
        for index, owner in positions.items():
            results[index] = writes.get(owner, results[index])
        editor.rewire(output, (tuple(results),))


def mutated_outputs(program: ExportedProgram) -> dict[int, Node]:
    """Return the placeholders that a program mutates, by the position of the output that is the new value."""
    interface = ProgramInterface.of(program)
    places = [at for at, (_, spec) in enumerate(interface.results) if spec is not None and spec.kind in MUTATION_KINDS]
    return {at: owner for at, (owner, _, spec) in zip(places, interface.mutations, strict=True)}


def _is_written(owner: Node, value: Node) -> bool:
    """Return whether a value is at its place already: it never left, or was written back before."""
    return value is owner or written_in_place(value) is owner


class _Saved:
    """Copies of old values, made on demand and at most once each."""

    def __init__(self, editor: GraphEditor, output: Node, skips: bool) -> None:
        self.known: dict[Node, Node] = {}
        self._editor = editor
        self._skips = skips
        # All copies are made before the first write.
        self._before = output

    def value_of(self, owner: Node) -> Node:
        """Return a copy of what `owner` holds before any write."""
        if owner not in self.known:
            clone = insert_clone(self._editor, owner, self._before, skip_dim_order=self._skips)
            self.known[owner] = clone
        return self.known[owner]


def _order(sources: Mapping[Node, Node], saved: _Saved) -> list[Node]:
    """Return the owners in an order in which no write precedes a read of the value it destroys.

    Each owner has one source, so the reads among owners form trees that end in at most one cycle each.
    """
    unread = dict.fromkeys(sources, 0)
    for source in sources.values():
        if source in unread and source not in saved.known:
            unread[source] += 1
    ordered: list[Node] = []
    ready = [owner for owner, readers in unread.items() if not readers]
    remaining = dict.fromkeys(sources)
    for start in list(sources):
        while ready:
            owner = ready.pop()
            ordered.append(owner)
            del remaining[owner]
            source = sources[owner]
            if source in remaining and source not in saved.known:
                unread[source] -= 1
                if not unread[source]:
                    ready.append(source)
        if start in remaining:
            # Only cycles are left, and this owner is on one: with its old value saved, it can be written at once.
            saved.value_of(start)
            ready.append(start)
    return ordered


def _write(editor: GraphEditor, owner: Node, value: Node, output: Node) -> Node:
    copy = torch.ops.aten.copy_.default
    return editor.call(copy, (owner, value), before=output, origins=value, val=owner.meta["val"])


@dataclass(eq=False, kw_only=True)
class SeparateOutputs(Pass):
    """Copy an output that is an input, a constant or another output, if inputs or outputs are not planned.

    A value has one place. Where the caller names the place of an output, that output must be nothing else: the
    runtime rejects a place for a constant, and would redirect the input, or the other output, to it. Where both
    inputs and outputs lie in planned memory, such outputs need no copy.

    Args:
        alloc_graph_input: Inputs are planned.
        alloc_graph_output: Outputs are planned.
        skip_dim_order: Introduce no operators of `dim_order_ops`.
    """

    name = "separate-outputs"
    requires = ("mutations-written-back",)
    ensures = ("outputs-separate",)
    invalidates = ("dim-orders-agree", "specs", "bounded-shapes")

    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    skip_dim_order: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Insert the copies."""
        interface = ProgramInterface.of(editor.program)
        is_planned = self.alloc_graph_input and self.alloc_graph_output
        # The emitted method returns them as they are, beside what the graph returns, to be changed in place.
        trained = set(interface.trained)
        if is_planned and not trained:
            return
        output = editor.graph.output_node()
        results = list(output.args[0])  # type: ignore[arg-type]
        inputs = set() if is_planned else set(interface.user_inputs)
        seen: set[Node] = set(interface.placeholders)
        for index, (value, spec) in enumerate(interface.results):
            if spec is None or spec.kind in MUTATION_KINDS or not _is_tensor(value):
                continue
            needs_own = value in inputs or value in trained or (not self.alloc_graph_output and value in seen)
            seen.add(value)
            if needs_own:
                results[index] = insert_clone(editor, value, output, skip_dim_order=self.skip_dim_order)
        editor.rewire(output, (tuple(results),))


def _is_tensor(value: object) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


@dataclass(eq=False, kw_only=True)
class SeparateBodyResults(Pass):
    """Copy results of bodies that have to be computed into a given place, where they are something else as well.

    The branches of a `cond` compute their results right into the memory of the result, so that none may be an input, a
    constant or another result. What a loop carries is copied from round to round, one after the other, so that a result
    may be anything but what the round began with, unless that stays at its place.

    Args:
        skip_dim_order: Introduce no operators of `dim_order_ops`.

    Before: the branch `return (%x, %sin, %sin)`
    After: `%c = _clone_dim_order(%x)`; `%c_1 = _clone_dim_order(%sin)`; `return (%c, %sin, %c_1)`
    """

    name = "separate-body-results"
    requires = ("mutations-written-back",)
    ensures = ("body-results-separate",)
    invalidates = ("dim-orders-agree", "specs", "bounded-shapes")

    skip_dim_order: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Insert the copies into all bodies, at any depth."""
        calls = {
            body: call for node in editor.graph.nodes if (call := control_flow_call(node)) for body in call.subgraphs
        }
        for body in subgraph_editors(editor):
            call = calls.get(body.program.graph_module)
            if call is not None:
                with body.transaction(self.name, records_effect=False):
                    self._separate(body, call)
            self.edit(body)

    def _separate(self, body: GraphEditor, call: ControlFlowCall) -> None:
        output = body.graph.output_node()
        results = results_of_graph(body.program.graph_module)
        shared = _shared_results(body, call, results)
        if not shared:
            return
        for place in shared:
            clone = insert_clone(body, results[place], output, skip_dim_order=self.skip_dim_order)
            if clone.meta.get("debug_handle") is None and "debug_handle" in call.node.meta:
                # What an input of the body comes from has no handle; the call is what the copy is made for.
                body.set_meta(clone, "debug_handle", call.node.meta["debug_handle"])
            results[place] = clone
        body.rewire(output, (tuple(results),))


def _shared_results(body: GraphEditor, call: ControlFlowCall, results: list[Any]) -> list[int]:
    """Return the places of the results of a body that need a copy."""
    inputs = body.graph.find_nodes(op="placeholder")
    found = []
    for place, result in enumerate(results):
        if not _is_tensor(result):
            continue
        if call.kind == COND:
            needs_copy = result.op != "call_function" or result in results[:place]
        else:
            is_carried = call.kind in (SCAN, WHILE) and body.program.graph_module is call.body
            carried = inputs[: len(call.carried)] if is_carried else []
            needs_copy = result in carried and (place >= len(carried) or result is not carried[place])
        if needs_copy:
            found.append(place)
    return found


OutVariant = OpOverload | DefinedOperator


@dataclass(frozen=True)
class OutVariantTable:
    """Finds out variants.

    Attributes:
        overrides: Out variants that are given, by operator.
    """

    overrides: Mapping[Any, OutVariant] = field(default_factory=dict)

    def find(self, target: Any) -> OutVariant | None:
        """Return the out variant of an operator or edge handle, or None where there is none."""
        op = underlying(target)
        return self.overrides.get(op) or _derived(op)

    def with_overrides(self, given: Mapping[str, str]) -> OutVariantTable:
        """Return a table in which some operators have other out variants.

        Args:
            given: Names of overloads (`library.name.out`) by names of operators (`library.name.default`).

        Raises:
            UsageError: EK436, a name is not an operator, or the overload does not take what the operator gives it.
        """
        if not given:
            return self
        found = {_operator(name): (name, other) for name, other in given.items()}
        made = {op: _checked(op, name, other) for op, (name, other) in found.items()}
        return OutVariantTable({**self.overrides, **made})


@cache
def _derived(op: Any) -> OutVariant | None:
    return find_out_variant(op)


def missing_out_variants(program: ExportedProgram, table: OutVariantTable | None = None) -> list[Diagnostic]:
    """List the calls of an Edge program whose operators have no out variant.

    Calls that lowering removes (assertions and what is computed for them alone) or turns into primitives of the runtime
    (arithmetic on sizes) are not among them.

    Args:
        program: A program of the Edge dialect.
        table: Out variants; those that schemas state when absent.

    Returns:
        A finding EK435 for each call, in graph order.
    """
    table = table or OutVariantTable()
    candidates = [node for node in program.graph.nodes if _needs_variant(node, table)]
    if not candidates:
        return []
    live = _live(program.graph)
    return [no_out_variant(node) for node in candidates if node in live]


def no_out_variant(node: Node) -> Diagnostic:
    """Return the finding EK435 for a call."""
    return Diagnostic.of(
        code="EK435",
        message=f"operator {underlying(node.target).name()} has no out variant",
        location=locate(node),
        expected="an overload that takes the same arguments and one `Tensor(a!) out` per result",
        hint="register one in the operator's library, or decompose the operator before lowering",
    )


def _needs_variant(node: Node, table: OutVariantTable) -> bool:
    target = node.target
    return (
        node.op == "call_function"
        and isinstance(target, EdgeOpOverload)
        and not has_trait(target, "returns_number")
        and not isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool | int | float)
        and table.find(target) is None
    )


def _live(graph: Graph) -> set[Node]:
    """Return the nodes that are still there when assertions are gone."""
    pending = [node for node in graph.nodes if not is_pure(node) and not is_assertion(node)]
    live = set(pending)
    while pending:
        for producer in pending.pop().all_input_nodes:
            if producer not in live:
                live.add(producer)
                pending.append(producer)
    return live


def _operator(name: str) -> Any:
    parts = name.split(".")
    if len(parts) != 3:
        raise _wrong(
            f"{name!r} is not the name of an operator", expected="library.name.overload, such as aten.add.Tensor"
        )
    found: Any = ops.edge
    try:
        for part in parts:
            found = getattr(found, part)
    except (UsageError, AttributeError) as error:
        notes = (str(error).splitlines()[0],)
        raise _wrong(f"there is no operator {name}", notes=notes, hint="import the library that registers it") from None
    return underlying(found)


def _checked(op: Any, name: str, other: str) -> OutVariant:
    """Return the overload of an override after an examination the two schemas."""
    found: OutVariant = _operator(other)
    results = len(op._schema.returns)
    outs = [argument for argument in found._schema.arguments if argument.is_out]
    if len(outs) != results:
        raise _wrong(
            f"{other} writes into {len(outs)} tensors, and {name} returns {results}",
            expected="one `Tensor(a!) out` for each result",
        )
    given = {argument.name: str(argument.type) for argument in op._schema.arguments}
    for argument in found._schema.arguments:
        if argument.is_out:
            continue
        if argument.name not in given and not argument.has_default_value():
            raise _wrong(f"{other} needs the argument {argument.name!r}, which {name} does not have")
        kind, wanted = str(argument.type), given.get(argument.name)
        if wanted is not None and wanted != kind:
            raise _wrong(f"the argument {argument.name!r} of {other} is a {kind}, that of {name} a {wanted}")
    return found


def _wrong(message: str, location: Location | None = None, **more: Any) -> UsageError:
    return UsageError(code="EK436", message=message, location=location or Location(), **more)


@dataclass(eq=False, kw_only=True)
class ConvertToOutVariants(Pass):
    """Replace each edge operator by its out variant, with an `alloc` in front of it for every tensor that it returns.

    The alloc and the operator carry the same spec. A list of results is given as a list of allocs. Arguments that say
    what kind of tensor to make (dtype, layout, device) are dropped where the out variant does not take them.

    Args:
        ignore_missing: Keep an operator that has no out variant as it is; only a runtime that knows the
            operator under that name can run it.
        overrides: Names of overloads that write their results (`library.name.out`), by names of operators.

    Raises:
        UsageError: EK436, an override names what does not exist or does not fit.

    Before: `%add = edge.aten.add.Tensor(%x, %y)`
    After: `%alloc = alloc(((2, 3), torch.float32))`; `%add = aten.add.out(%x, %y, out=%alloc)`
    """

    name = "convert-to-out-variants"
    enters_subgraphs = True
    requires = ("specs", "bounded-shapes")
    ensures = ("out-variants",)
    invalidates = ("edge-operators", "out-variants-known")

    ignore_missing: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._table = OutVariantTable().with_overrides(self.overrides)

    def edit(self, editor: GraphEditor) -> None:
        """Replace the operators.

        Raises:
            ModelError: EK435, for each operator that has no out variant; nothing is changed then.
        """
        missing: list[Diagnostic] = []
        found: list[tuple[Node, OpOverload | DefinedOperator]] = []
        for node in editor.graph.nodes:
            if node.op != "call_function" or not isinstance(node.target, EdgeOpOverload):
                continue
            variant = self._table.find(node.target)
            if variant is None:
                missing.append(no_out_variant(node))
            else:
                found.append((node, variant))
        if missing and not self.ignore_missing:
            raise ModelError(missing)
        for node, op in found:
            _convert(editor, node, op)
        if missing:
            for node in editor.graph.nodes:
                if isinstance(node.target, EdgeOpOverload):
                    editor.retarget(node, underlying(node.target), val=node.meta["val"])


def _convert(editor: GraphEditor, node: Node, op: OpOverload | DefinedOperator) -> None:
    given = dict(named_arguments(node, underlying(node.target)._schema))
    allocs = _allocs(editor, node)
    for argument in op._schema.arguments:
        if argument.is_out:
            given[argument.name] = allocs if isinstance(argument.type, torch.ListType) else allocs.pop(0)
    args, kwargs = split_arguments(op, given)
    editor.retarget(node, op, args, kwargs, val=node.meta["val"])


def _allocs(editor: GraphEditor, node: Node) -> list[Node | None]:
    """Make the allocs of a node, with None for a result that it leaves out."""
    spec, value = node.meta["spec"], node.meta["val"]
    if isinstance(spec, list):
        return [one and _alloc(editor, one, example, node) for one, example in zip(spec, value, strict=True)]
    return [_alloc(editor, spec, value, node)]


def _alloc(editor: GraphEditor, spec: TensorSpec, value: Any, node: Node) -> Node:
    made = editor.call(alloc, ((tuple(spec.shape), spec.dtype),), before=node, origins=node, val=value)
    editor.set_meta(made, "spec", spec)
    return made

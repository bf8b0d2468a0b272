"""Values that need memory of their own get it: mutations, outputs, and results of subgraphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from exirkit.ir import (
    COND,
    SCAN,
    WHILE,
    ControlFlowCall,
    GraphEditor,
    control_flow_call,
    dim_order_from_stride,
    ops,
    results_of_graph,
    subgraph_editors,
)
from exirkit.passes.contract import Pass


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


_MUTATIONS = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION})


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
    signature = program.graph_signature
    placeholders = program.graph_module.graph.find_nodes(op="placeholder")
    by_target: dict[str | None, Node] = {}
    by_name: dict[str, Node] = {}
    for spec, node in zip(signature.input_specs, placeholders, strict=True):
        by_name[node.name] = node
        if spec.target is not None:
            by_target.setdefault(spec.target, node)
    found: dict[int, Node] = {}
    for index, result in enumerate(signature.output_specs):
        if result.kind in _MUTATIONS:
            is_input = result.kind is OutputKind.USER_INPUT_MUTATION
            found[index] = by_name[str(result.target)] if is_input else by_target[result.target]
    return found


def _is_written(owner: Node, value: Node) -> bool:
    """Return whether a value is at its place already: it never left, or was written back before."""
    return value is owner or (value.target is torch.ops.aten.copy_.default and value.args[0] is owner)


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
        if self.alloc_graph_input and self.alloc_graph_output:
            return
        output = editor.graph.output_node()
        results = list(output.args[0])  # type: ignore[arg-type]
        signature = editor.program.graph_signature
        placeholders = editor.graph.find_nodes(op="placeholder")
        is_input = {
            node: spec.kind is InputKind.USER_INPUT
            for node, spec in zip(placeholders, signature.input_specs, strict=True)
        }
        seen: set[Node] = set()
        for index, (value, spec) in enumerate(zip(results, signature.output_specs, strict=True)):
            if spec.kind is not OutputKind.USER_OUTPUT or not _is_tensor(value):
                continue
            needs_own = is_input.get(value, False) or (
                not self.alloc_graph_output and (value in is_input or value in seen)
            )
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
        calls = {body: call for node in editor.graph.nodes if (call := control_flow_call(node)) for body in call.bodies}
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
        if not isinstance(result, Node) or not isinstance(result.meta.get("val"), torch.Tensor):
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

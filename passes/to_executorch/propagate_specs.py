"""Every tensor of the graph gets a spec: its type and layout, with room for its place in memory."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Node

from exirkit.ir import (
    COND,
    MAP,
    SCAN,
    ControlFlowCall,
    GraphEditor,
    SubgraphEditor,
    TensorShapeDynamism,
    TensorSpec,
    control_flow_call,
    results_of_graph,
    same_argument,
    subgraph_editors,
)
from exirkit.passes.analysis.graph_calls import reject_graph_calls
from exirkit.passes.contract import Pass

from .separate_memory import mutated_outputs

Destinations = Mapping[tuple[Node, int | None], Any]
"""Specs that nodes of a body have to have, by node and place in its list of results."""


def called_bodies(editor: GraphEditor) -> Iterator[tuple[ControlFlowCall, SubgraphEditor]]:
    """Yield each call of control flow of a graph with an editor of each of its bodies."""
    editors = {id(body.program.graph_module): body for body in subgraph_editors(editor)}
    for node in list(editor.graph.nodes):
        call = control_flow_call(node)
        if call is not None:
            yield from ((call, editors[id(body)]) for body in dict.fromkeys(call.bodies))


def all_editors(editor: GraphEditor) -> Iterator[GraphEditor]:
    """Yield the editor of a graph, and those of the bodies of its control flow at any depth."""
    yield editor
    for body in subgraph_editors(editor):
        yield from all_editors(body)


def share_input_specs(call: ControlFlowCall, body: SubgraphEditor) -> None:
    """Give the inputs of a body the specs of what they stand for; the rows of sliced tensors keep their own.

    What a loop carries lies in the memory of the loop's results.
    """
    inputs = body.graph.find_nodes(op="placeholder")
    results = call.node.meta.get("spec") or []
    rows = len(call.carried) + len(call.sliced)
    for place, node in enumerate(inputs):
        if place < len(call.carried):
            spec = results[place] if place < len(results) else None
        elif place < rows or place - rows >= len(call.shared):
            continue
        else:
            operand = call.shared[place - rows]
            spec = operand.meta.get("spec") if isinstance(operand, Node) else None
        if node.meta.get("spec") is not spec:
            body.set_meta(node, "spec", spec)


def destinations(call: ControlFlowCall, body: SubgraphEditor) -> Destinations:
    """Return the specs of the results that a branch writes right into the memory of the call's results."""
    if call.kind != COND:
        return {}
    found: dict[tuple[Node, int | None], Any] = {}
    specs = call.node.meta.get("spec") or []
    for result, spec in zip(results_of_graph(body.program.graph_module), specs, strict=False):
        if isinstance(result, Node) and spec is not None:
            found[_producer(result)] = spec
    return found


def _producer(node: Node) -> tuple[Node, int | None]:
    if node.target is operator.getitem and isinstance(node.args[0], Node) and isinstance(node.args[1], int):
        return node.args[0], node.args[1]
    return node, None


_CONSTANT_KINDS = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})


class PropagateSpecs(Pass):
    """Set `meta["spec"]` of each node whose value is a tensor, or a sequence of tensors, from its `meta["val"]`.

    An element that `getitem` takes out shares the spec object of its sequence, and a write-back that of the
    placeholder it writes: one spec object is one piece of memory. Parameters, constants and buffers that nothing
    mutates are `const`.

    An input of a branch or a loop's body has the spec of what it is given, one that is carried from round to round that
    of the loop's result, and a result of a branch that of the call's result: it is computed at its place.

    Requires: mutations are written back; strides of values are what kernels produce.
    """

    name = "propagate-specs"
    requires = ("dim-orders-agree", "symbols-lowered", "outputs-separate", "body-results-separate", "no-assertions")
    ensures = ("specs",)
    invalidates = ("bounded-shapes",)

    def edit(self, editor: GraphEditor) -> None:
        """Set the specs.

        Raises:
            ModelError: EK432, for each operator that calls other graphs.
        """
        reject_graph_calls(editor.program.graph_module)
        self._placeholders(editor)
        _set_specs(editor, {})

    def _placeholders(self, editor: GraphEditor) -> None:
        mutated = set(mutated_outputs(editor.program).values())
        signature = editor.program.graph_signature
        for node, entry in zip(editor.graph.find_nodes(op="placeholder"), signature.input_specs, strict=True):
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                spec = TensorSpec.from_tensor(value)
                spec.const = entry.kind in _CONSTANT_KINDS and node not in mutated
                _set_spec(editor, node, spec)


def _set_specs(editor: GraphEditor, given: Destinations) -> None:
    """Set the specs of all calls of a graph, and of the bodies of its control flow.

    Args:
        editor: Editor of the graph, whose inputs have their specs.
        given: Specs that are to be those of certain nodes.
    """
    for node in editor.graph.nodes:
        if node.op != "call_function":
            continue
        shared = _shared_spec(node)
        if shared is not None:
            if node.meta.get("spec") is not shared:
                editor.set_meta(node, "spec", shared)
        elif not _set_given(editor, node, given):
            _set_spec(editor, node, _own_spec(node))
        _mark_rows(node)
    for call, body in called_bodies(editor):
        share_input_specs(call, body)
        _set_row_specs(call, body)
        _set_specs(body, destinations(call, body))


def _set_given(editor: GraphEditor, node: Node, given: Destinations) -> bool:
    """Set the spec of a node of whose memory the graph around it has a part; return whether it is such a node."""
    if (node, None) in given:
        editor.set_meta(node, "spec", given[node, None])
        return True
    own = _own_spec(node)
    if not isinstance(own, list) or not any((node, place) in given for place in range(len(own))):
        return False
    editor.set_meta(node, "spec", [given.get((node, place), spec) for place, spec in enumerate(own)])
    return True


def _mark_rows(node: Node) -> None:
    """Let the results of a loop that grow row by row have sizes that change, as far as the runtime can tell."""
    call = control_flow_call(node)
    if call is None or call.kind not in (MAP, SCAN):
        return
    for spec in node.meta["spec"][len(call.carried) :]:
        spec.shape_dynamism = max(spec.shape_dynamism, TensorShapeDynamism.DYNAMIC_BOUND)


def _set_row_specs(call: ControlFlowCall, body: SubgraphEditor) -> None:
    inputs = body.graph.find_nodes(op="placeholder")
    for node in inputs[len(call.carried) : len(call.carried) + len(call.sliced)]:
        _set_spec(body, node, TensorSpec.from_tensor(node.meta["val"]))


def _set_spec(editor: GraphEditor, node: Node, spec: Any) -> None:
    """Set a spec unless the node has one that says the same: who holds on to that one must not lose it."""
    if spec is not None and not _says_the_same(node.meta.get("spec"), spec):
        editor.set_meta(node, "spec", spec)


def _says_the_same(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_says_the_same, old, new))
    if not isinstance(old, TensorSpec) or not isinstance(new, TensorSpec):
        return old is new
    return (old.dtype, old.dim_order, old.const) == (new.dtype, new.dim_order, new.const) and same_argument(
        tuple(old.shape), tuple(new.shape)
    )


def _shared_spec(node: Node) -> Any:
    """Return the spec of another node whose memory a node's value lies in, or None."""
    if node.target is operator.getitem:
        source, index = node.args[0], cast(int, node.args[1])
        specs = source.meta.get("spec")  # type: ignore[union-attr]
        return specs[index] if isinstance(specs, list) else None
    if node.target is torch.ops.aten.copy_.default:
        return node.args[0].meta["spec"]  # type: ignore[union-attr]
    return None


def _own_spec(node: Node) -> Any:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return TensorSpec.from_tensor(value)
    if isinstance(value, list | tuple) and any(isinstance(one, torch.Tensor) for one in value):
        return [TensorSpec.from_tensor(one) if isinstance(one, torch.Tensor) else None for one in value]
    return None

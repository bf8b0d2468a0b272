"""Specs across the border of a body: what is one piece of memory inside and outside has one spec object."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from torch.fx import Node

from exirkit.ir import COND, BodyEditor, ControlFlowCall, GraphEditor, bodies_of, control_flow_call, results_of_graph

Destinations = Mapping[tuple[Node, int | None], Any]
"""Specs that nodes of a body have to have, by node and place in its list of results."""


def called_bodies(editor: GraphEditor) -> Iterator[tuple[ControlFlowCall, BodyEditor]]:
    """Yield each call of control flow of a graph with an editor of each of its bodies."""
    editors = {id(body.program.graph_module): body for body in bodies_of(editor)}
    for node in list(editor.graph.nodes):
        call = control_flow_call(node)
        if call is not None:
            yield from ((call, editors[id(body)]) for body in dict.fromkeys(call.bodies))


def all_editors(editor: GraphEditor) -> Iterator[GraphEditor]:
    """Yield the editor of a graph, and those of the bodies of its control flow at any depth."""
    yield editor
    for body in bodies_of(editor):
        yield from all_editors(body)


def share_input_specs(call: ControlFlowCall, body: BodyEditor) -> None:
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


def destinations(call: ControlFlowCall, body: BodyEditor) -> Destinations:
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

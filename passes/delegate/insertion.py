"""Putting calls of delegates in the place of the nodes that they compute."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputSpec
from torch.fx import Graph, GraphModule, Node

from exirkit.ir import CALL_DELEGATE, inherited

from .partitioner import TAG
from .subprogram import Subprogram


def sort_for_delegates(module: GraphModule, taken: Sequence[Subprogram]) -> None:
    """Move nodes so that the calls of each partition stand side by side, and everything after what it needs.

    Args:
        module: Graph of the partitions.
        taken: The partitions, in an order in which they can run.
    """
    graph = module.graph
    unit: dict[Node, int] = {node: number for number, one in enumerate(taken) for node in one.partition.calls}
    placed: set[Node] = set()
    order: list[Node] = []

    def place(first: Node) -> None:
        stack = [(first, False)]
        while stack:
            node, is_expanded = stack.pop()
            if node in placed:
                continue
            group = taken[unit[node]].partition.calls if node in unit else (node,)
            if not is_expanded:
                stack.append((node, True))
                stack += [
                    (source, False)
                    for member in reversed(group)
                    for source in reversed(member.all_input_nodes)
                    if source not in placed and (node not in unit or unit.get(source) != unit[node])
                ]
                continue
            placed.update(group)
            order.extend(group)

    nodes = list(graph.nodes)
    for node in nodes:
        if node.op == "placeholder":
            placed.add(node)
            order.append(node)
    for node in nodes:
        if node.op not in ("placeholder", "output"):
            place(node)
    end = graph.output_node()
    for node in order:
        end.prepend(node)


def insert_calls(module: GraphModule, taken: Sequence[Subprogram], delegates: Sequence[torch.nn.Module]) -> None:
    """Replace the nodes of partitions by calls of their delegates.

    Args:
        module: Graph of the partitions, sorted by `sort_for_delegates`; the delegates become attributes of it.
        taken: The partitions, in the order in which they run.
        delegates: What is called, for each.
    """
    handle = _greatest_handle(module)
    results: dict[Node, Node] = {}
    for number, (one, delegate) in enumerate(zip(taken, delegates, strict=True)):
        name = _free_name(module, number)
        module.add_module(name, delegate)
        # What an earlier delegate computes has another name now.
        arguments = [results.get(node, node) for node in one.arguments]
        results |= _insert_call(module.graph, one, arguments, name, handle + number + 1)


def _insert_call(graph: Graph, one: Subprogram, arguments: Sequence[Node], name: str, handle: int) -> dict[Node, Node]:
    """Replace one partition, and return what its results have become; the call's value is the list of them."""
    first = one.partition.calls[0]
    with graph.inserting_before(first):
        attribute = graph.get_attr(name)
        call = graph.call_function(CALL_DELEGATE, (attribute, *arguments))
        call.meta = inherited(list(one.partition.calls))
        call.meta.pop(TAG, None)
        call.meta["val"] = [node.meta["val"] for node in one.results]
        call.meta["debug_handle"] = handle
        made: dict[Node, Node] = {}
        for place, node in enumerate(one.results):
            made[node] = item = graph.call_function(operator.getitem, (call, place))
            item.meta = {key: value for key, value in node.meta.items() if key != TAG}
            node.replace_all_uses_with(item)
    for node in reversed(one.partition.calls):
        graph.erase_node(node)
    return made


def _free_name(module: GraphModule, number: int) -> str:
    while hasattr(module, f"lowered_module_{number}"):
        number += 1
    return f"lowered_module_{number}"


def _greatest_handle(module: GraphModule) -> int:
    """Return the greatest debug handle of a graph; 0 if there is none."""
    handles = [node.meta.get("debug_handle") for node in module.graph.nodes]
    return max((one for one in handles if isinstance(one, int)), default=0)


def leave_writes(program: ExportedProgram, taken: Sequence[Subprogram]) -> None:
    """Take out of a program the writes to what its delegates keep."""
    written = {target for one in taken for target in one.written}
    output = program.graph.output_node()
    results: Any = output.args[0]
    specs = program.graph_signature.output_specs
    kept = [
        pair for pair in zip(results, specs, strict=True) if pair[1].target is None or pair[1].target not in written
    ]
    output.args = (tuple(value for value, _ in kept),)
    program._graph_signature = ExportGraphSignature(program.graph_signature.input_specs, [spec for _, spec in kept])


def leave_inputs(program: ExportedProgram, taken: Sequence[Subprogram]) -> None:
    """Take out of a program what only its delegates read, and let its signature name the values that are left."""
    signature = program.graph_signature
    gone = {node.name: node for one in taken for node in one.partition.inputs if not node.users}
    targets = {str(spec.target) for spec in signature.input_specs if spec.arg.name in gone}
    kept = [spec for spec in signature.input_specs if spec.arg.name not in gone]
    for node in gone.values():
        program.graph.erase_node(node)
    results: Any = program.graph.output_node().args[0]
    outputs = [
        OutputSpec(spec.kind, replace(spec.arg, name=value.name), spec.target) if isinstance(value, Node) else spec
        for value, spec in zip(results, signature.output_specs, strict=True)
    ]
    program._graph_signature = ExportGraphSignature(kept, outputs)
    for target in targets - {str(spec.target) for spec in kept}:
        program._state_dict.pop(target, None)
        program._constants.pop(target, None)

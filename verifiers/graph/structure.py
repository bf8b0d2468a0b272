"""The form of graphs: order, names, and what may stand in them at all."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from exirkit.ir import Diagnostic, attribute_at

from .program_graphs import ProgramGraph, graphs_of

_ATTRIBUTES = (torch.nn.Module, torch.Tensor, torch.ScriptObject, pytree.TreeSpec)


def check_structure(program: ExportedProgram | GraphModule) -> list[Diagnostic]:
    """Check that every graph of a program can be executed from its first node to its last.

    Returns:
        All findings (EK306: use before definition, EK307: a name is not unique, EK308: a node stands where none of its
        kind may stand, EK309: an attribute is not there), in graph order.
    """
    return [finding for graph in graphs_of(program) for finding in _findings(graph)]


def _findings(graph: ProgramGraph) -> Iterator[Diagnostic]:
    defined: set[Node] = set()
    names: dict[str, Node] = {}
    has_calls, has_output = False, False
    for node in graph.module.graph.nodes:
        yield from _undefined(graph, node, defined)
        if node.name in names:
            yield graph.finding(
                "EK307",
                node,
                f"two nodes are called %{node.name}",
                expected="a name of its own for every node of a graph",
                hint="make nodes through the graph editor, which gives unique names",
            )
        if has_output:
            yield _misplaced(graph, node, f"%{node.name} stands behind the output", "the output as the last node")
        elif node.op == "placeholder" and has_calls:
            yield _misplaced(graph, node, f"input %{node.name} stands behind calls", "all inputs before the first call")
        elif node.op in ("call_module", "call_method"):
            yield _misplaced(graph, node, f"%{node.name} is a {node.op}", "a call_function of an operator")
        elif node.op == "get_attr":
            yield from _missing_attribute(graph, node)
        has_calls = has_calls or node.op not in ("placeholder", "get_attr")
        has_output = has_output or node.op == "output"
        names[node.name] = node
        defined.add(node)
    if not has_output:
        last = next(iter(reversed(graph.module.graph.nodes)), None)
        if last is not None:
            yield _misplaced(graph, last, "the graph has no output", "one output node, the last of the graph")


def _undefined(graph: ProgramGraph, node: Node, defined: set[Node]) -> Iterator[Diagnostic]:
    for source in node.all_input_nodes:
        if source in defined:
            continue
        if source.graph is not graph.module.graph:
            message, expected = f"%{source.name} is a node of another graph", "an input that hands the value over"
        elif source._erased:
            message, expected = f"%{source.name} was erased", "a node of the graph"
        else:
            message, expected = f"%{source.name} is computed after %{node.name}", "definitions before uses"
        yield graph.finding(
            "EK306",
            node,
            f"%{node.name} uses a value that does not exist yet: {message}",
            expected=expected,
            hint=f"insert what computes %{source.name} before %{node.name}",
        )


def _misplaced(graph: ProgramGraph, node: Node, message: str, expected: str) -> Diagnostic:
    return graph.finding("EK308", node, message, expected=expected)


def _missing_attribute(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    found = attribute_at(graph.module, str(node.target))
    if not isinstance(found, _ATTRIBUTES):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        yield graph.finding(
            "EK309",
            node,
            f"the graph module has {what} under the name {node.target!r}",
            expected="a graph, a tensor or a lowered module",
            hint="register the attribute on the module of this graph, not on that of another",
        )

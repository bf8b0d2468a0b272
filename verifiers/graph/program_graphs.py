"""The graphs of a program, and how findings name places in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, locate


@dataclass(frozen=True, slots=True)
class ProgramGraph:
    """One graph of a program: that of the method, or a body of control flow.

    Attributes:
        module: The graph.
        path: Attributes that lead to it from the method, `true_graph_0.body_graph_1`; empty for the method itself.
    """

    module: GraphModule
    path: str

    def finding(
        self,
        code: str,
        node: Node,
        message: str,
        *,
        expected: str | None = None,
        hint: str | None = None,
        notes: Sequence[str] = (),
    ) -> Diagnostic:
        """Return a finding about a node; one in a body says which body it is."""
        where = (f"in the graph {self.path}",) if self.path else ()
        return Diagnostic(
            code=code,
            message=message,
            location=locate(node),
            expected=expected,
            hint=hint,
            notes=(*notes, *where),
        )

    def calls(self) -> Iterator[Node]:
        """Yield the nodes that call something, in graph order."""
        for node in self.module.graph.nodes:
            if node.op == "call_function":
                yield node


def graphs_of(program: ExportedProgram | GraphModule) -> list[ProgramGraph]:
    """Return the graph of a method and all that its nodes name, at any depth, each once, outer ones first."""
    module = program if isinstance(program, GraphModule) else program.graph_module
    found = [ProgramGraph(module, "")]
    seen = {id(module)}
    for one in found:
        for node in one.module.graph.nodes:
            if node.op not in ("get_attr", "call_module"):
                continue
            body = attribute_at(one.module, node.target)
            if isinstance(body, GraphModule) and id(body) not in seen:
                seen.add(id(body))
                found.append(ProgramGraph(body, f"{one.path}.{node.target}".lstrip(".")))
    return found


def attribute_at(module: Any, path: Any) -> Any:
    """Return what hangs on a module under a dotted path, or None."""
    for name in str(path).split("."):
        module = getattr(module, name, None)
    return module


def body_of(node: Any) -> GraphModule | None:
    """Return the graph that an argument of control flow names, or None if it names none."""
    if not isinstance(node, Node) or node.op != "get_attr":
        return None
    found = attribute_at(node.graph.owning_module, node.target)
    return found if isinstance(found, GraphModule) else None


def results_of(module: GraphModule) -> list[Any]:
    """Return what a graph returns, flat; empty if it has no output."""
    outputs = module.graph.find_nodes(op="output")
    if not outputs or not outputs[0].args:
        return []
    given: Any = outputs[0].args[0]
    return list(given) if isinstance(given, list | tuple) else [given]


def value_of(argument: Any) -> Any:
    """Return the recorded value of a graph argument; what is no node is its own value."""
    return argument.meta.get("val") if isinstance(argument, Node) else argument

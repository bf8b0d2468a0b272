"""The graphs of a program, and how findings name places in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, graphs_by_path, locate


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
    return [ProgramGraph(one, path) for path, one in graphs_by_path(module)]

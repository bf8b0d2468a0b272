"""The interface of a program by node, and walks over the graphs that its nodes name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec
from torch.fx import Graph, GraphModule, Node

from exirkit.ir.graph.metadata import attribute_of


def called_graphs(module: GraphModule) -> Iterator[GraphModule]:
    """Yield a graph and those that its nodes name, at any depth, each once.

    A pass that inlines a graph leaves the attribute behind; a graph that no node names is not part of the program.
    """
    pending, seen = [module], {id(module)}
    while pending:
        one = pending.pop()
        yield one
        for _, found in _named_graphs(one):
            if id(found) not in seen:
                seen.add(id(found))
                pending.append(found)


def graphs_by_path(module: GraphModule) -> list[tuple[str, GraphModule]]:
    """Return the graphs of `called_graphs`, outer ones first, each with its path, `true_graph_0.body_graph_1`."""
    found = [("", module)]
    seen = {id(module)}
    for path, one in found:
        for name, inner in _named_graphs(one):
            if id(inner) not in seen:
                seen.add(id(inner))
                found.append((f"{path}.{name}".lstrip("."), inner))
    return found


def graph_argument(argument: Any) -> GraphModule | None:
    """Return the graph that an argument names, or None if it names none."""
    if not isinstance(argument, Node) or argument.op != "get_attr":
        return None
    found = attribute_of(argument)
    return found if isinstance(found, GraphModule) else None


def graphs_of_call(node: Node) -> list[GraphModule]:
    """Return the graphs that a call of control flow runs; those inside of a delegate are the backend's own."""
    if node.op != "call_function" or not isinstance(node.target, HigherOrderOperator):
        return []
    return [found for argument in node.args if (found := graph_argument(argument)) is not None]


def _named_graphs(module: GraphModule) -> Iterator[tuple[str, GraphModule]]:
    for node in module.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            found = attribute_of(node)
            if isinstance(found, GraphModule):
                yield str(node.target), found


STORED_KINDS = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})
"""Inputs whose tensors the program stores."""

MUTATION_KINDS = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION})
"""Results that are new values of inputs."""


class ProgramInterface:
    """Inputs and results of a graph and what its signature states of them, as they are when this is made.

    Args:
        graph: The graph of a program.
        signature: Its signature; without one, all inputs and results are the user's.

    Attributes:
        inputs: The signature's entry of each placeholder.
        results: What the graph returns, each with its entry in the signature.
    """

    def __init__(self, graph: Graph, signature: ExportGraphSignature | None) -> None:
        self.placeholders: list[Node] = list(graph.find_nodes(op="placeholder"))
        returned = results_of_graph(graph)
        self.inputs: dict[Node, InputSpec] = {}
        self.results: list[tuple[Any, OutputSpec | None]] = [(one, None) for one in returned]
        if signature is not None:
            self.inputs = dict(zip(self.placeholders, signature.input_specs, strict=False))
            self.results = list(zip(returned, signature.output_specs, strict=False))

    @classmethod
    def of(cls, program: ExportedProgram) -> ProgramInterface:
        """Return the interface of a program."""
        return cls(program.graph, program.graph_signature)

    def kind(self, node: Node) -> InputKind | None:
        """Return the kind of an input; None for other nodes."""
        spec = self.inputs.get(node)
        return None if spec is None else spec.kind

    def is_stored(self, node: Node) -> bool:
        """Return whether a node is an input whose tensor the program stores."""
        return self.kind(node) in STORED_KINDS

    def is_written(self, node: Node) -> bool:
        """Return whether a node is an input that the program writes to."""
        return node in self.written

    @property
    def user_inputs(self) -> list[Node]:
        """The inputs that the user passes."""
        return [node for node in self.placeholders if self.kind(node) in (None, InputKind.USER_INPUT)]

    @property
    def user_results(self) -> list[Any]:
        """What the user gets, without new values of inputs; nodes and constants."""
        return [value for value, spec in self.results if spec is None or spec.kind not in MUTATION_KINDS]

    @cached_property
    def mutations(self) -> list[tuple[Node, Any, OutputSpec]]:
        """New values of inputs, in the order of the results: input, new value, entry in the signature."""
        owners = {_input_key(node, spec): node for node, spec in self.inputs.items()}
        pairs = [(value, spec) for value, spec in self.results if spec is not None and spec.kind in MUTATION_KINDS]
        found = [(owners.get(_result_key(spec)), value, spec) for value, spec in pairs]
        return [(owner, value, spec) for owner, value, spec in found if owner is not None]

    @cached_property
    def written(self) -> frozenset[Node]:
        """The inputs that the program writes to; several may stand for one stored tensor."""
        keys = {_result_key(spec) for _, _, spec in self.mutations}
        return frozenset(node for node, spec in self.inputs.items() if _input_key(node, spec) in keys)


def stored_tensor(program: ExportedProgram, spec: InputSpec | None) -> torch.Tensor | None:
    """Return the tensor behind a stored input; None if there is none."""
    if spec is None or spec.kind not in STORED_KINDS:
        return None
    is_constant = spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False
    tables = (program.constants, program.state_dict) if is_constant else (program.state_dict, program.constants)
    found = next((table[str(spec.target)] for table in tables if spec.target in table), None)
    return found if isinstance(found, torch.Tensor) else None


def results_of_graph(graph: Graph | GraphModule) -> list[Any]:
    """Return what a graph returns, as a list; empty if it has no output."""
    outputs = (graph.graph if isinstance(graph, GraphModule) else graph).find_nodes(op="output")
    if not outputs or not outputs[0].args:
        return []
    results: Any = outputs[0].args[0]
    return list(results) if isinstance(results, list | tuple) else [results]


def _input_key(node: Node, spec: InputSpec) -> tuple[bool, str]:
    # Names of placeholders and of stored tensors are two name spaces.
    return (True, node.name) if spec.kind is InputKind.USER_INPUT else (False, str(spec.target))


def _result_key(spec: OutputSpec) -> tuple[bool, str]:
    return spec.kind is OutputKind.USER_INPUT_MUTATION, str(spec.target)

"""Copying `torch.export.ExportedProgram`s: graphs and signatures are copied, tensors are shared."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch._export.verifier import Verifier
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputSpec, OutputSpec
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module

from .defined_operators import DefinedOperator
from .operators import EdgeOpOverload


class EdgeProgramVerifier(Verifier):
    """What `torch.export` itself asks of an Edge program: the usual structure, with edge handles as call targets.

    The rules of the dialect are checked by `exirkit.verifiers`; this class only gives the program its dialect name.
    """

    dialect = "EDGE"

    def allowed_op_types(self) -> tuple[type[Any], ...]:
        """Return the types that call targets may have."""
        return (*super().allowed_op_types(), EdgeOpOverload, DefinedOperator)

    def check_valid_op(self, op: Any) -> None:
        """Accept every operator: legality is the business of the dialect verifiers."""


class ExecutorchProgramVerifier(EdgeProgramVerifier):
    """Names the dialect in which operators write into planned memory."""

    dialect = "EXECUTORCH"


def copy_program(program: ExportedProgram, *, verifier: type[Verifier] | None = None) -> ExportedProgram:
    """Copy a program so that edits of the copy never reach the original.

    Args:
        program: Any program; it is not changed.
        verifier: Dialect tag of the copy; the original's when absent.

    Returns:
        A program with graphs, signature and tables of its own that shares every tensor with the original.
    """
    result = copy.copy(program)
    result._graph_module = copy_graph_module(program.graph_module)
    result._graph_signature = copy_signature(program.graph_signature)
    result._state_dict = dict(program._state_dict)
    result._constants = dict(program._constants)
    result._range_constraints = dict(program._range_constraints)
    result._module_call_graph = list(program._module_call_graph)
    if verifier is not None:
        result._verifiers = [verifier]
    return result


def copy_graph_module(module: GraphModule) -> GraphModule:
    """Copy a graph module with its nested graphs; parameters, constants and other submodules are shared."""
    graph = Graph()
    graph._codegen = copy.copy(module.graph._codegen)
    copies: dict[Node, Node] = {}
    for node in module.graph.nodes:
        copied = graph.node_copy(node, copies.__getitem__)
        # The namespace of a new graph gives the same names again only if they are claimed as they are.
        if copied.name != node.name:
            copied._rename(node.name)
        copies[node] = copied
    # Code is generated when somebody calls or prints the module, not once per copy.
    with _use_lazy_graph_module(True):
        from torch.fx._lazy_graph_module import _make_graph_module

        result = _make_graph_module(module, graph, class_name=type(module).__name__)
    result.meta.update(module.meta)
    for name, nested in module.named_children():
        if isinstance(nested, GraphModule):
            setattr(result, name, copy_graph_module(nested))
    return result


def copy_signature(signature: ExportGraphSignature) -> ExportGraphSignature:
    """Copy a signature down to the specs and their arguments, which editors change in place."""
    return ExportGraphSignature(
        input_specs=[copy_input_spec(spec) for spec in signature.input_specs],
        output_specs=[copy_output_spec(spec) for spec in signature.output_specs],
    )


def copy_input_spec(spec: InputSpec) -> InputSpec:
    """Copy one input spec and its argument."""
    return InputSpec(kind=spec.kind, arg=copy.copy(spec.arg), target=spec.target, persistent=spec.persistent)


def copy_output_spec(spec: OutputSpec) -> OutputSpec:
    """Copy one output spec and its argument."""
    return OutputSpec(kind=spec.kind, arg=copy.copy(spec.arg), target=spec.target)


def fake_mode_of(module: GraphModule) -> FakeTensorMode:
    """Return the fake tensor mode of a graph's metadata, or a new one where the graph has no fake tensor."""
    for node in module.graph.nodes:
        value = node.meta.get("val")
        for leaf in value if isinstance(value, list | tuple) else (value,):
            if isinstance(leaf, torch._subclasses.FakeTensor):
                return leaf.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True)

"""Copying `torch.export.ExportedProgram`s: graphs and signatures are copied, tensors are shared."""

from __future__ import annotations

import copy
from typing import Any

from torch._export.verifier import Verifier
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputSpec, OutputSpec
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module
from torch.fx.node import map_aggregate, map_arg

from exirkit.ir.operators.defined_operators import DefinedOperator
from exirkit.ir.operators.handles import EdgeOpOverload
from exirkit.ir.operators.memory_ops import free
from exirkit.ir.tensor_spec import TensorSpec

from .names import claim_names


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
        A program that has its own graphs, signature, tables and tensor specs, and shares every tensor.
    """
    result = copy.copy(program)
    result._graph_module = copy_graph_module(program.graph_module)
    result._graph_signature = copy_signature(program.graph_signature)
    result._state_dict = dict(program._state_dict)
    result._constants = dict(program._constants)
    result._range_constraints = dict(program._range_constraints)
    result._module_call_graph = list(program._module_call_graph)
    result._guards_code = list(program._guards_code)
    result._verifiers = list(program._verifiers) if verifier is None else [verifier]
    return result


def copy_graph_module(module: GraphModule) -> GraphModule:
    """Copy a graph module with its nested graphs and its tensor specs.

    Tensors and other submodules are shared. Nodes keep their names; nodes that share a spec share its copy.
    """
    return _copy_module(module, {})


_SpecCopies = dict[TensorSpec, TensorSpec]


def _copy_module(module: GraphModule, specs: _SpecCopies) -> GraphModule:
    # Code is generated when the module is called or printed, not once per copy.
    with _use_lazy_graph_module(True):
        result = _make_graph_module(module, _copy_graph(module.graph, specs), class_name=type(module).__name__)
    result.meta.update(module.meta)
    for name, nested in module.named_children():
        if isinstance(nested, GraphModule):
            setattr(result, name, _copy_module(nested, specs))
    return result


def _copy_graph(graph: Graph, specs: _SpecCopies) -> Graph:
    result = Graph(tracer_cls=graph._tracer_cls)
    result._codegen = copy.copy(graph._codegen)
    copies: dict[Node, Node] = {}
    for node in graph.nodes:
        args = map_arg(node._args, copies.__getitem__)
        kwargs = map_arg(node._kwargs, copies.__getitem__)
        if node.target is free:
            args = map_aggregate(args, lambda argument: _copy_specs(argument, specs))
        # Not `Graph.node_copy`, which cannot keep names that torch gives to inputs only, such as `input` or `max`.
        copied = Node(result, node.name, node.op, node.target, args, kwargs, node.type)
        copied.meta = node.meta.copy()
        if "spec" in copied.meta:
            copied.meta["spec"] = _copy_specs(copied.meta["spec"], specs)
        result._insert(copied)
        result._find_nodes_lookup_table.insert(copied)
        result._len += 1
        copies[node] = copied
    claim_names(result)
    return result


def _copy_specs(value: Any, specs: _SpecCopies) -> Any:
    """Copy a spec once, and the specs in lists; views follow the copy of what they are views of."""
    if isinstance(value, list | tuple):
        return type(value)(_copy_specs(one, specs) for one in value)
    if not isinstance(value, TensorSpec):
        return value
    if value not in specs:
        specs[value] = copy.copy(value)
        specs[value].storage_base = _copy_specs(value.storage_base, specs)
    return specs[value]


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
    """Return the fake tensor mode of a graph's metadata, or a new one where the graph has no fake tensor.

    Where a pass has brought in values of another mode, the one that knows symbolic sizes is the graph's.
    """
    found: FakeTensorMode | None = None
    for node in module.graph.nodes:
        value = node.meta.get("val")
        for leaf in value if isinstance(value, list | tuple) else (value,):
            if isinstance(leaf, FakeTensor):
                mode: FakeTensorMode = leaf.fake_mode
                if mode.shape_env is not None:
                    return mode
                found = found or mode
    return found or FakeTensorMode(allow_non_fake_inputs=True)

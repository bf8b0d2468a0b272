"""Operators and arguments that are legal in a dialect."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    EdgeOpOverload,
    called_graphs,
    locate,
    underlying,
)

# Not tagged as core by torch, but what its decompositions leave over, and known to every ExecuTorch runtime.
_ACCEPTED_IN_CORE = frozenset(
    {
        torch.ops.aten._upsample_bilinear2d_aa.default,
        torch.ops.aten.full_like.default,
        torch.ops.aten.max.default,
        torch.ops.aten.min.default,
        torch.ops.aten.mkldnn_rnn_layer.default,
        torch.ops.aten.quantize_per_tensor.default,
        torch.ops.aten.dequantize.self,
        torch.ops.aten.unfold.default,
        torch.ops.aten.var_mean.correction,
        torch.ops.aten.sym_size.int,
        torch.ops.aten.sym_stride.int,
        torch.ops.aten.sym_numel.default,
        torch.ops.aten.sym_storage_offset.default,
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._assert_tensor_metadata.default,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
        torch.ops.aten.scalar_tensor.default,
        torch.ops.aten.lift_fresh_copy.default,
    }
)

_ASSERTIONS = frozenset(
    {
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
    }
)


def check_aten_program(program: ExportedProgram, *, exceptions: Collection[Any] = ()) -> list[Diagnostic]:
    """Check that a program is functional and uses core ATen operators.

    Args:
        program: Program after decomposition.
        exceptions: Overloads that are accepted although they are not core.

    Returns:
        All findings (EK301: not core, EK302: writes to its arguments), in graph order.
    """
    findings: list[Diagnostic] = []
    for node in _calls(program.graph_module):
        op = node.target
        if not isinstance(op, OpOverload) or op in exceptions:
            continue
        if op._schema.is_mutable:
            findings.append(_writes(node, op))
        elif op.namespace == "aten" and not _is_core(op):
            findings.append(_not_core(node, op))
    return findings


def check_edge_program(program: ExportedProgram) -> list[Diagnostic]:
    """Check that the calls of a program are those of the Edge dialect.

    Returns:
        All findings (EK302: writes to its arguments, EK303: no edge operator, EK304: number in a tensor's place,
        EK305: no recorded value), in graph order.
    """
    findings: list[Diagnostic] = []
    for node in _calls(program.graph_module):
        findings.extend(_edge_findings(node))
    return findings


def _edge_findings(node: Node) -> Iterator[Diagnostic]:
    target = node.target
    if isinstance(target, OpOverload | DefinedOperator) and target not in _ASSERTIONS:
        yield Diagnostic(
            code="EK303",
            message=f"{target.name()} is no operator of the Edge dialect",
            location=locate(node),
            expected=f"the handle ops.edge.{getattr(target, '__name__', target)}",
            hint="passes on Edge programs call `exirkit.ops.edge...` instead of `torch.ops...`",
        )
    if isinstance(target, EdgeOpOverload):
        if target._schema.is_mutable:
            yield _writes(node, target)
        yield from _numbers_for_tensors(node)
    if "val" not in node.meta and target not in _ASSERTIONS:
        yield Diagnostic(
            code="EK305",
            message="node has no recorded value",
            location=locate(node),
            expected='a fake tensor in meta["val"]',
            hint="make nodes through the graph editor or ExportPass, which record it",
        )


def _numbers_for_tensors(node: Node) -> Iterator[Diagnostic]:
    arguments = underlying(node.target)._schema.arguments
    for argument, value in zip(arguments, node.args, strict=False):
        if isinstance(argument.type, torch.TensorType) and not isinstance(value, Node):
            yield Diagnostic(
                code="EK304",
                message=f"argument {argument.name} of {node.target} is {value!r} where a tensor must stand",
                location=locate(node),
                hint="lift the number to a constant tensor",
            )


def _calls(module: GraphModule) -> Iterator[Node]:
    for nested in called_graphs(module):
        for node in nested.graph.nodes:
            if node.op == "call_function" and not isinstance(node.target, HigherOrderOperator):
                yield node


def _is_core(op: OpOverload) -> bool:
    return torch.Tag.core in op.tags or torch.Tag.view_copy in op.tags or op in _ACCEPTED_IN_CORE


def _not_core(node: Node, op: OpOverload) -> Diagnostic:
    return Diagnostic(
        code="EK301",
        message=f"{op.name()} is not a core ATen operator",
        location=locate(node),
        notes=("torch has no decomposition for it, or it was preserved on purpose",),
        hint=f"if your runtime has a kernel: EdgeCompileConfig(_core_aten_ops_exception_list=[torch.ops.{op}])",
    )


def _writes(node: Node, op: Any) -> Diagnostic:
    return Diagnostic(
        code="EK302",
        message=f"{op.name()} writes to its arguments in a functional graph",
        location=locate(node),
        expected="an operator that returns its result",
        hint="export under torch.no_grad(), or use the functional form of the operator",
    )

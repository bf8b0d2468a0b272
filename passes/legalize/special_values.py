"""Operators that kernels compute otherwise than PyTorch does for NaN, zero divisors, and too few elements."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import GraphEditor, get_lifted_tensor_constant, is_external_constant, ops

from .edge_calls import CallLegalization, EdgeCalls

aten = ops.edge.aten
_GREATER, _LESS = aten.gt.Scalar, aten.lt.Scalar


class LegalizeSpecialValues(CallLegalization):
    """Replace calls for which the kernels of the official runtime treat special values otherwise than PyTorch does.

    - `sign` of NaN is 0, and not NaN.
    - `addmm` with `beta=0` ignores the addend, also where it is NaN or infinite: it is `mm`.
    - Quotients of floats rounded down are NaN for 0 / 0 and NaN / 0, and not infinite. Divisors that are stored, and of
      which none is 0, stay as they are.
    - A variance of no more elements than a correction beyond 1 is infinite, or NaN where all elements are equal.

    Not replaced: `max_pool2d` passes over NaN, which costs as much to find as the pooling itself.

    Before: `%y = aten.addmm.default(%z_f32_2x4, %a_f32_2x3, %b_f32_3x4, beta=0)`
    After: `%y = aten.mm.default(%a_f32_2x3, %b_f32_3x4)`
    """

    name = "legalize-special-values"

    def edit(self, editor: GraphEditor) -> None:
        """Replace the calls, in graph order."""
        for node in list(editor.graph.nodes):
            if self.concerns(node) and not _divides_by_no_zero(editor.program, node):
                self.put(editor, node)

    def made(self, calls: EdgeCalls) -> Node:
        """Compute what PyTorch computes."""
        node = calls.node
        dtype = node.meta["val"].dtype
        if node.target is aten.addmm.default:
            first, second, factor = calls.given("mat1", "mat2", "alpha")
            product = calls(aten.mm.default, first, second)
            return product if factor == 1 else calls(aten.mul.Scalar, product, factor)
        if node.target is aten.var.correction:
            return _variance_of_few(calls)
        if node.target is aten.sign.default:
            (source,) = calls.given("self")
            is_positive, is_negative = (calls.cast(calls(one, source, 0), dtype) for one in (_GREATER, _LESS))
            return calls(aten.sub.Tensor, is_positive, is_negative)
        dividend, divisor = (calls.cast(one, dtype) for one in calls.given("self", "other"))
        is_zero = calls(aten.eq.Scalar, divisor, 0)
        other = calls(aten.where.self, is_zero, calls(aten.full.default, [], 1.0, dtype=dtype), divisor)
        rounded = calls(aten.div.Tensor_mode, dividend, other, rounding_mode="floor")
        return calls(aten.where.self, is_zero, calls(aten.div.Tensor, dividend, divisor), rounded)

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node, if a divisor is not known."""
        target = node.target
        if target is aten.addmm.default:
            return bool(node.kwargs.get("beta", 1) == 0)
        if target is aten.sign.default or target is aten.div.Tensor_mode:
            rounds_down = target is aten.sign.default or node.kwargs.get("rounding_mode") == "floor"
            return rounds_down and bool(node.meta["val"].dtype.is_floating_point)
        return target is aten.var.correction and _is_of_few(node)


def _divides_by_no_zero(program: ExportedProgram, node: Node) -> bool:
    if node.target is not aten.div.Tensor_mode:
        return False
    divisor: Any = node.args[1]
    if divisor.target is aten.where.self and divisor.args[0].target is aten.eq.Scalar:
        # What this pass makes.
        divisor = divisor.args[1] if divisor.args[0].args == (divisor.args[2], 0) else divisor
    if divisor.target is aten.full.default:
        return isinstance(divisor.args[1], int | float) and divisor.args[1] != 0
    # A data file may give it another value.
    is_fixed = divisor.op == "placeholder" and not is_external_constant(divisor)
    stored = get_lifted_tensor_constant(program, divisor) if is_fixed else None
    return stored is not None and bool((stored != 0).all())


def _is_of_few(node: Node) -> bool:
    source: Any = node.args[0]
    correction: Any = node.kwargs.get("correction")
    if correction is None or correction <= 1:
        # No element, and one with the usual correction, are NaN there too.
        return False
    count = math.prod(_reduced(source.meta["val"].shape, node.args[1] if len(node.args) > 1 else None))
    return isinstance(count, int) and count <= correction


def _reduced(shape: torch.Size, dims: Any) -> list[Any]:
    return [shape[dim] for dim in dims] if dims else list(shape)


def _variance_of_few(calls: EdgeCalls) -> Node:
    """Return the sum of squares, divided by zero."""
    source, dims, keepdim = calls.given("self", "dim", "keepdim")
    dims = dims or list(range(source.meta["val"].ndim))
    difference = calls(aten.sub.Tensor, source, calls(aten.mean.dim, source, dims, True))
    squares = calls(aten.mul.Tensor, difference, difference)
    return calls(aten.mul.Scalar, calls(aten.sum.dim_IntList, squares, dims, keepdim), math.inf)

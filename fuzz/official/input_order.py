"""Inputs in the dim order that a method takes.

The official runtime copies the bytes of an input and never compares dim orders: one in another order is read as if it
had that of the method. Sizes of one have any order, so that example inputs need not show the order that others have.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from exirkit.emit import read_program
from exirkit.ir import DiagnosticError

from .wire import Value


def in_order_of_method(pte: bytes, method: str, calls: Sequence[Sequence[Value]]) -> Sequence[Sequence[Value]]:
    """Return the inputs of calls with their elements in memory as the method of a program reads them.

    Programs and inputs that do not fit are left to the runtime, which says so.
    """
    # Below rank 3 no exporter makes anything but rows.
    if not any(isinstance(one, torch.Tensor) and one.dim() > 2 for call in calls for one in call):
        return calls
    try:
        plans = read_program(pte).program.execution_plan
    except DiagnosticError:
        return calls
    orders = [_order(plan.values[index].val) for plan in plans if plan.name == method for index in plan.inputs]
    return [
        [_laid_out(one, order) for one, order in zip(call, orders, strict=True)] if len(call) == len(orders) else call
        for call in calls
    ]


def _order(value: object) -> list[int]:
    return list(getattr(value, "dim_order", ()))


def _laid_out(value: Value, order: list[int]) -> Value:
    if not isinstance(value, torch.Tensor) or sorted(order) != list(range(value.dim())):
        return value
    return value.permute(order).contiguous().permute([order.index(dim) for dim in range(value.dim())])

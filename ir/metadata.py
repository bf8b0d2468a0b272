"""What a node computes, as fake tensors: inference for new nodes, and comparison of old with new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Node
from torch.fx.node import map_arg

# Numbers that a node stands for: compared by expression, never by value, because comparing values adds a guard.
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def infer_value(mode: FakeTensorMode, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operator on the recorded values of its arguments.

    Args:
        mode: Fake tensor mode of the graph.
        target: Any callable graph target.
        args: Arguments as in the graph, nodes included.
        kwargs: Keyword arguments as in the graph.

    Returns:
        A fake tensor, a tuple or list of them, or a symbolic number.
    """
    values, named = map_arg((tuple(args), dict(kwargs)), lambda node: node.meta["val"])
    with mode, torch.no_grad():
        return target(*values, **named)


def same_value(left: Any, right: Any) -> bool:
    """Tell whether two recorded values agree in structure, dtype, shape, layout and strides, without adding guards."""
    if left is right:
        return True
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return (
            left.dtype == right.dtype
            and left.layout == right.layout
            and left.device == right.device
            and same_argument(tuple(left.shape), tuple(right.shape))
            and (left.layout is not torch.strided or same_argument(left.stride(), right.stride()))
        )
    return same_argument(left, right)


def same_argument(left: Any, right: Any) -> bool:
    """Tell whether two graph arguments are the same, exact in type: 1, 1.0 and True are three things."""
    if left is right:
        return True
    if isinstance(left, _SYMBOLIC) or isinstance(right, _SYMBOLIC):
        return _expression(left) == _expression(right) and _is_number(left) and _is_number(right)
    if type(left) is not type(right):
        return _is_sequence(left) and _is_sequence(right) and _same_items(left, right)
    if isinstance(left, list | tuple):
        return _same_items(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and _same_items(list(left.values()), list(right.values()))
    if isinstance(left, slice):
        return _same_items((left.start, left.stop, left.step), (right.start, right.stop, right.step))
    if isinstance(left, torch.Tensor):
        return isinstance(left, FakeTensor) and same_value(left, right)
    if isinstance(left, float):
        # NaN equals itself here, and -0.0 is not 0.0.
        return left.hex() == right.hex()
    return bool(left == right)


def _same_items(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(map(same_argument, left, right))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)


def _expression(value: Any) -> Any:
    return value.node.expr if isinstance(value, _SYMBOLIC) else value


def has_unbacked_symbols(node: Node) -> bool:
    """Tell whether the node creates a size that only its data decides, so that running it again would invent another."""
    return bool(node.meta.get("unbacked_bindings"))

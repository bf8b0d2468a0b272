"""Recorded values of nodes: comparison of old with new, attributes that nodes name, empty meta tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch._subclasses import FakeTensor
from torch.fx import Node

# Numbers that a node stands for: compared by expression, never by value, because comparing values adds a guard.
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_static(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a strided tensor without symbolic sizes."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return all(type(number) is int for number in (*value.shape, *value.stride(), value.storage_offset()))


def same_value(left: Any, right: Any) -> bool:
    """Return whether recorded values agree in structure, dtype, shape, layout and strides, without adding guards."""
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
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    return same_argument(left, right)


def same_argument(left: Any, right: Any) -> bool:
    """Return whether two graph arguments are the same, exact in type: 1, 1.0 and True are three things.

    Lists and tuples of the same items are the same, as they are to operators. Real tensors are the same only if they
    are one object; fake tensors if they are the same value.
    """
    if left is right:
        return True
    if isinstance(left, _SYMBOLIC) or isinstance(right, _SYMBOLIC):
        return _kind(left) is not None and _kind(left) is _kind(right) and bool(_expression(left) == _expression(right))
    if isinstance(left, list | tuple):
        return isinstance(right, list | tuple) and _same_items(left, right)
    if isinstance(left, dict):
        return isinstance(right, dict) and _same_items(tuple(left.items()), tuple(right.items()))
    if isinstance(left, torch.Tensor):
        return isinstance(left, FakeTensor) and isinstance(right, FakeTensor) and same_value(left, right)
    return type(left) is type(right) and _same_plain(left, right)


def _same_items(left: Sequence[Any], right: Sequence[Any]) -> bool:
    if len(left) != len(right):
        return False
    # Nodes and most sizes are one object; a loop, since a generator costs as much as the comparisons.
    for one, other in zip(left, right, strict=True):  # noqa: SIM110
        if one is not other and not same_argument(one, other):
            return False
    return True


def _same_plain(left: Any, right: Any) -> bool:
    if isinstance(left, slice):
        return _same_items((left.start, left.stop, left.step), (right.start, right.stop, right.step))
    if isinstance(left, float):
        # NaN equals itself here, and -0.0 is not 0.0.
        return bool(left.hex() == right.hex())
    if isinstance(left, complex):
        return (left.real.hex(), left.imag.hex()) == (right.real.hex(), right.imag.hex())
    try:
        return bool(left == right)
    except (RuntimeError, TypeError, ValueError):
        # Arrays and the like, which answer element by element.
        return False


def _kind(value: Any) -> type | None:
    for kind, types in ((bool, (bool, torch.SymBool)), (int, (int, torch.SymInt)), (float, (float, torch.SymFloat))):
        if isinstance(value, types):
            return kind
    return None


def _expression(value: Any) -> Any:
    return value.node.expr if isinstance(value, _SYMBOLIC) else value


def has_unbacked_symbols(node: Node) -> bool:
    """Return whether the node creates a size that only its data decides, so running it again would invent another."""
    return bool(node.meta.get("unbacked_bindings"))


def attribute_of(node: Node) -> Any:
    """Return what a `get_attr` or `call_module` node names, or None if nothing is there."""
    return attribute_at(node.graph.owning_module, str(node.target))


def attribute_at(module: Any, path: str) -> Any:
    """Return the attribute of a module under a dotted path, or None."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def empty_meta_tensor(dtype: torch.dtype, sizes: Any, strides: Any, offset: Any = 0) -> torch.Tensor:
    """Return a tensor without memory; sizes, strides and offset may be symbolic.

    Takes a tenth of the time of an operator that makes it under a fake tensor mode.
    """
    with torch._C._DisableTorchDispatch():
        empty = torch.empty_strided(tuple(sizes), tuple(strides), dtype=dtype, device="meta")
        # To ask whether a symbolic offset is 0 would add a guard.
        return empty if type(offset) is int and not offset else empty.as_strided(tuple(sizes), tuple(strides), offset)


def value_of(argument: Any) -> Any:
    """Return the recorded value of a graph argument; what is not a node is its own value."""
    return argument.meta.get("val") if isinstance(argument, Node) else argument

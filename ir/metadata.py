"""What a node computes, as fake tensors: inference, and comparison of old with new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeGuard

import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Node
from torch.fx.node import map_aggregate

from .diagnostics import Diagnostic, ModelError
from .provenance import locate

# Numbers that a node stands for: compared by expression, never by value, because comparing values adds a guard.
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def infer_value(mode: FakeTensorMode, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operator on the recorded values of its arguments.

    The sizes of a program are promises made to its users, so an operator that has a value only under a further
    condition on them (`s0 == 4`) is refused; no guard is ever added.

    Args:
        mode: Fake tensor mode of the graph; real tensors and those of other modes are taken over into it.
        target: Any callable graph target.
        args: Arguments as in the graph, nodes included.
        kwargs: Keyword arguments as in the graph.

    Returns:
        A fake tensor, a tuple or list of them, a number, or None.

    Raises:
        ModelError: EK112, an argument is a node without a recorded value.
        Exception: Whatever the operator raises if it does not take the arguments.
    """
    schema = getattr(target, "_schema", None)
    take = partial(_private if schema is not None and schema.is_mutable else _recorded, mode)
    values: Any = map_aggregate((tuple(args), dict(kwargs)), take)
    env = mode.shape_env
    with nullcontext() if env is None else env.error_on_new_guards(), mode, torch.no_grad():
        return target(*values[0], **values[1])


def _recorded(mode: FakeTensorMode, argument: Any) -> Any:
    if isinstance(argument, Node):
        value = argument.meta.get("val")
        if value is None and argument.op == "get_attr" and argument.graph.owning_module is not None:
            # Bodies of control flow: arguments of higher-order operators, which run them.
            value = _attribute(argument.graph.owning_module, str(argument.target))
        elif value is None and "val" not in argument.meta:
            raise ModelError(
                Diagnostic(code="EK112", message=f"%{argument.name} has no recorded value", location=locate(argument))
            )
        return _in_mode(mode, value)
    return _in_mode(mode, argument) if isinstance(argument, torch.Tensor) else argument


def _private(mode: FakeTensorMode, argument: Any) -> Any:
    # An operator that writes may resize what it writes to, and the recorded value must not change with it.
    value = _recorded(mode, argument)
    return fake_like(mode, value) if isinstance(value, torch.Tensor) and value.layout is torch.strided else value


def _in_mode(mode: FakeTensorMode, value: Any) -> Any:
    if isinstance(value, FakeTensor):
        return value if value.fake_mode is mode else fake_like(mode, value)
    if isinstance(value, torch.Tensor):
        return mode.from_tensor(value, static_shapes=True)
    if isinstance(value, list | tuple):
        return type(value)(_in_mode(mode, one) for one in value)
    return value


def _attribute(module: torch.nn.Module, path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name)
    return value


def fake_like(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor of the same dtype, shape, strides and device, with memory of its own."""
    if not is_static(tensor):
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    # Making it by hand takes a tenth of the time of running an operator under the mode.
    with torch._C._DisableTorchDispatch():
        memory = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return FakeTensor(mode, memory, tensor.device)


def is_static(value: Any) -> TypeGuard[torch.Tensor]:
    """Tell whether a value is a strided tensor without symbolic sizes."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return all(type(number) is int for number in (*value.shape, *value.stride(), value.storage_offset()))


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
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    return same_argument(left, right)


def same_argument(left: Any, right: Any) -> bool:
    """Tell whether two graph arguments are the same, exact in type: 1, 1.0 and True are three things.

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
    return len(left) == len(right) and all(map(same_argument, left, right))


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
    """Tell whether the node creates a size that only its data decides, so running it again would invent another."""
    return bool(node.meta.get("unbacked_bindings"))

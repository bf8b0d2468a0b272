"""Running operators on fake tensors: what a call computes, told from what is recorded of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import disable_fake_tensor_cache
from torch.fx import Node
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from exirkit.ir.diagnostics import Diagnostic, ModelError
from exirkit.ir.graph.metadata import is_static, same_argument
from exirkit.ir.operators.edge_operators import underlying
from exirkit.ir.provenance import locate

from .kernels import quick_value
from .meta_tensors import bare_tensor
from .view_copies import infer_view_copy, view_of_copy


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
    if target is torch.ops.aten.copy_.default and _is_plain_copy(values[0]):
        return values[0][0]
    env = mode.shape_env
    view = view_of_copy(underlying(target))
    with nullcontext() if env is None else env.error_on_new_guards(), mode, torch.no_grad():
        if _all_static(values):
            return target(*values[0], **values[1])
        # Questions about symbols of one program hardly come twice, and torch takes longer to remember than to answer.
        with disable_fake_tensor_cache(mode):
            if view is not None:
                return infer_view_copy(view, *values)
            # Composite operators such as `constant_pad_nd` ask for numbers, but for their decompositions in Python.
            with enable_python_dispatcher():
                return target(*values[0], **values[1])


def _is_plain_copy(args: Sequence[Any]) -> bool:
    """Tell whether a tensor is copied into one of its own sizes, so that torch need not be asked whether it fits."""
    tensors = [one for one in args[:2] if isinstance(one, torch.Tensor)]
    return len(tensors) == 2 and same_argument(tuple(tensors[0].shape), tuple(tensors[1].shape))


def infer_static_value(mode: FakeTensorMode, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what `infer_value` does, in a tenth of the time; None where sizes vary or only fake tensors can tell.

    Args:
        mode: Fake tensor mode of the result.
        target: Any callable graph target.
        args: Arguments as in the graph, nodes included.
        kwargs: Keyword arguments as in the graph.
    """
    with torch._C._DisableTorchDispatch():
        value = quick_value(target, tuple(args), dict(kwargs))
    return None if value is None else map_aggregate(value, partial(_as_fake, mode))


def _as_fake(mode: FakeTensorMode, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    bare = bare_tensor(value.dtype, value.shape, value.stride(), value.storage_offset())
    return FakeTensor(mode, bare, torch.device("cpu"))


def _all_static(values: Any) -> bool:
    return all(
        is_static(leaf) if isinstance(leaf, torch.Tensor) else not isinstance(leaf, torch.SymInt)
        for leaf in pytree.tree_leaves(values)
    )


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
    # Making it by hand takes a tenth of the time of running an operator under the mode.
    return FakeTensor(mode, bare_tensor(tensor.dtype, tensor.shape, tensor.stride()), tensor.device)

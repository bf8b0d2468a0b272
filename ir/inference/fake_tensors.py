"""Running operators on fake tensors: values with symbolic sizes, without a further condition on these.

torch infers `permute_copy` and its kind by a view and a copy of it, and compares strides on the way: a guard on sizes
on which no result depends. Here the view is inferred, and the copy is row-major, as the kernels make it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from exirkit.ir.analysis import attribute_of, is_static, same_argument
from exirkit.ir.diagnostics import Diagnostic, ModelError
from exirkit.ir.operators.handles import underlying
from exirkit.ir.provenance import locate
from exirkit.ir.tensor_spec import contiguous_stride, empty_meta_tensor
from exirkit.ir.torch_internals import (
    TORCH_LOGGERS,
    FakeTensor,
    FakeTensorMode,
    HigherOrderOperator,
    OpOverload,
    disable_fake_tensor_cache,
    enable_python_dispatcher,
    make_fake_tensor,
    pytree,
    sizes_are_not_one,
)

_RESHAPES = (torch.ops.aten.reshape.default, torch.ops.aten.reshape_as.default)

# What it shows depends on where its source lies in memory.
_BY_ADDRESS = torch.ops.aten.as_strided_copy.default


def infer_value(mode: FakeTensorMode, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operator on the recorded values of its arguments.

    The sizes of a program are promises made to its users, so an operator that has a value only under a further
    condition on them (`s0 == 4`) is rejected; no guard is ever added.

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
    try:
        return _called(mode, target, values)
    except Exception:
        # What torch asks of strides, no result depends on.
        with suppress(Exception):
            if isinstance(underlying(target), HigherOrderOperator):
                return _called(mode, target, _row_by_row(values))
            if _has_one_shape(underlying(target), values):
                with sizes_are_not_one():
                    return _called(mode, target, _row_by_row(values))
        raise


def _called(mode: FakeTensorMode, target: Any, values: Any) -> Any:
    """Return what an operator makes of fake tensors."""
    env = mode.shape_env
    view = view_of_copy(underlying(target))
    with nullcontext() if env is None else env.error_on_new_guards(), mode, torch.no_grad():
        if _all_static(values):
            return target(*values[0], **values[1])
        # Calls on symbols of one program hardly repeat, and torch's cache takes longer than inferring.
        with disable_fake_tensor_cache(mode):
            if view is not None:
                return infer_view_copy(view, *values)
            if target in _RESHAPES and (shown := _reshaped(*values[0])) is not None:
                return shown
            # Composite operators such as `constant_pad_nd` need numbers, except for their decompositions in Python.
            with enable_python_dispatcher():
                return target(*values[0], **values[1])


def _row_by_row(values: Any) -> Any:
    """Return arguments with tensors that lie row by row: torch compares strides of what branches and loops give."""
    return pytree.tree_map_only(FakeTensor, _row_major, values)


def _has_one_shape(op: Any, values: Any) -> bool:
    """Return whether a call is of each element alone, so that its result has the shape of its operands in any case.

    torch decides how such a result lies by whether sizes are 1, which is a guard. What other operators make of a size
    that can be 1 may depend on that: a dim is squeezed or stays, a tensor is repeated or not.
    """
    shapes = [tuple(leaf.shape) for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    is_elementwise = isinstance(op, OpOverload) and torch.Tag.pointwise in op.tags and not op._schema.is_mutable
    return is_elementwise and bool(shapes) and all(same_argument(shapes[0], one) for one in shapes)


def _is_plain_copy(args: Sequence[Any]) -> bool:
    """Return whether a tensor is copied into one of its own sizes, so that nothing is to infer."""
    tensors = [one for one in args[:2] if isinstance(one, torch.Tensor)]
    return len(tensors) == 2 and same_argument(tuple(tensors[0].shape), tuple(tensors[1].shape))


def _all_static(values: Any) -> bool:
    return all(
        is_static(leaf) if isinstance(leaf, torch.Tensor) else not isinstance(leaf, torch.SymInt)
        for leaf in pytree.tree_leaves(values)
    )


def _recorded(mode: FakeTensorMode, argument: Any) -> Any:
    if isinstance(argument, Node):
        value = argument.meta.get("val")
        if value is None and argument.op == "get_attr" and argument.graph.owning_module is not None:
            # Subgraphs of control flow: arguments of higher-order operators, which run them.
            value = attribute_of(argument)
        elif value is None and "val" not in argument.meta:
            raise ModelError(
                Diagnostic.of("EK112", f"%{argument.name} has no recorded value", location=locate(argument))
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


def fake_like(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor of the same dtype, shape, strides and device, with memory of its own."""
    return make_fake_tensor(mode, empty_meta_tensor(tensor.dtype, tensor.shape, tensor.stride()), tensor.device)


@cache
def view_of_copy(op: Any) -> OpOverload | None:
    """Return the view whose result the operator copies, `aten.permute` for `aten.permute_copy`, or None."""
    if not isinstance(op, OpOverload) or op is _BY_ADDRESS or torch.Tag.view_copy not in op.tags:
        return None
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_copy"), None)
    view = getattr(packet, op._overloadname, None)
    return view if isinstance(view, OpOverload) and view is not op else None


def infer_view_copy(view: OpOverload, args: Any, kwargs: Any) -> Any:
    """Return the copy of what a view of fake tensors shows; called under their mode."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, _row_major, (args, kwargs))
    if view is torch.ops.aten.view.default and (sizes := _resolved(*args)) is not None:
        return _empty(args[0], sizes)
    if view is torch.ops.aten.select.int and not isinstance(args[0].shape[args[1]], int):
        # torch checks that the selected part ends inside of the memory, which is undecided for products of sizes.
        dim = args[1] % args[0].dim()
        return _empty(args[0], [*args[0].shape[:dim], *args[0].shape[dim + 1 :]])
    return pytree.tree_map_only(torch.Tensor, _row_major, view(*args, **kwargs))


def _reshaped(source: torch.Tensor, wanted: torch.Tensor | Sequence[Any]) -> torch.Tensor | None:
    """Return a tensor that lies row by row in other sizes; None where torch has to decide.

    torch asks whether a size is -1, which is undecided for some sums and quotients of symbols.
    """
    if not same_argument(tuple(source.stride()), tuple(contiguous_stride(source.shape))):
        return None
    sizes = _resolved(source, wanted.shape if isinstance(wanted, torch.Tensor) else wanted)
    return None if sizes is None else _empty(source, sizes)


def _resolved(source: torch.Tensor, sizes: Sequence[Any]) -> list[Any] | None:
    """Return the sizes of a view with the -1 among them worked out, or None where that takes a guard.

    torch compares old and new sizes before it compares numbers of elements, which adds a guard.
    """
    free = [place for place, size in enumerate(sizes) if type(size) is int and size == -1]
    known = math.prod(size for place, size in enumerate(sizes) if place not in free)
    if len(free) > 1 or same_argument(known, 0) or any(type(size) is int and size < -1 for size in sizes):
        return None
    resolved = list(sizes)
    for place in free:
        resolved[place] = source.numel() // known
    return resolved if same_argument(math.prod(resolved), source.numel()) else None


def _row_major(value: torch.Tensor) -> torch.Tensor:
    return _empty(value, value.shape)


def _empty(like: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    assert isinstance(like, FakeTensor)
    return make_fake_tensor(like.fake_mode, empty_meta_tensor(like.dtype, sizes, contiguous_stride(sizes)), like.device)


# torch logs failures before it raises them, also those that are caught here.
_TORCH_LOGS = tuple(logging.getLogger(name) for name in TORCH_LOGGERS)


@contextmanager
def no_torch_logs() -> Iterator[None]:
    """Keep torch from logging what is raised and caught here."""
    were_disabled = [log.disabled for log in _TORCH_LOGS]
    for log in _TORCH_LOGS:
        log.disabled = True
    try:
        yield
    finally:
        for log, was_disabled in zip(_TORCH_LOGS, were_disabled, strict=True):
            log.disabled = was_disabled


@contextmanager
def no_new_guards(mode: FakeTensorMode) -> Iterator[None]:
    """Let torch raise a `RuntimeError` where a symbolic size would become a number."""
    env = mode.shape_env
    with no_torch_logs(), nullcontext() if env is None else env.error_on_new_guards():
        yield

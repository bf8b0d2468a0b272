"""What meta kernels return for static sizes, which is what fake tensors would, in a tenth of the time.

Fake tensors ask in which memory format a processor would compute, among much else. Most operators never depend on that,
so their meta kernels return the same. Where those are written in Python, and the operator works element by element,
computing with ones is faster still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from exirkit.ir.operators.handles import DefinedOperator, underlying, view
from exirkit.ir.tensor_spec import empty_meta_tensor
from exirkit.ir.torch_internals import FakeTensorMode, OpOverload, disable_torch_dispatch, make_fake_tensor

# Their results on a processor have other strides or sizes than the meta kernels return, or come from other kernels.
_PARTICULAR = ("conv", "batch_norm", "attention", "mkldnn", "lstm", "gru", "rnn", "cudnn", "miopen", "as_strided")

_MOST_COMPUTED = 1 << 14
"""Elements of the largest tensor of ones."""

# torch computes their shapes in Python, which takes longer than computing small results.
_IN_PYTHON = frozenset(
    f"aten::{name}"
    for name in (
        "_log_softmax", "_softmax", "addmm", "clone", "cumsum", "gelu", "glu", "grid_sampler_2d", "hardtanh",
        "layer_norm", "linear", "logsumexp", "max_pool2d_with_indices", "native_group_norm", "native_layer_norm",
        "upsample_bilinear2d", "upsample_nearest2d", "var_mean", "where",
    )
)  # fmt: skip


class _NeedsFakeTensorsError(Exception):
    """A value whose sizes or strides only fake tensors handle."""


class _LargeError(Exception):
    """A value too large to compute with."""


def meta_value(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a call as tensors of the right sizes, or None where fake tensors are needed.

    Args:
        target: An operator.
        args: Arguments as in a graph; nodes have recorded values.
        kwargs: Keyword arguments as in a graph.
    """
    target = underlying(target)
    known = _KNOWN.get(id(target))
    if known is None and not has_meta_value(target):
        return None
    try:
        values: Any = map_aggregate((tuple(args), dict(kwargs)), _as_meta)
        if known is not None:
            return known(*values[0], **values[1])
        given = values[1] if _takes_tensors(target) else {**values[1], "device": "meta"}
        with torch.no_grad():
            if is_faster_on_ones(target):
                return _computed(target, values[0], given)
            return target(*values[0], **given)
    except Exception:
        # Whatever is wrong, fake tensors report it in the words that users of torch know.
        return None


@lru_cache(maxsize=4096)
def shared_meta_tensor(
    dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> torch.Tensor:
    """Return a tensor that operators read and never write to, so that one does for all values of its layout."""
    return empty_meta_tensor(dtype, sizes, strides, offset)


def _normalized(source: torch.Tensor, *parameters: Any) -> tuple[torch.Tensor, ...]:
    """Return the results of a batch norm with given statistics, for which torch would run a dozen fake operators.

    The last two are empty on a processor.

    Raises:
        _NeedsFakeTensorsError: Types may be mixed, or something does not fit.
    """
    *tensors, _, _ = parameters
    given = [one for one in tensors if one is not None]
    channels = source.shape[1:2]
    fits = all(one.shape == channels and one.dtype is source.dtype is torch.float32 for one in given)
    if not (fits and len(tensors) == 4 and not any(one is None for one in tensors[2:]) and _is_row_major(source)):
        raise _NeedsFakeTensorsError
    return torch.empty_like(source), source.new_empty(0), source.new_empty(0)


def _convolved(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Return the result of a convolution, for which torch would choose a kernel and ask it for its order of dims.

    Raises:
        _NeedsFakeTensorsError: The order of dims is not the usual one, or something does not fit.
    """
    count = source.dim() - 2
    steps = [[*one] * count if len(one) == 1 else [*one] for one in (stride, padding, dilation, output_padding)]
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    taken = weight.shape[0] if transposed else weight.shape[1] * groups
    tensors = [source, weight] if bias is None else [source, weight, bias]
    fits = (
        count > 0
        and weight.dim() == source.dim()
        and source.shape[1] == taken
        and weight.shape[0] % groups == 0
        and (bias is None or bias.shape == (channels,))
        and all(one.dtype is torch.float32 and _is_row_major(one) for one in tensors)
        and all(len(one) == count for one in steps)
        and min(*steps[0], *steps[2]) > 0
        and min(*steps[1], *steps[3]) >= 0
    )
    if not fits:
        raise _NeedsFakeTensorsError
    sizes = [
        (size - 1) * step - 2 * pad + spread * (kernel - 1) + more + 1
        if transposed
        else (size + 2 * pad - spread * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, spread, more in zip(source.shape[2:], weight.shape[2:], *steps, strict=True)
    ]
    if min(sizes) <= 0:
        raise _NeedsFakeTensorsError
    return source.new_empty((source.shape[0], channels, *sizes))


_KNOWN: dict[int, Callable[..., Any]] = {
    id(torch.ops.aten._native_batch_norm_legit_no_training.default): _normalized,
    id(torch.ops.aten.convolution.default): _convolved,
}
"""What is worked out here because torch takes long for it, by the identity of the operator, which lives for ever."""


@lru_cache(maxsize=4096)
def has_meta_value(target: Any) -> bool:
    """Return whether meta kernels of an operator return what fake tensors would."""
    if isinstance(target, DefinedOperator):
        return target._schema.name.startswith("dim_order_ops::") and not target._schema.is_mutable
    if not isinstance(target, OpOverload):
        return target is view
    if not target._schema.name.startswith(("aten::", "quantized_decomposed::")) or target._schema.is_mutable:
        return False
    is_particular = any(part in target._schema.name for part in _PARTICULAR)
    return not is_particular and torch.Tag.data_dependent_output not in target.tags


@lru_cache(maxsize=4096)
def is_faster_on_ones(target: Any) -> bool:
    """Return whether computing with a few ones returns what meta kernels do, and sooner."""
    if not isinstance(target, OpOverload):
        return False
    return _is_pointwise(target) or target._schema.name in _IN_PYTHON


def _is_pointwise(op: OpOverload) -> bool:
    # torch has forgotten to tag the one.
    return torch.Tag.pointwise in op.tags or op is torch.ops.aten.hardswish.default


@lru_cache(maxsize=4096)
def _takes_tensors(target: Any) -> bool:
    if target is view:
        return True
    names = [one.name for one in target._schema.arguments]
    return "device" not in names or any("Tensor" in str(one.type) for one in target._schema.arguments)


def _as_meta(argument: Any) -> Any:
    """Return an argument with meta tensors for nodes."""
    value = argument.meta.get("val") if isinstance(argument, Node) else argument
    if isinstance(value, torch.Tensor):
        if type(value) is not torch.Tensor or value.device.type != "meta":
            if not all(type(one) is int for one in (*value.shape, *value.stride())):
                raise _NeedsFakeTensorsError
            value = shared_meta_tensor(value.dtype, tuple(value.shape), value.stride(), value.storage_offset())
        # A processor keeps memory formats that some meta kernels forget, and strides of empty tensors are arbitrary.
        if value.numel() == 0 or (value.dim() > 3 and not _is_row_major(value)):
            raise _NeedsFakeTensorsError
        return value
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise _NeedsFakeTensorsError
    return value


def _is_row_major(value: torch.Tensor) -> bool:
    """Return whether strides are those of a new tensor, in dims of one element too: others are taken for a format."""
    step = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if stride != step:
            return False
        step *= size
    return True


def _with_ones(argument: Any) -> Any:
    """Return a tensor of ones for a meta tensor; dividing by ones is not an error."""
    if not isinstance(argument, torch.Tensor):
        return argument
    last = sum((size - 1) * stride for size, stride in zip(argument.shape, argument.stride(), strict=True))
    length = argument.storage_offset() + max(last, 0) + 1
    if length > _MOST_COMPUTED:
        raise _LargeError
    ones = torch.ones(length, dtype=argument.dtype)
    return ones.as_strided(argument.shape, argument.stride(), argument.storage_offset())


def _computed(target: Any, args: Any, kwargs: Any) -> Any:
    try:
        return target(*map_aggregate(args, _with_ones), **map_aggregate(kwargs, _with_ones))
    except _LargeError:
        found = _as_one_element(target, args, kwargs) if _is_pointwise(target) else None
        return target(*args, **kwargs) if found is None else found


def _as_one_element(target: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """Return the result of a pointwise operator, whose dtype is that of one element; None where that is not all."""
    shapes: list[torch.Size] = []
    is_usual = kwargs.get("memory_format") is None

    def one_element(argument: Any) -> Any:
        nonlocal is_usual
        if not isinstance(argument, torch.Tensor):
            return argument
        shapes.append(argument.shape)
        is_usual &= _is_row_major(argument)
        return torch.ones((1,) * argument.dim(), dtype=argument.dtype)

    result = target(*map_aggregate(args, one_element), **map_aggregate(kwargs, one_element))
    if not is_usual or not isinstance(result, torch.Tensor):
        return None
    return torch.empty(torch.broadcast_shapes(*shapes), dtype=result.dtype, device="meta")


def infer_static_value(mode: FakeTensorMode, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what `infer_value` does, in a tenth of the time; None where sizes are symbolic or need fake tensors.

    Args:
        mode: Fake tensor mode of the result.
        target: Any callable graph target.
        args: Arguments as in the graph, nodes included.
        kwargs: Keyword arguments as in the graph.
    """
    with disable_torch_dispatch():
        value = meta_value(target, tuple(args), dict(kwargs))
    return None if value is None else map_aggregate(value, partial(_as_fake, mode))


def _as_fake(mode: FakeTensorMode, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    empty = empty_meta_tensor(value.dtype, value.shape, value.stride(), value.storage_offset())
    return make_fake_tensor(mode, empty, torch.device("cpu"))

"""The kernel strategy: what operators return for static sizes, from their meta kernels alone.

Fake tensors ask in which memory format a processor would compute, among much else, and take ten times as long. Most
operators never depend on that, so their meta kernels return the same. Where those are written in Python, and the
operator works element by element, computing with ones is faster still.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from exirkit.ir.graph.metadata import empty_meta_tensor
from exirkit.ir.operators.defined_operators import DefinedOperator, view
from exirkit.ir.operators.handles import underlying

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
    if not has_meta_value(target):
        return None
    try:
        values: Any = map_aggregate((tuple(args), dict(kwargs)), _as_meta)
        given = values[1] if _takes_tensors(target) else {**values[1], "device": "meta"}
        with torch.no_grad():
            if is_faster_on_ones(target):
                return _computed(target, values[0], given)
            return target(*values[0], **given)
    except Exception:
        # Whatever is wrong, fake tensors report it in the words that users of torch know.
        return None


@lru_cache(maxsize=4096)
def has_meta_value(target: Any) -> bool:
    """Return whether meta kernels of an operator return what fake tensors would."""
    if isinstance(target, DefinedOperator):
        return target._schema.name.startswith("dim_order_ops::") and not target._schema.is_mutable
    if not isinstance(target, torch._ops.OpOverload):
        return target is view
    if not target._schema.name.startswith(("aten::", "quantized_decomposed::")) or target._schema.is_mutable:
        return False
    is_particular = any(part in target._schema.name for part in _PARTICULAR)
    return not is_particular and torch.Tag.data_dependent_output not in target.tags


@lru_cache(maxsize=4096)
def is_faster_on_ones(target: Any) -> bool:
    """Return whether computing with a few ones returns what meta kernels do, and sooner."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return torch.Tag.pointwise in target.tags or target._schema.name in _IN_PYTHON


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
            value = empty_meta_tensor(value.dtype, value.shape, value.stride(), value.storage_offset())
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
    """Return a tensor of ones for a meta tensor; dividing by ones is no error."""
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
        return target(*args, **kwargs)

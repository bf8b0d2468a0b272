"""What operators give for static sizes, from their kernels alone.

Used where many calls are looked at: by verifiers, and by whoever makes many programs. Fake tensors ask in which memory
format a processor would compute, among much else, and take ten times as long. Most operators never depend on that, so
their meta kernels say the same. Where those are written in Python, and the operator looks at one element after the
other, computing with ones is faster still.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from exirkit.ir.operators.defined_operators import DefinedOperator
from exirkit.ir.operators.edge_operators import underlying
from exirkit.ir.operators.memory_ops import view

from .meta_tensors import bare_tensor

# Their results on a processor have other strides or sizes than the meta kernels say, or come from other kernels.
_PARTICULAR = ("conv", "batch_norm", "attention", "mkldnn", "lstm", "gru", "rnn", "cudnn", "miopen", "as_strided")
_MOST_COMPUTED = 1 << 14
"""Elements of the largest tensor of ones."""
# torch computes their shapes in Python, which takes longer than computing small results.
_IN_PYTHON = frozenset(
    {
        "aten::_log_softmax",
        "aten::_softmax",
        "aten::addmm",
        "aten::clone",
        "aten::cumsum",
        "aten::gelu",
        "aten::glu",
        "aten::grid_sampler_2d",
        "aten::hardtanh",
        "aten::layer_norm",
        "aten::linear",
        "aten::logsumexp",
        "aten::max_pool2d_with_indices",
        "aten::native_group_norm",
        "aten::native_layer_norm",
        "aten::upsample_bilinear2d",
        "aten::upsample_nearest2d",
        "aten::var_mean",
        "aten::where",
    }
)


class _NotQuickError(Exception):
    """A value about whose sizes or strides fake tensors have to be asked."""


class _LargeError(Exception):
    """A value too large to compute with."""


def quick_value(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a call as tensors of the right sizes, or None where fake tensors have to be asked.

    Args:
        target: An operator.
        args: Arguments as in a graph; nodes have recorded values.
        kwargs: Keyword arguments as in a graph.
    """
    target = underlying(target)
    if not has_quick_values(target):
        return None
    try:
        values: Any = map_aggregate((tuple(args), dict(kwargs)), _bare)
        given = values[1] if _takes_tensors(target) else {**values[1], "device": "meta"}
        with torch.no_grad():
            if is_quick_on_ones(target):
                return _computed(target, values[0], given)
            return target(*values[0], **given)
    except Exception:
        # Whatever is wrong, the fake tensors say it in the words that users of torch know.
        return None


@lru_cache(maxsize=4096)
def has_quick_values(target: Any) -> bool:
    """Tell whether kernels without data say of an operator what fake tensors would."""
    if isinstance(target, DefinedOperator):
        return target._schema.name.startswith("dim_order_ops::") and not target._schema.is_mutable
    if not isinstance(target, torch._ops.OpOverload):
        return target is view
    return not _is_particular(target)


def _is_particular(target: torch._ops.OpOverload) -> bool:
    if any(part in target._schema.name for part in _PARTICULAR):
        return True
    outside = not target._schema.name.startswith(("aten::", "quantized_decomposed::"))
    return outside or torch.Tag.data_dependent_output in target.tags or target._schema.is_mutable


@lru_cache(maxsize=4096)
def is_quick_on_ones(target: Any) -> bool:
    """Tell whether computing with a few ones says of an operator's result what kernels without data do, and sooner."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return torch.Tag.pointwise in target.tags or target._schema.name in _IN_PYTHON


@lru_cache(maxsize=4096)
def _takes_tensors(target: Any) -> bool:
    if target is view:
        return True
    names = [one.name for one in target._schema.arguments]
    return "device" not in names or any("Tensor" in str(one.type) for one in target._schema.arguments)


def _bare(argument: Any) -> Any:
    """Return an argument with nodes replaced by tensors without memory."""
    value = argument.meta.get("val") if isinstance(argument, Node) else argument
    if isinstance(value, torch.Tensor):
        if type(value) is not torch.Tensor or value.device.type != "meta":
            if not all(type(one) is int for one in (*value.shape, *value.stride())):
                raise _NotQuickError
            value = bare_tensor(value.dtype, value.shape, value.stride(), value.storage_offset())
        # A processor keeps memory formats that some meta kernels forget, and strides of nothing are arbitrary.
        if value.numel() == 0 or (value.dim() > 3 and not _lies_row_by_row(value)):
            raise _NotQuickError
        return value
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise _NotQuickError
    return value


def _lies_row_by_row(value: torch.Tensor) -> bool:
    """Tell whether strides are those of a fresh tensor; for dims of one element others are taken for a format, too."""
    step = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if stride != step:
            return False
        step *= size
    return True


def _with_ones(argument: Any) -> Any:
    """Return a tensor of ones for one without memory; dividing by ones is no error."""
    if not isinstance(argument, torch.Tensor):
        return argument
    last = sum((size - 1) * stride for size, stride in zip(argument.shape, argument.stride(), strict=True))
    places = argument.storage_offset() + max(last, 0) + 1
    if places > _MOST_COMPUTED:
        raise _LargeError
    return torch.ones(places, dtype=argument.dtype).as_strided(
        argument.shape, argument.stride(), argument.storage_offset()
    )


def _computed(target: Any, args: Any, kwargs: Any) -> Any:
    try:
        return target(*map_aggregate(args, _with_ones), **map_aggregate(kwargs, _with_ones))
    except _LargeError:
        return target(*args, **kwargs)

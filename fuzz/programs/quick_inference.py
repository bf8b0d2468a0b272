"""What operators give for static sizes, from the meta kernels alone.

Fake tensors ask in which memory format a processor would compute, among much else, and take ten times as long. Most
operators never depend on that.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

# Their results on a processor have other strides or sizes than the meta kernels say, or come from other kernels.
_PARTICULAR = ("conv", "batch_norm", "attention", "mkldnn", "lstm", "gru", "rnn", "cudnn", "miopen", "as_strided")


class _NotQuick(Exception):  # noqa: N818
    """A value whose sizes are not numbers."""


def quick_value(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a call as tensors without memory, or None where fake tensors have to be asked.

    Args:
        target: An operator.
        args: Arguments as in a graph; nodes have recorded values.
        kwargs: Keyword arguments as in a graph.
    """
    if not isinstance(target, torch._ops.OpOverload) or is_particular(target):
        return None
    try:
        values: Any = map_aggregate((tuple(args), dict(kwargs)), _bare)
        given = values[1] if _takes_tensors(target) else {**values[1], "device": "meta"}
        with torch.no_grad():
            return target(*values[0], **given)
    except Exception:
        # Whatever is wrong, the fake tensors say it in the words that users of torch know.
        return None


@lru_cache(maxsize=4096)
def is_particular(target: torch._ops.OpOverload) -> bool:
    """Tell whether fake tensors have to be asked about an operator."""
    if any(part in target._schema.name for part in _PARTICULAR):
        return True
    outside = not target._schema.name.startswith(("aten::", "quantized_decomposed::"))
    return outside or torch.Tag.data_dependent_output in target.tags or target._schema.is_mutable


@lru_cache(maxsize=4096)
def _takes_tensors(target: torch._ops.OpOverload) -> bool:
    names = [one.name for one in target._schema.arguments]
    return "device" not in names or any("Tensor" in str(one.type) for one in target._schema.arguments)


def _bare(argument: Any) -> Any:
    """Return an argument with nodes replaced by tensors without memory."""
    value = argument.meta.get("val") if isinstance(argument, Node) else argument
    if isinstance(value, torch.Tensor):
        if not all(type(one) is int for one in (*value.shape, *value.stride())):
            raise _NotQuick
        with torch._C._DisableTorchDispatch():
            bare = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
            offset = value.storage_offset()
            return bare.as_strided(value.shape, value.stride(), offset) if offset else bare
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise _NotQuick
    return value

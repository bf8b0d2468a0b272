"""Tensors without memory, made by hand: a tenth of the time of an operator that makes them."""

from __future__ import annotations

from typing import Any

import torch


def bare_tensor(dtype: torch.dtype, sizes: Any, strides: Any, offset: Any = 0) -> torch.Tensor:
    """Return a tensor without memory; sizes, strides and offset may be symbolic."""
    with torch._C._DisableTorchDispatch():
        bare = torch.empty_strided(tuple(sizes), tuple(strides), dtype=dtype, device="meta")
        return bare.as_strided(tuple(sizes), tuple(strides), offset) if offset else bare

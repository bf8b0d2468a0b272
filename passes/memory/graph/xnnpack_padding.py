"""Bytes that must follow tensors which kernels of XNNPACK read."""

from __future__ import annotations

from torch.fx import GraphModule

# XNNPACK kernels read up to this many bytes past the end of their inputs.
_XNNPACK_PADDING = 64


def padding_of(graph_module: GraphModule) -> int:
    """Return how many bytes have to follow every arena of a program: some, if XNNPACK runs anywhere in it."""
    for module in graph_module.modules():
        backend_id = getattr(module, "backend_id", "")
        if isinstance(backend_id, str) and "xnnpack" in backend_id.lower():
            return _XNNPACK_PADDING
    return 0

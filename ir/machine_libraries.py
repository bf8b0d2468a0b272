"""Libraries of kernels whose choice depends on the machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_machine_libraries() -> Iterator[None]:
    """Keep torch from kernels of oneDNN: they are no core operators, and what they take depends on the processor."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)

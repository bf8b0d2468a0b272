"""Run a step in this process and say how long it took and how far memory rose."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def resident_peak_bytes() -> int:
    """Return the highest resident size since `reset_resident_peak`, in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def reset_resident_peak() -> int:
    """Set the peak to the present resident size and return that, in bytes."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return resident_peak_bytes()


def timed(step: Callable[[], Result]) -> tuple[Result, float]:
    """Run a step and return its result and the seconds it took."""
    gc.collect()
    start = time.perf_counter()
    result = step()
    return result, time.perf_counter() - start

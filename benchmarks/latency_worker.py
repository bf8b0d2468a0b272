"""Time eager PyTorch and programs on the official runtime, turn by turn in one process; print shortest times as JSON.

Usage: python -m benchmarks.latency_worker MODEL ROUNDS FILE.pte...

The first time is that of eager PyTorch, on one thread. Differences are from the first file, relative to its largest
value.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import build

# A slow program is timed less often: the longer a call takes, the less it varies.
BUDGET_S = 12.0
FEWEST_ROUNDS = 8


def main() -> int:
    name, rounds, *files = sys.argv[1:]
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    benchmark = build(name)
    inputs = list(benchmark.inputs)
    module = benchmark.module.eval().requires_grad_(False)
    runs: list[Callable[[], Any]] = [lambda: module(*inputs)]
    runs += [partial(_load_for_executorch(path).forward, inputs) for path in files]
    with torch.no_grad():
        first, *others = [run() for run in runs[1:]]
        seconds = alternately(runs, int(rounds))
    print(json.dumps({"seconds": seconds, "differences": [difference(first, other) for other in (first, *others)]}))
    return 0


def latencies(model: str, rounds: int, files: Sequence[bytes]) -> tuple[list[float], float]:
    """Run this module on programs of a model.

    Returns:
        The shortest seconds of eager PyTorch and of each program, and the largest relative difference of their results.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{index}.pte") for index in range(len(files))]
        for path, data in zip(paths, files, strict=True):
            path.write_bytes(data)
        command = [sys.executable, "-m", "benchmarks.latency_worker", model, str(rounds), *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], max(found["differences"])


def alternately(runs: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the shortest time of each run in seconds."""
    seconds: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + BUDGET_S
    for turn in range(rounds):
        if turn >= FEWEST_ROUNDS and time.perf_counter() > end:
            break
        # The one that goes second finds warm caches, so they take turns at going first.
        for which in range(len(runs)) if turn % 2 else reversed(range(len(runs))):
            start = time.perf_counter()
            runs[which]()
            seconds[which].append(time.perf_counter() - start)
    return [min(one) for one in seconds]


def difference(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> float:
    """Return the largest difference of results, relative to the largest value."""
    largest = max((float(one.double().abs().max()) for one in left if one.numel()), default=0.0)
    if not largest:
        raise SystemExit("all results are zero: there is nothing to compare")
    far = max((float((a.double() - b.double()).abs().max()) for a, b in zip(left, right, strict=True) if a.numel()))
    return far / largest


if __name__ == "__main__":
    sys.exit(main())

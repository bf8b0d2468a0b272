"""Time two programs on the official runtime, turn by turn in one process, and print the shortest time of each as JSON.

Usage: python -m benchmarks.latency_worker A.pte B.pte INPUTS.pt ROUNDS
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings

import torch

# A slow program is timed less often: the longer a call takes, the less it varies.
BUDGET_S = 12.0
FEWEST_ROUNDS = 4


def main() -> int:
    first, second, inputs_file, rounds = sys.argv[1:]
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    inputs = torch.load(inputs_file, weights_only=True)
    modules = [_load_for_executorch(path) for path in (first, second)]
    outputs = [module.forward(inputs) for module in modules]
    differ = max(
        (float((left.double() - right.double()).abs().max()) if left.numel() else 0.0)
        for left, right in zip(*outputs, strict=True)
    )
    seconds: list[list[float]] = [[], []]
    end = time.perf_counter() + BUDGET_S
    for turn in range(int(rounds)):
        if turn >= FEWEST_ROUNDS and time.perf_counter() > end:
            break
        # Whoever goes second finds warm caches, so they take turns at going first.
        for which in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            modules[which].forward(inputs)
            seconds[which].append(time.perf_counter() - start)
    print(json.dumps({"seconds": [min(one) for one in seconds], "difference": differ}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

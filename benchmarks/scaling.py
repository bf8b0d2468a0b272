"""Lower chains of growing length and print the seconds per node and the exponent of the fit: 1 is linear.

Usage: python -m benchmarks.scaling [--official]
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from importlib import import_module
from typing import Any

import numpy as np
import torch

from benchmarks.models import chain

LENGTHS = (300, 1_000, 3_000, 10_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--official", action="store_true", help="the official exporter, up to 1,000 operators")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    to_edge: Any = import_module("executorch.exir" if options.official else "exirkit").to_edge
    to_edge(chain(8).export()).to_executorch()
    counts, seconds = [], []
    for length in LENGTHS[:2] if options.official else LENGTHS:
        program = chain(length).export()
        count = len(program.graph.nodes)
        start = time.perf_counter()
        data = to_edge(program).to_executorch().buffer
        took = time.perf_counter() - start
        counts.append(count)
        seconds.append(took)
        print(
            f"{count:6d} nodes  {took:8.3f} s  {took / count * 1e6:8.1f} us per node  {len(data):9d} bytes", flush=True
        )
    exponent = float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])
    print(f"time grows with the power {exponent:.2f} of the number of nodes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

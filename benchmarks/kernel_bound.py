"""How fast programs at -O2 can be at most with the kernels that the official runtime has, against eager PyTorch.

Usage: python -m benchmarks.kernel_bound [MODEL ...] [--rounds N]

Matrix products and convolutions are computed by few kernels, and take most of the time. The bound is the speed that a
program would have, as a share of eager's, if all its other instructions took no time at all: where it is below a goal,
only other products, another kernel or a delegate can reach the goal. Times are the shortest of several on one thread:
those of whole runs taken in turn with eager PyTorch, in a process of their own; those of instructions from a trace.
"""

from __future__ import annotations

import argparse
import sys

import torch
from rich.console import Console
from rich.table import Table
from torch.utils import _pytree as pytree

import exirkit
from benchmarks.latency_worker import latencies
from benchmarks.models import build, quiet_options
from exirkit.devtools import Inspector, TimeScale, profile_of
from exirkit.fuzz import TracedRuntime, trace_runs

PRODUCTS = ("linear", "addmm", "mm", "bmm", "baddbmm", "convolution")
"""Kernels that are matrix products or convolutions, without their overloads."""
WARM_UP = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="runs of each program")
    options = quiet_options(parser)
    table = Table(
        "model", "eager, ms", "-O2, ms", "products, ms", "speed", "at most", title="speed as a share of eager's"
    )
    console = Console(width=120)
    for name in options.models:
        benchmark = build(name)
        made = exirkit.to_edge(benchmark.export()).to_executorch(exirkit.ExecutorchBackendConfig(optimization_level=2))
        (eager, ours), _ = latencies(name, options.rounds, [bytes(made.buffer)])
        products = product_seconds(bytes(made.buffer), pytree.tree_leaves(benchmark.inputs), options.rounds)
        shares = f"{eager / ours:.2f}", f"{eager / products:.2f}" if products else "any"
        table.add_row(name, *(f"{1e3 * one:.3f}" for one in (eager, ours, products)), *shares)
        console.print(f"{name}: {shares[0]}, at most {shares[1]}")
    console.print(table)
    return 0


def product_seconds(file: bytes, inputs: list[torch.Tensor], rounds: int) -> float:
    """Return the seconds of all matrix products and convolutions of a program, each at its fastest."""
    traced = trace_runs(file, "forward", inputs, runtime=TracedRuntime.OFFICIAL, runs=rounds + WARM_UP)
    inspector = Inspector(etdump_data=traced.etdump, target_time_scale=TimeScale.NS)
    profile = profile_of(inspector, "forward", warmup=WARM_UP)
    # The shortest of each, even if they are of different runs: a bound from below.
    chosen = (one for one in profile.instructions if one.kernel.split(".")[0].removeprefix("aten::") in PRODUCTS)
    return sum(min(one.totals) for one in chosen) / 1e9


if __name__ == "__main__":
    sys.exit(main())

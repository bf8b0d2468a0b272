"""What a search over regions gains at -O2, and what it costs: with and without it, side by side.

Usage: python -m benchmarks.search [MODEL ...] [--search N] [--rounds N]

Estimates are sums over the calls by the description of the target, without a bound on memory; seconds of lowering are
processor time of the second lowering of each kind in this process; latencies are the shortest of several, on the
official runtime, one thread, the programs taking turns in a process of their own.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from torch.export import ExportedProgram

import exirkit
from benchmarks.latency_worker import latencies
from benchmarks.models import build, quiet_options
from exirkit.passes import Pipeline
from exirkit.patterns import read_target


@dataclass(frozen=True)
class Lowered:
    """A program, what it was estimated at in milliseconds, and the seconds that it took to make."""

    file: bytes
    estimate_ms: float
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--search", type=int, default=1000, help="rewrites that may be tried")
    parser.add_argument("--rounds", type=int, default=30, help="runs of each program")
    options = quiet_options(parser)
    table = Table("model", "estimate, ms", "lowering, s", "latency, ms", "difference", title="without / with a search")
    for name in options.models:
        exported = build(name).export()
        pair = [lowered(exported, search) for search in (0, options.search)]
        (_, *seconds), difference = latencies(name, options.rounds, [one.file for one in pair])
        table.add_row(
            name,
            " / ".join(f"{one.estimate_ms:.3f}" for one in pair),
            " / ".join(f"{one.seconds:.2f}" for one in pair),
            "the same file" if pair[0].file == pair[1].file else " / ".join(f"{1e3 * one:.2f}" for one in seconds),
            f"{difference:.0e}",
        )
    Console(width=120).print(table)
    return 0


def lowered(exported: ExportedProgram, search: int) -> Lowered:
    """Lower a program twice; the first time pays for what is made once."""
    config = exirkit.ExecutorchBackendConfig(optimization_level=2, search=search)
    for _ in range(2):
        start = time.process_time()
        made = exirkit.to_edge(exported).to_executorch(config)
        seconds = time.process_time() - start
    return Lowered(bytes(made.buffer), estimate(exported, search) / 1e6, seconds)


def estimate(exported: ExportedProgram, search: int) -> float:
    """Return the estimated nanoseconds of a program that is optimized without a bound on memory."""
    target = read_target("official_host")
    settings = {"target": target, "search": search, "searches": search > 0, "known-estimates": {}}
    edge = exirkit.to_edge(exported).exported_program()
    made = Pipeline.shipped("optimize_2").run(edge, settings=settings).program
    return sum(target.cost_of(node) for node in made.graph.nodes if node.op == "call_function")


if __name__ == "__main__":
    sys.exit(main())

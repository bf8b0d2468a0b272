"""Partition programs of growing size by data and by hand, and print times per call.

Usage: python -m benchmarks.partitioning [--sizes N ...] [--rounds N]

The programs are chains of blocks as networks have them: matrix products, biases, activations, residual sums and a
normalization. `grow` is the making of partitions from known takers, `data` a whole partitioner that is a file: rules
asked, a pattern matched, partitions grown and nodes tagged. Times are the shortest of the rounds, in seconds of this
process.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.export import ExportedProgram, export

from exirkit import to_edge
from exirkit.passes import DELEGATION_TAG, DataPartitioner, grown_partitions, parse_partitioning

FILE = """
partitioning: 1
backend: Npu
rules:
  - {name: matrices, op: [aten.mm.default, aten.addmm.default], dtype: f32, rank: {at_most: 2}}
  - name: biased
    match: |
      y = aten.add.Tensor(x, b)
      return aten.relu.default(y)
    vars: {x: any, b: any}
  - {name: small, op: 'aten.[mt]*', where: nbytes <= 4096}
minimum: {nodes: 2}
"""


class Blocks(nn.Module):
    """So many blocks of five calls; torch.export takes most of the time, so blocks are small and weights shared."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.weight, self.bias = nn.Parameter(torch.randn(8, 8) / 4), nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        for number in range(self.count):
            y = torch.relu(torch.mm(x, self.weight) + self.bias)
            x = torch.tanh(y) * x if number % 3 else torch.sin(y) + x
        return x


def program(calls: int) -> ExportedProgram:
    """Return an Edge program of about so many calls."""
    return to_edge(export(Blocks(calls // 5), (torch.randn(4, 8),))).exported_program()


def best(rounds: int, run: Callable[[], object]) -> float:
    """Return the shortest time of several runs."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(calls: int, rounds: int) -> tuple[int, int, float, float]:
    """Return calls, partitions, and the times of both."""
    edge = program(calls)
    partitioner = DataPartitioner(parse_partitioning(FILE))
    result = partitioner.partition(edge)
    takers = {node: "npu" for node in edge.graph.nodes if node.op == "call_function" and DELEGATION_TAG in node.meta}
    count = sum(node.op == "call_function" for node in edge.graph.nodes)
    return (
        count,
        len(result.partition_tags),
        best(rounds, lambda: grown_partitions(edge.graph, takers)),
        best(rounds, lambda: partitioner.partition(edge)),
    )


def main() -> None:
    """Print one line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 3_000, 10_000], metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(box=None)
    for column in ("calls", "partitions", "grow, s", "us per call", "data, s", "us per call"):
        table.add_column(column, justify="right")
    for size in given.sizes:
        calls, partitions, grown, data = measure(size, given.rounds)
        table.add_row(
            f"{calls:,}", f"{partitions:,}", f"{grown:.3f}", f"{grown / calls * 1e6:.1f}", f"{data:.3f}",
            f"{data / calls * 1e6:.1f}",
        )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

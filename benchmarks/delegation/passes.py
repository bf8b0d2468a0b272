"""XNNPACK's passes before it compiles: the original classes, and the chain of books.

Usage: python -m benchmarks.delegation.passes [MODEL ...] [--json FILE]

Seconds are processor time of that stage over all partitions of a model, in one process and one thread: in the official
chain, in ours with the original classes, and in ours with the chain. Compared are the delegates of the last two, byte
for byte without debug handles, how many elements their transpositions move, and the results of the last on the official
runtime with those of eager PyTorch, over the largest value.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack._passes import XNNPACKPassManager
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower as official_lowering
from executorch.runtime import Runtime
from rich.console import Console
from rich.table import Table
from tests.official.backends.delegate_graphs import seen_graphs, transposed

from benchmarks.models import MODELS, build
from exirkit import to_edge_transform_and_lower
from exirkit.bridge import OfficialPartitioner, backends

TITLES = ("model", "official", "original classes", "books", "ratio", "delegates", "same bytes", "moved", "error")


@dataclass
class Figures:
    """What one model shows.

    Attributes:
        official: Seconds of the passes in the official chain.
        original: Seconds of the same passes in our chain, which traces at less cost.
        books: Seconds of the chain of books.
        delegates: How many there are.
        equal: How many of them are the same bytes with books as with the original classes, but for debug handles.
        moved: Elements that transpositions move in delegates, with the original classes and with books.
        error: Largest difference of the results from eager, over the largest value.
    """

    official: float
    original: float
    books: float
    delegates: int
    equal: int
    moved: tuple[int, int]
    error: float


class _Stopwatch:
    """Adds up the processor time of a few functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start

        return timed

    def lap(self) -> float:
        """Return the seconds since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="models to lower; all when absent")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    watch = _Stopwatch()
    for owner, name in (
        (XNNPACKPassManager, "transform"),
        (backends, "run_chain"),
    ):
        setattr(owner, name, watch.around(getattr(owner, name)))
    # What is imported and cached on first use is not what a model costs.
    for warm_up in (_official, _ours(None), _ours("xnnpack")):
        warm_up(build("resnet18").export())
    figures: dict[str, Figures] = {}
    for model in options.models or list(MODELS):
        figures[model] = _measured(model, watch)
        print(model, asdict(figures[model]), file=sys.stderr)
        if options.json:
            options.json.write_text(json.dumps({key: asdict(one) for key, one in figures.items()}, indent=1))
    report(figures)
    return 0


def _official(program: Any) -> Any:
    return official_lowering(program, partitioner=[XnnpackPartitioner()])


def _ours(chain: str | None) -> Callable[[Any], Any]:
    return lambda program: to_edge_transform_and_lower(
        program, partitioner=[OfficialPartitioner(XnnpackPartitioner(), chain=chain)]
    )


def _measured(model: str, watch: _Stopwatch) -> Figures:
    benchmark = build(model)
    seconds, payloads, moved = [], [], []
    for lower in (_official, _ours(None), _ours("xnnpack")):
        exported = benchmark.export()
        gc.collect()
        watch.lap()
        with seen_graphs() as graphs:
            edge = lower(exported)
        seconds.append(watch.lap())
        moved.append(transposed(graphs)[1])
        payloads.append(_payloads(edge.exported_program().graph_module))
    with torch.no_grad():
        wanted = benchmark.module(*benchmark.inputs)
    # A method of the runtime does not keep its program alive, nor a program its bytes.
    data = bytes(edge.to_executorch().buffer)
    program = Runtime.get().load_program(data)
    got = program.load_method("forward").execute(list(benchmark.inputs))[0]
    error = float((got - wanted).abs().max() / wanted.abs().max())
    equal = sum(one == other for one, other in zip(payloads[1], payloads[2], strict=True))
    official, original, books = seconds
    return Figures(official, original, books, len(payloads[2]), equal, (moved[1], moved[2]), error)


def _payloads(module: torch.fx.GraphModule) -> list[bytes]:
    found = (getattr(module, str(node.target)) for node in module.graph.find_nodes(op="get_attr"))
    return [bytes(one.processed_bytes) for one in found if hasattr(one, "processed_bytes")]


def report(figures: dict[str, Figures]) -> None:
    """Print one row per model, and the geometric mean of the ratios."""
    table = Table(title="passes before XNNPACK compiles; ratio: official seconds over those with books")
    for title in TITLES:
        table.add_column(title, justify="left" if title == "model" else "right")
    ratios = []
    for name, one in figures.items():
        ratios.append(one.official / one.books)
        table.add_row(
            name,
            f"{one.official:.2f} s",
            f"{one.original:.2f} s",
            f"{one.books:.2f} s",
            f"{ratios[-1]:.1f}",
            str(one.delegates),
            f"{one.equal} of {one.delegates}",
            f"{one.moved[0]} -> {one.moved[1]}",
            f"{one.error:.0e}",
        )
    table.add_section()
    table.add_row("geometric mean", "", "", "", f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.1f}")
    table.add_row("worst", "", "", "", f"{min(ratios):.1f}")
    Console(width=max(130, Console().width)).print(table)


if __name__ == "__main__":
    sys.exit(main())

"""Look-ups in quantized tables: ours beside the kernels that the official exporter fuses them into.

Usage: python -m benchmarks.quantization.embeddings [--rounds N] [--json FILE]

Tables of 8, 4 and 2 bits, quantized by torchao's `IntxWeightOnlyConfig` by row and in groups of 32 columns, are lowered
by exirkit at -O1, -O2, and -O2 for size, and by the official exporter with its `QuantFusionPass`. The official runtime
runs all files in turns, in one process; latencies and sizes are relative to the official file, results are compared bit
for bit.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import statistics
import warnings
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.export import ExportedProgram

from benchmarks.models import Benchmark
from exirkit.fuzz import OfficialRuntime

from .figures import LEVELS, lowered
from .flows import INT2, INT4, source, tables

_DTYPES = {8: torch.int8, 4: INT4, 2: INT2}
_GROUPS = {"row": 0, "groups of 32": 32}
_TABLES = {"small": (1000, 64, 16), "large": (32000, 512, 128)}
"""Rows, columns, and how many rows are asked for."""


def program(bits: int, group: int, rows: int, columns: int, asked: int) -> tuple[ExportedProgram, torch.Tensor]:
    """Return a look-up in a table that torchao has quantized, and indices.

    Args:
        bits: Of each element.
        group: Columns with one scale; 0 for whole rows.
        rows: Of the table.
        columns: Of the table.
        asked: How many rows are asked for.
    """
    torch.manual_seed(20261126)
    indices = torch.randint(rows, (1, asked))

    model = Benchmark(torch.nn.Sequential(torch.nn.Embedding(rows, columns)), (indices,))
    return source(model, torch.nn.Embedding, tables(_DTYPES[bits], group)), indices


def officially(exported: ExportedProgram) -> bytes:
    """Return the official file, with look-ups fused."""
    importlib.import_module("executorch.kernels.quantized")
    exir = importlib.import_module("executorch.exir")
    fusion = importlib.import_module("executorch.exir.passes.quant_fusion_pass")
    edge = exir.to_edge(exported)
    fusion.quant_fusion_and_const_prop_pass(edge.exported_program())
    return bytes(edge.to_executorch().buffer)


def _rows(official: OfficialRuntime, file: bytes, indices: torch.Tensor) -> torch.Tensor:
    found = official.run(file, [[indices]]).unwrap()[0][0]
    assert isinstance(found, torch.Tensor)
    return found


def measure(
    exported: ExportedProgram, indices: torch.Tensor, official: OfficialRuntime, rounds: int
) -> dict[str, float]:
    """Return latencies and sizes of our files relative to the official one.

    Raises:
        RuntimeError: Results differ.
    """
    files = {level: lowered(exported, *options) for level, options in LEVELS.items()} | {"": officially(exported)}
    results = {key: _rows(official, file, indices) for key, file in files.items()}
    found: dict[str, float] = {}
    times: dict[str, list[int]] = {key: [] for key in files}
    for _ in range(rounds):
        for key, file in files.items():
            times[key].append(min(official.measure_latency_ns(file, [indices], repeats=200)))
    for key in LEVELS:
        if not torch.equal(results[key], results[""]):
            raise RuntimeError(f"{key}: results are not those of the official file")
        found[key] = min(times[key]) / min(times[""])
        found[f"{key} bytes"] = len(files[key]) / len(files[""])
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, help="turns of 200 calls each")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    figures: dict[str, dict[str, float]] = {}
    cases = [(bits, kind, name) for name in _TABLES for bits in _DTYPES for kind in _GROUPS]
    with OfficialRuntime() as official:
        for bits, kind, name in track(cases, description="embeddings"):
            exported, indices = program(bits, _GROUPS[kind], *_TABLES[name])
            figures[f"{name}, {bits} bits by {kind}"] = measure(exported, indices, official, options.rounds)
    columns = [*LEVELS, *(f"{key} bytes" for key in LEVELS)]
    table = Table("table", *columns, title="look-ups, ours over official")
    for key, one in figures.items():
        table.add_row(key, *(f"{one[column]:.3f}" for column in columns))
    means = [statistics.geometric_mean(one[column] for one in figures.values()) for column in columns]
    table.add_section()
    table.add_row("geometric mean", *(f"{one:.3f}" for one in means))
    Console(width=140).print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

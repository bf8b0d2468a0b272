"""Lower the same exported programs with the official exporter and with exirkit, and print both side by side.

A second table shows the speed of the programs: of ours at both levels of optimization, and for scale of eager PyTorch
on one thread and of the official exporter's with XNNPACK.

Usage: python -m benchmarks.lowering [MODEL ...] [--json FILE] [--rounds N]

Ratios are official over ours for time, memory and size: above 1 is better for us.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.models import MODELS, build

EXPORTERS = ("official", "ours", "ours-O2", "xnnpack")
COLUMNS = {
    "to_edge": ("to_edge_seconds", "s"),
    "to_executorch": ("to_executorch_seconds", "s"),
    "write": ("write_seconds", "s"),
    "lowering": ("lowering_seconds", "s"),
    "peak/weights": ("peak_over_weights", "x"),
    "arena": ("arena_bytes", "B"),
    "file": ("file_bytes", "B"),
    "instructions": ("instructions", ""),
    "latency": ("latency_seconds", "s"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="models to lower; all when absent")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=30, help="most timed calls of each program")
    options = parser.parse_args()
    names = options.models or list(MODELS)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    started = time.monotonic()
    with Progress(console=Console(stderr=True)) as progress, tempfile.TemporaryDirectory() as folder:
        task = progress.add_task("models", total=len(names))
        for name in names:
            progress.update(task, description=name)
            figures[name] = measure(name, Path(folder), options.rounds)
            progress.advance(task)
            pair = figures[name]
            print(f"{time.monotonic() - started:6.0f} s  {name}: {_in_short(pair)}", file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps(figures, indent=1))
    report(figures)
    report_speed(figures)
    return 0


def _in_short(pair: dict[str, dict[str, float]]) -> str:
    official, ours, fast = pair["official"], pair["ours"], pair["ours-O2"]
    shown = {"lowering": "lowering_seconds", "arena": "arena_bytes", "latency": "latency_seconds"}
    at_default = [f"{title} {official[key] / max(ours[key], 1e-12):.2f}x" for title, key in shown.items()]
    return ", ".join([*at_default, f"-O2 latency {official['latency_seconds'] / fast['latency_seconds']:.2f}x"])


def measure(name: str, folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Lower one model with both exporters and time both programs."""
    benchmark = build(name)
    source = folder / "program.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(benchmark.export(), source)
    programs = {exporter: folder / f"{exporter}.pte" for exporter in EXPORTERS}
    figures = {
        exporter: _worker("benchmarks.lowering.worker", exporter, source, target)
        for exporter, target in programs.items()
    }
    latency = _worker("benchmarks.latency_worker", name, rounds, *programs.values())
    for exporter, seconds, far in zip(EXPORTERS, latency["seconds"][1:], latency["differences"], strict=True):
        one = figures[exporter]
        one["latency_seconds"] = seconds
        one["difference"] = far
        one["lowering_seconds"] = one["to_edge_seconds"] + one["to_executorch_seconds"] + one["write_seconds"]
        one["peak_over_weights"] = one["peak_bytes"] / max(1, one["weight_bytes"])
    figures["eager"] = {"latency_seconds": latency["seconds"][0]}
    return figures


def _worker(module: str, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def report(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print one row per model: official, ours, and how many times better ours is; geometric means at the end."""
    table = Table(title="official / ours = ratio (above 1: ours is better)")
    table.add_column("model")
    for title in COLUMNS:
        table.add_column(title, justify="right")
    ratios: dict[str, list[float]] = {title: [] for title in COLUMNS}
    for name, pair in figures.items():
        cells = []
        for title, (key, unit) in COLUMNS.items():
            official, ours = pair["official"][key], pair["ours"][key]
            ratio = official / ours if ours else (1.0 if not official else math.inf)
            ratios[title].append(ratio)
            cells.append(f"{_short(official, unit)} / {_short(ours, unit)} = {ratio:.2f}")
        table.add_row(name, *cells)
    means = [f"{math.exp(sum(map(math.log, values)) / len(values)):.2f}" for values in ratios.values()]
    table.add_section()
    table.add_row("geometric mean", *means)
    table.add_row("worst", *[f"{min(values):.2f}" for values in ratios.values()])
    Console(width=max(200, Console().width)).print(table)


def report_speed(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print how fast the programs are, for scale beside eager PyTorch and XNNPACK, and what speed costs in memory."""
    table = Table(title="latency on the official runtime: how many times as fast as the official exporter's program")
    titles = ("model", "official", "-O1", "-O2", "eager", "XNNPACK", "arena", "-O1", "-O2", "XNNPACK", "file -O2",
              "lowering -O2", "difference -O2")  # fmt: skip
    for title in titles:
        table.add_column(title, justify="left" if title == "model" else "right")
    ratios: list[list[float]] = []
    for name, one in figures.items():
        official, fast = one["official"], one["ours-O2"]
        times = [one[key]["latency_seconds"] for key in ("ours", "ours-O2", "eager", "xnnpack")]
        faster = [official["latency_seconds"] / max(time, 1e-9) for time in times]
        arenas = [one[key]["arena_bytes"] / max(1, official["arena_bytes"]) for key in ("ours", "ours-O2", "xnnpack")]
        sizes = [*arenas, fast["file_bytes"] / official["file_bytes"]]
        speed = official["lowering_seconds"] / fast["lowering_seconds"]
        ratios.append([*faster, *sizes, speed])
        cells = [f"{ratio:.2f}" for ratio in (*faster, *sizes, speed)]
        milliseconds, kibibytes = _short(official["latency_seconds"], "s"), _short(official["arena_bytes"], "B")
        table.add_row(name, milliseconds, *cells[:4], kibibytes, *cells[4:], f"{fast['difference']:.0e}")
    columns = [[max(value, 1e-9) for value in column] for column in zip(*ratios, strict=True)]
    means = [f"{math.exp(sum(map(math.log, column)) / len(column)):.2f}" for column in columns]
    table.add_section()
    table.add_row("geometric mean", "", *means[:4], "", *means[4:], "")
    Console(width=max(200, Console().width)).print(table)


def _short(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value * 1e3:.1f}ms" if value < 1 else f"{value:.2f}s"
    if unit == "B":
        return f"{value / 1024:.0f}K"
    return f"{value:.2f}" if unit == "x" else f"{value:.0f}"


if __name__ == "__main__":
    sys.exit(main())

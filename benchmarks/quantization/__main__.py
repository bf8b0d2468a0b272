"""Quantized programs without a delegate: results, size and latency of ours, against the official exporter's.

Usage: python -m benchmarks.quantization [MODEL ...] [--flow NAME ...] [--rounds N] [--json FILE] [--markdown FILE]

Each model is quantized in each flow: by PT2E with the quantizer `xnnpack`, or by `quantize_` of torchao. Reference and
official runtime run the same files. Where they differ from each other or from the quantized model in eager PyTorch, it
is checked that ties explain it (`ties.py`). Sizes are relative to the official file of the same quantized model,
latencies at -O2 to the float program at -O2; the mean of sizes is of programs whose weights are integers. Each model
has a process of its own; a run with --json goes on where the last one ended.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.models import MODELS
from exirkit.fuzz import OfficialRuntime

from .figures import Figures, measure
from .flows import FLOWS


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS])
    parser.add_argument("--flow", nargs="*", choices=[*FLOWS], default=[*FLOWS])
    parser.add_argument("--rounds", type=int, default=10, help="timed calls of each program; 0 for no latencies")
    parser.add_argument("--json", type=Path, help="write the figures to this file, and go on from it")
    parser.add_argument("--retry", action="store_true", help="measure again what failed")
    parser.add_argument("--no-official-files", action="store_true", help="do not ask the official exporter")
    parser.add_argument("--markdown", type=Path, help="write the table of results to this file")
    parser.add_argument("--one-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = options.json or Path(folder) / "figures.json"
        if options.retry:
            _write(store, {key: one for key, one in _read(store).items() if not one["failure"]})
        for name in options.models or MODELS:
            if options.one_process:
                _measure_one(name, options.flow, options.rounds, store, exports=not options.no_official_files)
            else:
                more = ["--no-official-files"] if options.no_official_files else []
                _in_a_process(name, options.flow, store, ["--rounds", str(options.rounds), *more])
        figures = {key: Figures.parse(one) for key, one in _read(store).items()}
    if not options.one_process:
        Console(width=160).print(table_of(figures))
    if options.markdown is not None:
        options.markdown.write_text(markdown(figures))
    return 1 if any(one.failure for one in figures.values()) else 0


def _read(store: Path) -> dict[str, dict[str, Any]]:
    return json.loads(store.read_text()) if store.exists() else {}


def _write(store: Path, figures: dict[str, dict[str, Any]]) -> None:
    partial = store.with_suffix(".part")
    partial.write_text(json.dumps(figures, indent=1) + "\n")
    partial.replace(store)


def _in_a_process(name: str, flows: list[str], store: Path, more: list[str]) -> None:
    """Measure a model in a process; if it dies, that is the failure of the flow that it was at."""
    while missing := [flow for flow in flows if f"{name}, {flow}" not in _read(store)]:
        command = [sys.executable, "-m", "benchmarks.quantization", name, "--one-process", "--json", str(store)]
        done = subprocess.run([*command, *more, "--flow", *missing], check=False)
        figures = _read(store)
        for flow in missing:
            if f"{name}, {flow}" not in figures:
                figures[f"{name}, {flow}"] = Figures(failure=f"the process ended with {done.returncode}").stored()
                _write(store, figures)
                break


def _measure_one(name: str, flows: list[str], rounds: int, store: Path, *, exports: bool) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    with OfficialRuntime() as official:
        for flow in flows:
            if f"{name}, {flow}" in _read(store):
                continue
            made = measure(name, flow, official, rounds, exports=exports)
            _write(store, {**_read(store), f"{name}, {flow}": made.stored()})
            sys.stderr.write(f"{name}, {flow}: {made.failure or ('no such layer' if made.unsuited else 'measured')}\n")


def table_of(figures: dict[str, Figures]) -> Table:
    """Return the figures as a table."""
    columns = (
        "model",
        "-O1 / official, bytes",
        "-O2 size / float",
        "-O2 / float, latency",
        "dB",
        "dB, followed",
        "ties",
    )
    table = Table(*columns, title="quantized programs without a delegate")
    for key, one in figures.items():
        if one.failure:
            table.add_row(key, one.failure[:100])
        elif not one.unsuited:
            table.add_row(key, *_cells(one))
    table.add_section()
    measured = [one for one in figures.values() if not one.failure and not one.unsuited]
    for flow in dict.fromkeys(key.partition(", ")[2] for key in figures):
        shares = [
            one.levels["-O2 size"].nbytes / one.float_nbytes
            for key, one in figures.items()
            if key.partition(", ")[2] == flow and one in measured and one.stores_integers
        ]
        if shares:
            mean = statistics.geometric_mean(shares)
            table.add_row(f"{flow}: {len(shares)} models", "", f"{mean:.3f} in geometric mean")
    good = [one.slowdown for one in measured if one.slowdown is not None]
    if good:
        mean = statistics.geometric_mean(good)
        table.add_row(f"{len(good)} of {len(figures)}", "", "", f"{mean:.2f} in geometric mean")
    return table


def _cells(one: Figures) -> list[str]:
    levels = one.levels.values()
    official = ""
    if one.official_nbytes is not None:
        official = f"{one.levels['-O1'].nbytes / one.official_nbytes:.3f}"
    followed = [level.followed for level in levels if level.followed is not None]
    ties = f"{max(level.flipped for level in levels)} of {max(level.values for level in levels):,}"
    bad = [name for name, level in one.levels.items() if not level.explained]
    return [
        official,
        f"{one.levels['-O2 size'].nbytes / one.float_nbytes:.2f}",
        "" if one.slowdown is None else f"{one.slowdown:.2f}",
        f"{min(level.decibels for level in levels):.0f}",
        f"{min(followed):.0f}" if followed else "",
        (f"{ties}, {max(level.from_tie for level in levels):.1e}" if followed else "")
        + (f" UNEXPLAINED {bad}" if bad else ""),
    ]


def markdown(figures: dict[str, Figures]) -> str:
    """Return what the runtimes computed, model by model, as a table in Markdown."""
    flows = list(dict.fromkeys(key.partition(", ")[2] for key in figures))
    lines = ["| model | " + " | ".join(flows) + " |", "|---" * (1 + len(flows)) + "|"]
    for name in dict.fromkeys(key.partition(", ")[0] for key in figures):
        cells = [_result(figures.get(f"{name}, {flow}")) for flow in flows]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _result(one: Figures | None) -> str:
    if one is None or one.unsuited:
        return ""
    if one.failure:
        return "fails"
    levels = one.levels.values()
    if not all(level.explained for level in levels):
        return "differs"
    least = min(level.decibels for level in levels)
    equal = all(level.difference == 0 for level in levels)
    shown = "exact" if least == float("inf") else f"{least:.0f} dB"
    return f"{shown}{', bit for bit' if equal and shown != 'exact' else ''}" + (
        "" if least >= 100 else f", {max(level.flipped for level in levels)} ties"
    )


if __name__ == "__main__":
    raise SystemExit(main())

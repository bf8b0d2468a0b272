"""Lower models to XNNPACK through exirkit and through the official chain, and print both side by side.

Usage: python -m benchmarks.delegation [MODEL ...] [--json FILE]

Seconds are processor time from the exported program to the bytes of the file, each chain in a process of its own, one
thread. "work" counts operators that do not only move data. Errors are the largest differences from eager PyTorch on
the official runtime, over the largest value.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.models import MODELS

CHAINS = ("ours", "official")
TITLES = ("model", "ours", "official", "ratio", "delegates", "taken", "work taken", "work left", "error", "KiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="models to lower; all when absent")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    names = options.models or list(MODELS)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    started = time.monotonic()
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("models", total=len(names))
        for name in names:
            progress.update(task, description=name)
            figures[name] = {chain: _figures(chain, name) for chain in CHAINS}
            progress.advance(task)
            print(f"{time.monotonic() - started:6.0f} s  {' | '.join(_cells(name, figures[name]))}", file=sys.stderr)
            if options.json:
                options.json.write_text(json.dumps(figures, indent=1))
    report(figures)
    return 0


def _figures(chain: str, model: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.delegation.worker", chain, model]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _cells(name: str, pair: dict[str, dict[str, float]]) -> list[str]:
    ours, official = (pair[chain] for chain in CHAINS)

    def both(key: str, shown: Any = lambda value: f"{value:.0f}") -> str:
        return f"{shown(ours[key])} / {shown(official[key])}"

    return [
        name,
        f"{ours['seconds']:.2f} s",
        f"{official['seconds']:.2f} s",
        f"{official['seconds'] / ours['seconds']:.1f}",
        both("delegates"),
        both("taken"),
        both("taken_work"),
        both("left_work"),
        both("error", lambda value: f"{value:.0e}"),
        both("bytes", lambda value: f"{value / 1024:.0f}"),
    ]


def report(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print one row per model, and the geometric mean of the ratios of time."""
    table = Table(title="ours / official; ratio: official seconds over ours")
    for title in TITLES:
        table.add_column(title, justify="left" if title == "model" else "right")
    ratios = []
    for name, pair in figures.items():
        table.add_row(*_cells(name, pair))
        ratios.append(pair["official"]["seconds"] / pair["ours"]["seconds"])
    table.add_section()
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    table.add_row("geometric mean", "", "", f"{mean:.1f}")
    table.add_row("worst", "", "", f"{min(ratios):.1f}")
    Console(width=max(150, Console().width)).print(table)


if __name__ == "__main__":
    sys.exit(main())

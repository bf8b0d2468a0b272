"""From `python` to a written file: saved programs are lowered in fresh processes, imports and first uses included.

Usage: python -m benchmarks.cold_start [MODEL ...] [--rounds N]

Each round starts the official exporter (`torch.export.load`, `to_edge`, `to_executorch`), ours called alike, and
`exirkit lower FILE.pt2`, one after the other; the least processor seconds and wall seconds of each are printed, and how
many times as fast as the official exporter ours are. `torch` is what importing torch and loading the program take,
which every Python program of either exporter pays.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.models import MODELS, build

# Real architectures; the others of the list are of a few layers.
_REAL = [
    "resnet18", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit", "swin_tiny", "bert", "gpt2", "llama",
    "t5_encoder",
]  # fmt: skip
_LOAD = "import sys, torch; torch.set_num_threads(1); program = torch.export.load(sys.argv[1])"
_LOWER = """
from {package} import to_edge
with open(sys.argv[2], "wb") as file:
    to_edge(program).to_executorch().write_to_file(file)
"""
_SOURCE, _TARGET = "SOURCE", "TARGET"
COMMANDS = {
    "torch": [sys.executable, "-c", _LOAD, _SOURCE],
    "official": [sys.executable, "-c", _LOAD + _LOWER.format(package="executorch.exir"), _SOURCE, _TARGET],
    "exirkit": [sys.executable, "-c", _LOAD + _LOWER.format(package="exirkit"), _SOURCE, _TARGET],
    "exirkit lower": [sys.executable, "-m", "exirkit", "lower", _SOURCE, "-o", _TARGET],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="models to lower; ten when absent")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind")
    options = parser.parse_args()
    # Users do not tell Python to compile every module again in each process.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    table = Table(title="processor seconds (wall seconds) of a process")
    for title in ("model", *COMMANDS, "official / exirkit", "official / exirkit lower"):
        table.add_column(title, justify="left" if title == "model" else "right")
    ratios: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models or _REAL:
            source = Path(folder) / f"{name}.pt2"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.export.save(build(name).export(), source)
            best = dict.fromkeys(COMMANDS, (math.inf, math.inf))
            for _ in range(options.rounds):
                for title, command in COMMANDS.items():
                    spent = run(command, source, Path(folder) / "program.pte")
                    best[title] = (min(best[title][0], spent[0]), min(best[title][1], spent[1]))
            official = best["official"][0]
            ratios.append((official / best["exirkit"][0], official / best["exirkit lower"][0]))
            cells = [f"{cpu:.2f} ({wall:.2f})" for cpu, wall in best.values()]
            table.add_row(name, *cells, *[f"{one:.2f}" for one in ratios[-1]])
            print(name, *cells, *[f"{one:.2f}" for one in ratios[-1]], file=sys.stderr, flush=True)
    means = [math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*ratios, strict=True)]
    table.add_section()
    table.add_row("geometric mean", *[""] * len(COMMANDS), *[f"{one:.2f}" for one in means])
    Console(width=max(140, Console().width)).print(table)
    return 0


def run(command: list[str], source: Path, target: Path) -> tuple[float, float]:
    """Run a command and return its processor seconds and its wall seconds."""
    words = [{_SOURCE: str(source), _TARGET: str(target)}.get(one, one) for one in command]
    start = time.perf_counter()
    with open(os.devnull, "wb") as nowhere:
        streams = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1), (os.POSIX_SPAWN_DUP2, nowhere.fileno(), 2)]
        process = os.posix_spawn(words[0], words, os.environ, file_actions=streams)
        _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{' '.join(words)} failed")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())

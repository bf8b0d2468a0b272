"""From `python` to a written file: saved programs are lowered in fresh processes, imports and first uses included.

Usage: python -m benchmarks.cold_start [MODEL ...] [--rounds N]

Each round starts the official exporter (`torch.export.load`, `to_edge`, `to_executorch`), ours called alike, and
`exirkit lower FILE.pt2`, one after the other; the least processor seconds and wall seconds of each are printed, and how
many times as fast as the official exporter ours are. `torch` is what importing torch and loading the program take,
which every Python program of either exporter pays: `official / torch` is the bound for any exporter in Python.
The last row is of one process that lowers all models: a loop with the official exporter and with ours, and
`exirkit lower FILE.pt2 ... -o FOLDER`.
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
_LOAD = """
import sys, torch
torch.set_num_threads(1)
for source in sys.argv[2:]:
    program = torch.export.load(source)
"""
_LOWER = """
    from {package} import to_edge
    with open(sys.argv[1], "wb") as file:
        to_edge(program).to_executorch().write_to_file(file)
"""
_SOURCES, _TARGET, _FOLDER = "SOURCES", "TARGET", "FOLDER"
COMMANDS = {
    "torch": [sys.executable, "-c", _LOAD, _TARGET, _SOURCES],
    "official": [sys.executable, "-c", _LOAD + _LOWER.format(package="executorch.exir"), _TARGET, _SOURCES],
    "exirkit": [sys.executable, "-c", _LOAD + _LOWER.format(package="exirkit"), _TARGET, _SOURCES],
    "exirkit lower": [sys.executable, "-m", "exirkit", "lower", _SOURCES, "-o", _FOLDER],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="models to lower; ten when absent")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind")
    options = parser.parse_args()
    # Users do not tell Python to compile every module again in each process.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    table = Table(title="processor seconds (wall seconds) of a process")
    for title in ("model", *COMMANDS, "official / torch", "official / exirkit", "official / exirkit lower"):
        table.add_column(title, justify="left" if title == "model" else "right")
    ratios: list[list[float]] = []
    with tempfile.TemporaryDirectory() as folder:
        sources = []
        for name in options.models or _REAL:
            sources.append(Path(folder) / f"{name}.pt2")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.export.save(build(name).export(), sources[-1])
            cells, ratio = measure(sources[-1:], Path(folder), options.rounds)
            ratios.append(ratio)
            table.add_row(name, *cells)
            print(name, *cells, file=sys.stderr, flush=True)
        means = [math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*ratios, strict=True)]
        table.add_section()
        table.add_row("geometric mean", *[""] * len(COMMANDS), *[f"{one:.2f}" for one in means])
        if len(sources) > 1:
            table.add_row(f"all {len(sources)}, one process", *measure(sources, Path(folder), options.rounds)[0])
    Console(width=max(160, Console().width)).print(table)
    return 0


def measure(sources: list[Path], folder: Path, rounds: int) -> tuple[list[str], list[float]]:
    """Return the cells of a row for processes that each lower these programs, and its last three as numbers."""
    best = dict.fromkeys(COMMANDS, (math.inf, math.inf))
    for _ in range(rounds):
        for title, command in COMMANDS.items():
            spent = run(command, sources, folder)
            best[title] = (min(best[title][0], spent[0]), min(best[title][1], spent[1]))
    ratios = [best["official"][0] / best[title][0] for title in ("torch", "exirkit", "exirkit lower")]
    return [*(f"{cpu:.2f} ({wall:.2f})" for cpu, wall in best.values()), *(f"{one:.2f}" for one in ratios)], ratios


def run(command: list[str], sources: list[Path], folder: Path) -> tuple[float, float]:
    """Run a command and return its processor seconds and its wall seconds."""
    made = folder / "made"
    made.mkdir(exist_ok=True)
    given = {_SOURCES: list(map(str, sources)), _TARGET: [str(made / "program.pte")], _FOLDER: [str(made)]}
    words = [word for one in command for word in given.get(one, [one])]
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

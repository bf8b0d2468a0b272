"""Memory of vision models under `arena_limit`: half of what planning in place and in the best order takes, and less.

Usage: python -m benchmarks.tiling [MODEL ...] [--level N ...] [--share X ...] [--rounds N] [--markdown FILE]

MODEL is a classification model of torchvision, at 224 x 224. Each is lowered without a limit, and with one for each
share of the arena that this takes. Programs are timed turn by turn on the official runtime, with one thread, in a
process for each model. At `-O1` results have to be the same bits.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.architectures.building import import_torchvision
from benchmarks.latency_worker import alternately, difference
from benchmarks.models import keep_signal
from exirkit import ExecutorchBackendConfig, MemoryPlanningPass, ModelError, to_edge

MODELS = (
    "mobilenet_v2", "mobilenet_v3_large", "mnasnet1_0", "resnet18", "resnet50", "efficientnet_b0", "regnet_y_400mf",
    "squeezenet1_1", "shufflenet_v2_x1_0", "densenet121", "vgg11_bn", "convnext_tiny",
)  # fmt: skip
_COLUMNS = ("model", "level", "arena", "limit", "of it", "calls", "time", "lowering", "results")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--level", nargs="*", type=int, default=[1, 2], choices=[1, 2])
    parser.add_argument("--share", nargs="*", type=float, default=[0.5, 0.25])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--one-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_process:
        print(json.dumps(_measured(options.models[0], options.level, options.share, options.rounds)))
        return 0
    rows: list[list[str]] = []
    for name in options.models:
        lists = ["--level", *map(str, options.level), "--share", *map(str, options.share)]
        words = [sys.executable, "-m", "benchmarks.tiling", name, *lists, "--rounds", str(options.rounds)]
        done = subprocess.run([*words, "--one-process"], stdout=subprocess.PIPE, text=True, check=False)
        made = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else [[name, *["failed"] * 8]]
        for row in made:
            print(", ".join(row), flush=True)
        rows += made
    table = Table(*_COLUMNS, title="memory limited to a share of the arena")
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)
    if options.markdown is not None:
        lines = [_COLUMNS, ["---"] * len(_COLUMNS), *rows]
        options.markdown.write_text("".join(f"| {' | '.join(one)} |\n" for one in lines), encoding="utf-8")
    return 0


def _measured(name: str, levels: list[int], shares: list[float], rounds: int) -> list[list[str]]:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = import_torchvision().models.get_model(name, weights=None).eval().requires_grad_(False)
    image = torch.randn(1, 3, 224, 224)
    keep_signal(module, image)
    edge = to_edge(torch.export.export(module, (image,)))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for level in levels:
            rows += _rows_of_level(name, edge, level, shares, rounds, image, Path(folder))
    return rows


def _rows_of_level(
    name: str, edge: Any, level: int, shares: list[float], rounds: int, image: torch.Tensor, folder: Path
) -> list[list[str]]:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    whole, _ = _lowered(edge, level, None)
    arena = _arena(whole)
    made: list[tuple[float, Any, float]] = [(1.0, whole, 0.0)]
    rows: dict[float, list[str]] = {}
    for share in shares:
        limit = math.floor(share * arena)
        try:
            made.append((share, *_lowered(edge, level, limit)))
        except ModelError as error:
            rows[share] = [name, f"-O{level}", f"{arena:,}", f"{limit:,}", error.diagnostics[0].code, *[""] * 4]
    files = [folder / f"{level}_{number}.pte" for number in range(len(made))]
    for file, (_, program, _) in zip(files, made, strict=True):
        file.write_bytes(program.buffer)
    runs = [partial(_load_for_executorch(str(file)).forward, [image]) for file in files]
    outputs = [run() for run in runs]
    seconds = alternately(runs, rounds)
    for number, (share, program, spent) in list(enumerate(made))[1:]:
        far = difference(outputs[0], outputs[number])
        rows[share] = [
            name, f"-O{level}", f"{arena:,}", f"{math.floor(share * arena):,}", f"{_arena(program) / arena:.2f}",
            f"{_calls(whole)} -> {_calls(program)}", f"{seconds[number] / seconds[0]:.2f}", f"{spent:.1f} s",
            "the same bits" if far == 0 else f"{far:.1e}",
        ]  # fmt: skip
    return [rows[share] for share in shares]


def _lowered(edge: Any, level: int, limit: int | None) -> tuple[Any, float]:
    planner = MemoryPlanningPass(in_place=True, schedule=True)
    start = time.perf_counter()
    config = ExecutorchBackendConfig(optimization_level=level, memory_planning_pass=planner, arena_limit=limit)
    return edge.to_executorch(config), time.perf_counter() - start


def _arena(program: Any) -> int:
    return sum(program.executorch_program.execution_plan[0].non_const_buffer_sizes)


def _calls(program: Any) -> int:
    return len(program.executorch_program.execution_plan[0].chains[0].instructions)


if __name__ == "__main__":
    sys.exit(main())

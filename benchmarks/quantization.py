"""Quantized programs without a delegate: size and latency of ours at all levels, against the official exporter's.

Usage: python -m benchmarks.quantization [MODEL ...] [--scheme NAME ...] [--rounds N] [--json FILE]

Each model is quantized by PT2E with the XNNPACK quantizer. Reference and official runtime run the same files: printed
is the largest difference over the largest value, and the signal over the noise against the quantized model in eager
PyTorch, in dB. Sizes are relative to the official file of the same quantized model, latencies at -O2 to the float
program at -O2.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import math
import statistics
import sys
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.export import ExportedProgram

from benchmarks.models import MODELS, Benchmark, build
from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.runtime_ref import Runtime

SCHEMES = {
    "per channel": {"is_per_channel": True},
    "per tensor": {"is_per_channel": False},
    "dynamic": {"is_per_channel": True, "is_dynamic": True},
}
LEVELS = {"-O0": (0, "speed"), "-O1": (1, "speed"), "-O2": (2, "speed"), "-O2 size": (2, "size")}


@dataclass
class Figures:
    """What one model in one scheme gave.

    Attributes:
        failure: Why there are no figures.
        official_nbytes: Size of the file of the official exporter; None if it rejects the program.
        float_nbytes: Size of the float program at -O2.
        nbytes: Sizes of our files by level.
        difference: Largest difference of the runtimes over the largest value, by level.
        decibels: Signal over noise against eager, by level; infinite if equal.
        slowdown: Latency at -O2 over that of the float program at -O2.
    """

    failure: str = ""
    official_nbytes: int | None = None
    float_nbytes: int = 0
    nbytes: dict[str, int] = field(default_factory=dict)
    difference: dict[str, float] = field(default_factory=dict)
    decibels: dict[str, float] = field(default_factory=dict)
    slowdown: float = math.nan


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS])
    parser.add_argument("--scheme", nargs="*", choices=[*SCHEMES], default=[*SCHEMES])
    parser.add_argument("--rounds", type=int, default=10, help="timed calls of each program")
    parser.add_argument("--json", type=Path, help="write the figures to this file, and go on from it")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    kept = options.json is not None and options.json.exists()
    figures: dict[str, dict[str, Any]] = json.loads(options.json.read_text()) if kept else {}
    with OfficialRuntime() as official:
        for name in options.models or MODELS:
            for scheme in options.scheme:
                key = f"{name}, {scheme}"
                if key in figures:
                    continue
                sys.stderr.write(f"{key}\n")
                figures[key] = asdict(measure(name, scheme, official, options.rounds))
                if options.json is not None:
                    options.json.write_text(json.dumps(figures, indent=1) + "\n")
    Console(width=140).print(table_of({key: Figures(**one) for key, one in figures.items()}))
    return 1 if any(one["failure"] for one in figures.values()) else 0


def measure(name: str, scheme: str, official: OfficialRuntime, rounds: int) -> Figures:
    """Return the figures of one model; what fails is said in them."""
    torch.manual_seed(0)
    benchmark = build(name)
    found = Figures()
    try:
        exported = quantized(benchmark, **SCHEMES[scheme])
        inputs = list(benchmark.inputs)
        with torch.no_grad():
            eager = _first(exported.module()(*inputs))
        files = {level: lowered(exported, *options) for level, options in LEVELS.items()}
        plain = lowered(benchmark.export(), 2, "speed")
    except Exception as error:  # it is a row of the table
        found.failure = f"{type(error).__name__}: {error}".splitlines()[0]
        return found
    found.float_nbytes = len(plain)
    found.official_nbytes = official_nbytes(exported)
    for level, file in files.items():
        found.nbytes[level] = len(file)
        ours = _first(Runtime.get().load_program(file).load_method("forward").execute(inputs))
        result = official.run(file, [inputs], timeout_s=600)
        if result.failure is not None:
            found.failure = f"{level}: {result.failure.kind}: {result.failure.text}".splitlines()[0]
            return found
        theirs = _first(result.outputs[0])
        found.difference[level] = ((ours - theirs).abs().max() / theirs.abs().max()).item()
        noise = (theirs - eager).double().pow(2).sum().item()
        signal = eager.double().pow(2).sum().item()
        found.decibels[level] = 10 * math.log10(signal / noise) if noise else math.inf
    times = [official.measure_latency_ns(one, inputs, repeats=rounds) for one in (files["-O2"], plain)]
    found.slowdown = min(times[0]) / min(times[1])
    return found


def quantized(benchmark: Benchmark, **config: bool) -> ExportedProgram:
    """Return a model after `convert_pt2e`, calibrated with its own inputs."""
    flow = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    quantizer = importlib.import_module("executorch.backends.xnnpack.quantizer.xnnpack_quantizer")
    chosen = quantizer.XNNPACKQuantizer().set_global(quantizer.get_symmetric_quantization_config(**config))
    prepared = flow.prepare_pt2e(benchmark.export().module(), chosen)
    with torch.no_grad():
        prepared(*benchmark.inputs)
        converted = flow.convert_pt2e(prepared)
    return torch.export.export(converted, benchmark.inputs, dynamic_shapes=benchmark.dynamic_shapes, strict=False)


def lowered(exported: ExportedProgram, level: int, optimize_for: Any) -> bytes:
    """Return our file."""
    config = ExecutorchBackendConfig(optimization_level=level, optimize_for=optimize_for)
    return to_edge(exported).to_executorch(config).buffer


def official_nbytes(exported: ExportedProgram) -> int | None:
    """Return the size of the official exporter's file, or None if it rejects the program."""
    importlib.import_module("executorch.kernels.quantized")
    exir = importlib.import_module("executorch.exir")
    try:
        return len(exir.to_edge(exported).to_executorch().buffer)
    except Exception:  # whatever it raises
        return None


def _first(results: Any) -> torch.Tensor:
    found: torch.Tensor = results if isinstance(results, torch.Tensor) else results[0]
    return found


def table_of(figures: dict[str, Figures]) -> Table:
    """Return the figures as a table."""
    columns = (
        "model",
        "-O1 / official, bytes",
        "-O2 size / float",
        "-O2 / float, latency",
        "runtimes differ",
        "dB to eager",
    )
    table = Table(*columns, title="quantized programs without a delegate")
    for key, one in figures.items():
        if one.failure:
            table.add_row(key, one.failure[:80])
            continue
        official = "rejected" if one.official_nbytes is None else f"{one.nbytes['-O1'] / one.official_nbytes:.3f}"
        table.add_row(
            key,
            official,
            f"{one.nbytes['-O2 size'] / one.float_nbytes:.2f}",
            f"{one.slowdown:.2f}",
            f"{max(one.difference.values()):.1e}",
            f"{min(one.decibels.values()):.0f}",
        )
    good = [one for one in figures.values() if not one.failure]
    if good:
        mean = statistics.geometric_mean(one.slowdown for one in good)
        table.add_section()
        table.add_row(f"{len(good)} of {len(figures)}", "", "", f"{mean:.2f} in geometric mean")
    return table


if __name__ == "__main__":
    raise SystemExit(main())

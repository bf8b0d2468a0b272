"""Exchange files with the official package: each model, in both directions, against the program in a single file.

Usage: python -m benchmarks.file_exchange [--jsonl FILE] [MODEL ...]

Tensor data files: a program of exirkit with its data file on the official runtime, and one of the official exporter on
the reference runtime. Each line says what agreed exactly and, otherwise, the largest difference.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import MODELS, Benchmark, build
from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.runtime_ref import Runtime

DATA = "_default_external_constant.ptd"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--jsonl", type=Path, metavar="FILE", help="append the results here")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    right = total = 0
    for name in options.models or list(MODELS):
        for what, difference in exchange(build(name)).items():
            total += 1
            right += difference == 0.0
            line = {"model": name, "exchange": what, "difference": difference}
            verdict = "equal" if difference == 0.0 else f"differs by {difference:.3g}"
            sys.stdout.write(f"{name:20} {what:28} {verdict}\n")
            sys.stdout.flush()
            if options.jsonl is not None:
                with options.jsonl.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    sys.stdout.write(f"{right} of {total} equal\n")
    return 0 if right == total else 1


def exchange(benchmark: Benchmark) -> dict[str, float]:
    """Return the largest difference from the program in a single file, for each exchange of files."""
    inputs = list(benchmark.inputs)
    with tempfile.TemporaryDirectory() as kept, torch.no_grad():
        directory = Path(kept)
        ours = _write(directory / "ours", _ours(benchmark))
        theirs = _write(directory / "theirs", _theirs(benchmark))
        return {
            "ours on the official runtime": largest_difference(
                _official(ours / "single.pte", None, inputs), _official(ours / "m.pte", ours / DATA, inputs)
            ),
            "official on ours": largest_difference(
                _reference(theirs / "single.pte", None, inputs), _reference(theirs / "m.pte", theirs / DATA, inputs)
            ),
        }


def _ours(benchmark: Benchmark) -> Sequence[Any]:
    edge = to_edge(benchmark.export())
    return edge.to_executorch(), edge.to_executorch(ExecutorchBackendConfig(external_constants=True))


def _theirs(benchmark: Benchmark) -> Sequence[Any]:
    from executorch import exir

    made = []
    for is_external in (False, True):
        config = exir.ExecutorchBackendConfig(external_constants=is_external)
        made.append(exir.to_edge(benchmark.export()).to_executorch(config))
    return made


def _write(directory: Path, managers: Sequence[Any]) -> Path:
    """Write the program in a single file and the one with a data file."""
    directory.mkdir()
    single, external = managers
    for name, manager in (("single.pte", single), ("m.pte", external)):
        with (directory / name).open("wb") as file:
            manager.write_to_file(file)
    external.write_tensor_data_to_file(str(directory))
    return directory


def _official(program: Path, data: Path | None, inputs: Sequence[Any]) -> Sequence[Any]:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    module = _load_for_executorch(str(program), None if data is None else str(data))
    return [one.clone() for one in module.forward(inputs)]


def _reference(program: Path, data: Path | None, inputs: Sequence[Any]) -> Sequence[Any]:
    return Runtime.get().load_program(program, data_path=data).load_method("forward").execute(inputs)


def largest_difference(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the largest absolute difference of two lists of tensors; infinity if their types or sizes differ."""
    if [(one.dtype, one.shape) for one in left] != [(one.dtype, one.shape) for one in right]:
        return float("inf")
    differences = [
        0.0 if torch.equal(one, other) else (one.double() - other.double()).abs().max().item()
        for one, other in zip(left, right, strict=True)
    ]
    return max(differences, default=0.0)


if __name__ == "__main__":
    raise SystemExit(main())

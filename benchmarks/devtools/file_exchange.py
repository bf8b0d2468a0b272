"""Exchange files with the official package: each model, in both directions, against the program in a single file.

Usage: python -m benchmarks.devtools.file_exchange [--jsonl FILE] [--kind data|bundles] [MODEL ...]

Tensor data files: a program of exirkit with its data file on the official runtime, and one of the official exporter on
the reference runtime. Each line says what agreed exactly and, otherwise, the largest difference.

Bundled programs: test cases that expect what eager PyTorch computes, written by exirkit and verified by the official
runtime, and the other way round; and the same with one wrong element in an expected output, which must be rejected.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import MODELS, Benchmark, build
from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.devtools import (
    Bundle,
    BundledProgram,
    MethodTestCase,
    MethodTestSuite,
    serialize_from_bundled_program_to_flatbuffer,
)
from exirkit.ir import pytree
from exirkit.runtime_ref import Runtime

# Of test cases that expect what eager PyTorch computes, which adds in another order: of each element, and of the
# largest one.
TOLERANCE = 1e-3
# Kernels of matrix products add in another order where weights do not begin at such an address, as in data files. For
# the same reason both programs are lowered without optimization: weights in other files are not transposed by it.
ALIGNMENT = 64
DATA = "_default_external_constant.ptd"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--jsonl", type=Path, metavar="FILE", help="append the results here")
    parser.add_argument("--kind", choices=list(KINDS), help="only files of this kind")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    right = total = 0
    for name in options.models or list(MODELS):
        benchmark = build(name)
        checks = [check for kind, check in KINDS.items() if options.kind in (None, kind)]
        results = [one for check in checks for one in check(benchmark).items()]
        for what, difference in results:
            total += 1
            right += difference == 0.0
            line = {"model": name, "exchange": what, "difference": difference}
            verdict = "right" if difference == 0.0 else f"differs by {difference:.3g}"
            sys.stdout.write(f"{name:20} {what:48} {verdict}\n")
            sys.stdout.flush()
            if options.jsonl is not None:
                with options.jsonl.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    sys.stdout.write(f"{right} of {total} right\n")
    return 0 if right == total else 1


def exchange_data(benchmark: Benchmark) -> dict[str, float]:
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
    return [
        edge.to_executorch(
            ExecutorchBackendConfig(external_constants=one, constant_tensor_alignment=ALIGNMENT, optimization_level=0)
        )
        for one in (False, True)
    ]


def _theirs(benchmark: Benchmark) -> Sequence[Any]:
    from executorch import exir

    made = []
    for is_external in (False, True):
        config = exir.ExecutorchBackendConfig(external_constants=is_external, constant_tensor_alignment=ALIGNMENT)
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


def exchange_bundles(benchmark: Benchmark) -> dict[str, float]:
    """Return 0 for each verdict on a bundled program that is right, and infinity for each that is wrong."""
    from executorch import devtools as official_devtools
    from executorch import exir
    from executorch.devtools.bundled_program import config as official_config
    from executorch.devtools.bundled_program import serialize as official_serialize

    inputs = benchmark.inputs
    exported = benchmark.export()
    with torch.no_grad():
        outputs = list(pytree.tree_leaves(exported.module()(*inputs)))
    atol = TOLERANCE * max(float(one.abs().max()) for one in outputs)
    ours, theirs = to_edge(exported).to_executorch(), exir.to_edge(benchmark.export()).to_executorch()
    results: dict[str, float] = {}
    for suffix, expected, wanted in (("", outputs, True), (", wrong expectation", spoiled(outputs), False)):
        case = MethodTestCase(inputs, expected)
        made = serialize_from_bundled_program_to_flatbuffer(BundledProgram(ours, [MethodTestSuite("forward", [case])]))
        verdict = _official_verdict(made, atol)
        results[f"our bundle on the official runtime{suffix}"] = 0.0 if verdict == wanted else float("inf")
        suite = official_config.MethodTestSuite("forward", [official_config.MethodTestCase(inputs, expected)])
        bundle = official_devtools.BundledProgram(theirs, [suite])
        made = bytes(official_serialize.serialize_from_bundled_program_to_flatbuffer(bundle))
        verdict = Bundle.read(made).run("forward", 0, rtol=TOLERANCE, atol=atol).ok
        results[f"official bundle on ours{suffix}"] = 0.0 if verdict == wanted else float("inf")
    return results


def spoiled(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return outputs with one wrong element: off by a hundredth of the largest, or by one where they are integers."""
    wrong = [one.clone(memory_format=torch.contiguous_format) for one in outputs]
    flat = wrong[-1].view(-1)
    at = len(flat) // 2
    flat[at] = flat[at] + (flat.abs().max() * 0.01 + 1e-2 if flat.is_floating_point() else 1)
    return wrong


def _official_verdict(bundle: bytes, atol: float) -> bool:
    from executorch.extension.pybindings.portable_lib import _load_bundled_program_from_buffer

    loaded = _load_bundled_program_from_buffer(bundle)
    try:
        loaded.verify_result_with_bundled_expected_output("forward", 0, TOLERANCE, atol)
    except RuntimeError as error:
        if "status 32" not in str(error):
            raise
        return False
    return True


def largest_difference(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the largest absolute difference of two lists of tensors; infinity if their types or sizes differ."""
    if [(one.dtype, one.shape) for one in left] != [(one.dtype, one.shape) for one in right]:
        return float("inf")
    differences = [
        0.0 if torch.equal(one, other) else (one.double() - other.double()).abs().max().item()
        for one, other in zip(left, right, strict=True)
    ]
    return max(differences, default=0.0)


KINDS: dict[str, Callable[[Benchmark], dict[str, float]]] = {"data": exchange_data, "bundles": exchange_bundles}


if __name__ == "__main__":
    raise SystemExit(main())

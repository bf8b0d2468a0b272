"""Quantized programs with delegates: XNNPACK through the bridge beside the official chain, and a new backend's starter.

Usage: python -m benchmarks.quantization.delegates [MODEL ...] [--flow NAME ...] [--markdown FILE]

Both chains hand the same exported program to XNNPACK; delegates, their bytes and the calls that are left are compared,
and the official runtime runs both files. The starter is what `exirkit new-backend` writes: its files run on the
reference runtime, and have to give what the same program gives there without a delegate. That program is also run on
the official runtime, and compared with eager PyTorch.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import math
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.export import ExportedProgram

from benchmarks.models import MODELS, Benchmark, build
from exirkit import to_edge, to_edge_transform_and_lower
from exirkit.fuzz import OfficialRuntime
from exirkit.runtime_ref import Runtime

from .caches import STEPS, cache
from .figures import decibels
from .flows import FLOWS, UnsuitedModelError, pt2e
from .narrow import NARROW
from .narrow import build as build_narrow

Steps = list[tuple[torch.Tensor, ...]]
BOUNDARY = "quantized inputs and outputs"
CACHE = "quantized caches"
WITH_DELEGATES: Mapping[str, Callable[[Benchmark], ExportedProgram]] = {
    **FLOWS,
    "float weights kept": partial(pt2e, per_channel=True, fold_quantize=False),
    BOUNDARY: partial(pt2e, per_channel=True),
}
"""The flows of `FLOWS`, without `fold_quantize`, and with integers at the boundary; caches have their own model."""
DEFAULT = ("mlp", *NARROW)
_XNNPACK_STATUS = re.compile(r"xnn_status_\w+")


@dataclass
class Delegated:
    """What one chain made of a program.

    Attributes:
        file: Its file; empty if it is rejected.
        delegates: How many.
        nbytes: Bytes that the backend made of them.
        left: Calls outside of delegates.
        failure: Why it is rejected, or does not run.
    """

    file: bytes = b""
    delegates: int = 0
    nbytes: int = 0
    left: int = 0
    failure: str = ""


@dataclass
class Row:
    """One model in one flow.

    Attributes:
        ours: Through the bridge.
        theirs: Through the official chain.
        starter: Through a new backend.
        same: Whether the files of both chains give the same bits on the official runtime.
        decibels: Signal over noise of our file against eager PyTorch, of the steps with the least.
        kept: Whether the starter's file gives the bits that the program gives without a delegate.
        plain: Signal over noise of the official runtime without a delegate against ours; infinite for the same bits.
        plain_decibels: The same against eager PyTorch.
    """

    ours: Delegated
    theirs: Delegated
    starter: Delegated
    same: bool | None = None
    decibels: float | None = None
    kept: bool | None = None
    plain: float = 0.0
    plain_decibels: float = 0.0


def programs(name: str, flow: str) -> tuple[ExportedProgram, Steps]:
    """Return a quantized program, and the calls to compare it by."""
    if flow == CACHE:
        return cache(), STEPS
    benchmark = build_narrow(name) if name in NARROW else build(name)
    if flow == BOUNDARY and not benchmark.inputs[0].is_floating_point():
        raise UnsuitedModelError
    return WITH_DELEGATES[flow](benchmark), [benchmark.inputs]


def compare(program: ExportedProgram, steps: Steps, flow: str, official: OfficialRuntime, backend: Any) -> Row:
    """Return what the chains make of a program, and whether it computes the same."""
    ours, theirs = (_attempt(partial(chain, program, flow)) for chain in (through_the_bridge, officially))
    row = Row(ours, theirs, _attempt(partial(with_starter, program, flow, backend)))
    module = program.module(check_guards=False)
    with torch.no_grad():
        eager = [_results(module(*step)) for step in steps]
    plain = _boundary(to_edge(program), flow).to_executorch().buffer
    given = [_at_the_boundary(step, plain) if flow == BOUNDARY else list(step) for step in steps]
    found = official.run(plain, given).unwrap()
    row.plain, row.plain_decibels = (_least(found, wanted, plain) for wanted in (_called(plain, given), eager))
    mine, other = (_run(one, given, official) for one in (ours, theirs))
    if mine is not None:
        row.decibels = _least(mine, eager, ours.file)
        if other is not None:
            row.same = _equal(mine, other)
    if row.starter.file:
        row.kept = _equal(_called(row.starter.file, given), _called(plain, given))
    return row


def _run(one: Delegated, given: list[list[Any]], official: OfficialRuntime) -> list[list[Any]] | None:
    """Return what the official runtime computes; None if there is no file or it does not run, which is noted."""
    if not one.file:
        return None
    result = official.run(one.file, given)
    if result.failure is None:
        return result.unwrap()
    said = _XNNPACK_STATUS.search(result.failure.text)
    one.failure = f"does not run: {result.failure.kind if said is None else said[0]}"
    return None


def _least(made: list[list[Any]], wanted: list[list[torch.Tensor]], file: bytes) -> float:
    """Return signal over noise of the results with the least, integers as the numbers that they stand for."""
    pairs = [pair for one, other in zip(made, wanted, strict=True) for pair in zip(one, other, strict=True)]
    return min(
        decibels(got if got.is_floating_point() == one.is_floating_point() else _number(got, file), one)
        for got, one in pairs
        if isinstance(got, torch.Tensor)
    )


def _attempt(chain: Callable[[], Delegated]) -> Delegated:
    try:
        return chain()
    except Exception as error:  # it is a cell of the table
        return Delegated(failure=f"{type(error).__name__}: {error}".splitlines()[0])


def _results(made: Any) -> list[torch.Tensor]:
    return [one for one in (made if isinstance(made, list | tuple) else [made]) if isinstance(one, torch.Tensor)]


def _equal(one: list[list[Any]], other: list[list[Any]]) -> bool:
    return all(torch.equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


def _called(file: bytes, steps: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    method = Runtime.get().load_program(file).load_method("forward")
    return [method.execute(step) for step in steps]


def _at_the_boundary(step: tuple[torch.Tensor, ...], file: bytes) -> list[torch.Tensor]:
    """Return inputs as the integers that a program wants, by what its constant methods say of them."""
    numbers = torch.ops.quantized_decomposed.quantize_per_tensor(step[0], *_parameters("input0", file))
    return [numbers, *step[1:]]


def _number(result: torch.Tensor, file: bytes) -> torch.Tensor:
    """Return the first result of a program as a float, by what its constant methods say of it."""
    made: torch.Tensor = torch.ops.quantized_decomposed.dequantize_per_tensor(result, *_parameters("output0", file))
    return made


def _parameters(value: str, file: bytes) -> list[Any]:
    program = Runtime.get().load_program(file)

    def constant(what: str) -> Any:
        return program.load_method(f"{value}_{what}").execute([])[0]

    return [*(constant(one) for one in ("scale", "zp", "quant_min", "quant_max")), torch.int8]


def _boundary(edge: Any, flow: str) -> Any:
    if flow != BOUNDARY:
        return edge
    passes = importlib.import_module("exirkit.exir.passes.quantize_io_pass")
    return edge.transform([passes.QuantizeInputs(edge, [0]), passes.QuantizeOutputs(edge, [0])])


def _xnnpack() -> Any:
    return importlib.import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner").XnnpackPartitioner()


def through_the_bridge(program: ExportedProgram, flow: str) -> Delegated:
    """Lower with our chain, XNNPACK behind the bridge."""
    bridged = importlib.import_module("exirkit.bridge").OfficialPartitioner(_xnnpack())
    if flow == BOUNDARY:
        return _delegated(_boundary(to_edge(program), flow).to_backend(bridged))
    return _delegated(to_edge_transform_and_lower(program, partitioner=[bridged]))


def officially(program: ExportedProgram, flow: str) -> Delegated:
    """Lower with the official chain."""
    exir = importlib.import_module("executorch.exir")
    if flow != BOUNDARY:
        return _delegated(exir.to_edge_transform_and_lower(program, partitioner=[_xnnpack()]))
    passes = importlib.import_module("executorch.exir.passes.quantize_io_pass")
    edge = exir.to_edge(program)
    edge = edge.transform([passes.QuantizeInputs(edge, [0]), passes.QuantizeOutputs(edge, [0])])
    return _delegated(edge.to_backend(_xnnpack()))


def with_starter(program: ExportedProgram, flow: str, backend: Any) -> Delegated:
    """Lower with our chain and the package that `exirkit new-backend` has written."""
    if flow == BOUNDARY:
        return _delegated(_boundary(to_edge(program), flow).to_backend(backend.partitioner()))
    return _delegated(backend.lower(program))


def _delegated(edge: Any) -> Delegated:
    made = edge.exported_program()
    found = Delegated()
    for node in made.graph.nodes:
        if node.op != "call_function" or "getitem" in str(node.target):
            continue
        if "executorch_call_delegate" not in str(node.target):
            found.left += 1
            continue
        found.delegates += 1
        lowered = getattr(made.graph_module, node.args[0].target)
        found.nbytes += len(lowered.processed_bytes)
        stored = getattr(lowered, "named_data_store_output", None)
        data = lowered.named_data if stored is None else {n: bytes(one) for n, one in enumerate(stored.buffers)}
        found.nbytes += sum(len(one) for one in data.values())
    found.file = bytes(edge.to_executorch().buffer)
    return found


def starter(folder: Path) -> Any:
    """Return the package that `exirkit new-backend` writes, imported."""
    command = importlib.import_module("exirkit.cli.commands.new_backend")
    command.write_backend("BenchNpu", folder / "package")
    sys.path.insert(0, str(folder / "package"))
    return importlib.import_module("bench_npu")


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS, *NARROW], help=f"default: {', '.join(DEFAULT)}")
    parser.add_argument("--flow", nargs="*", choices=[*WITH_DELEGATES, CACHE], default=[*WITH_DELEGATES, CACHE])
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as folder, OfficialRuntime() as official:
        backend = starter(Path(folder))
        for flow in options.flow:
            for name in ["attention"] if flow == CACHE else options.models or DEFAULT:
                try:
                    program, steps = programs(name, flow)
                except UnsuitedModelError:
                    continue
                rows[f"{name}, {flow}"] = compare(program, steps, flow, official, backend)
                sys.stderr.write(f"{name}, {flow}: {' | '.join(_cells(rows[f'{name}, {flow}']))}\n")
    titles = ("model, flow", "no delegate", "dB", "XNNPACK: ours", "official", "results", "dB", "starter", "results")
    table = Table(*titles, title="quantized programs with delegates")
    for key, row in rows.items():
        table.add_row(key, *_cells(row))
    Console(width=160).print(table)
    if options.markdown is not None:
        lines = [titles, ["---"] * len(titles), *([key, *_cells(row)] for key, row in rows.items())]
        options.markdown.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines))
    return 1 if any(map(_differs, rows.values())) else 0


def _differs(row: Row) -> bool:
    """Whether a file of ours computes something else, or is not made or does not run where the official one does."""
    return row.same is False or row.kept is False or bool(row.ours.failure and not row.theirs.failure)


def _cells(row: Row) -> list[str]:
    verdicts = {True: "equal", False: "DIFFER", None: ""}
    return [
        "equal" if row.plain == math.inf else f"{row.plain:.0f} dB",
        f"{row.plain_decibels:.0f}",
        _cell(row.ours),
        _cell(row.theirs),
        verdicts[row.same],
        "" if row.decibels is None else f"{row.decibels:.0f}",
        _cell(row.starter),
        verdicts[row.kept],
    ]


def _cell(one: Delegated) -> str:
    return one.failure[:60] or f"{one.delegates} of {one.nbytes:,} bytes, {one.left} left"


if __name__ == "__main__":
    raise SystemExit(main())

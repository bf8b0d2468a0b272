"""`exirkit run`: a program file on the reference runtime."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exirkit.cli.console import Steps, print_json, print_line, print_table, shape_text
from exirkit.cli.errors import usage_error
from exirkit.cli.files import check_writable, write_whole
from exirkit.cli.options import CaseAtol, CaseRtol, DataFiles, Json, Libraries, MethodName, OperatorBooks, ProgramFile
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.cli.input_files import Fill
    from exirkit.devtools import Bundle

_FIRST = 4


@dataclass(frozen=True)
class OutputReport:
    """One output of a run.

    Attributes:
        kind: `tensor`, `int`, `float`, `bool` or `none`.
        first: The first few elements in row-major order, or the number itself.
    """

    index: int
    kind: str
    dtype: str | None = None
    shape: list[int] | None = None
    first: list[float | int | bool] = field(default_factory=list)


@dataclass(frozen=True)
class RunReport:
    """The document of `exirkit run`.

    Attributes:
        inputs: `random`, `ones`, or the names of the files.
        data: Data files that were given with the program.
        case: Index of the test case of a bundled program whose inputs were used.
        differences: How outputs differ from those that the test case expects; None without a test case.
        seed: What random inputs were made from.
        seconds: Wall time of every call.
        saved: The file that holds the outputs.
    """

    file: str
    method: str
    inputs: list[str]
    data: list[str]
    seed: int | None
    outputs: list[OutputReport]
    seconds: list[float]
    saved: str | None
    case: int | None = None
    differences: list[str] | None = None
    ok: bool = True


@app.command()
def run(
    file: ProgramFile,
    method: MethodName = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", metavar="FILE", help="Inputs from a .npy, .npz or .pt file; repeatable."),
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Random inputs, the default.")] = False,
    ones: Annotated[bool, typer.Option("--ones", help="Inputs filled with ones.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of random inputs.")] = 0,
    case: Annotated[
        int | None,
        typer.Option(
            min=0, help="Inputs of this test case of a bundled program; the first one by default.", show_default=False
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Number of runs; state is kept between them.")] = 1,
    data: DataFiles = None,
    save: Annotated[Path | None, typer.Option(metavar="OUT.npz", help="Write the outputs to this file.")] = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Check every access to planned memory; stop at the first invalid one.")
    ] = False,
    knowing: Annotated[bool, typer.Option("--knowing", hidden=True)] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="With --sanitize: results may overwrite dead arguments.")
    ] = False,
    rtol: CaseRtol = 1e-5,
    atol: CaseAtol = 1e-8,
    rules: OperatorBooks = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Run a method of a program file on the reference runtime.

    Of a bundled program it runs a test case, and says how outputs differ from what that expects.
    """
    if sum((bool(inputs), random, ones, case is not None)) > 1:
        raise usage_error("--input, --random, --ones and --case exclude each other")
    if knowing:
        print_line("--knowing is deprecated; write --sanitize", err=True)
    check_writable(save, ".npz")
    with Steps() as steps:
        steps("loading torch")
        import torch

        from exirkit.cli.bundles import open_program_or_bundle
        from exirkit.cli.input_files import make_inputs, read_inputs
        from exirkit.cli.program_file import chosen_plans, register_operators
        from exirkit.runtime_ref import Runtime

        # The runtime knows the shipped backends when their module is imported.
        import_module("exirkit.program.demo_backend")
        register_operators(rules)
        steps(f"loading {file}")
        opened, bundle = open_program_or_bundle(file)
        with opened:
            names = [plan.name for plan in opened.program.execution_plan]
            name = method or (names[0] if len(names) == 1 else "forward")
            plan = chosen_plans(opened.program, name)[0]
            program = Runtime.get().load_program(
                opened, sanitize=sanitize or knowing, in_place=in_place, data_path=list(data or ())
            )
            loaded = program.load_method(name)
            at = _chosen_case(bundle, name, case, given=bool(inputs) or random or ones)
            fill: Fill | None = None if inputs or not plan.inputs else "ones" if ones else "random"
            if at is not None and bundle is not None:
                fill, values = None, bundle.inputs(name, at)
            elif fill is None:
                values = read_inputs(inputs or ())
            else:
                values = make_inputs(plan, fill, torch.Generator().manual_seed(seed))
            steps(f"running {name}")
            seconds: list[float] = []
            outputs: list[Any] = []
            for _ in range(repeat):
                start = time.perf_counter()
                outputs = loaded.execute(values)
                seconds.append(time.perf_counter() - start)
            differences = None if at is None else _differences(bundle, name, at, outputs, rtol, atol)
        if save is not None:
            _save_outputs(save, outputs)
    report = RunReport(
        file=os.fspath(file),
        method=name,
        inputs=[os.fspath(each) for each in inputs or ()] if fill is None else [fill],
        data=[os.fspath(each) for each in data or ()],
        seed=seed if fill == "random" else None,
        outputs=[_output(index, value) for index, value in enumerate(outputs)],
        seconds=seconds,
        saved=None if save is None else os.fspath(save),
        case=at,
        differences=differences,
        ok=not differences,
    )
    if json:
        print_json(report)
    else:
        print_run(report)
    if differences:
        raise typer.Exit(1)


def _chosen_case(bundle: Bundle | None, method: str, case: int | None, *, given: bool) -> int | None:
    """Return the index of the test case to run, None if inputs come from elsewhere."""
    if bundle is None:
        if case is not None:
            raise usage_error("only a bundled program (.bpte) has test cases")
        return None
    if case is None and (given or (method, 0) not in bundle.cases):
        return None
    return case or 0


def _differences(
    bundle: Bundle | None, method: str, case: int, outputs: Sequence[Any], rtol: float, atol: float
) -> list[str] | None:
    """Return how outputs differ from what a test case expects; None if it expects nothing."""
    from exirkit.devtools import compared_outputs
    from exirkit.ir import Location

    expected = bundle.expected_outputs(method, case) if bundle is not None else []
    where = Location(method=method, node=f"test case {case}")
    if not expected:
        return None
    return [one.message for one in compared_outputs(outputs, expected, where, rtol=rtol, atol=atol)]


def _save_outputs(path: Path, outputs: Sequence[Any]) -> None:
    """Write outputs as arrays `output_0`, `output_1`, ... of a `.npz` file; None is left out.

    Numpy has no narrow floats: bfloat16 and float8 are widened to float32, which holds them exactly.
    """
    import numpy as np
    import torch

    def array(value: Any) -> np.ndarray[Any, Any]:
        if not isinstance(value, torch.Tensor):
            return np.asarray(value)
        try:
            return value.numpy()
        except TypeError:
            return value.to(torch.float32).numpy()

    arrays: dict[str, Any] = {
        f"output_{index}": array(value) for index, value in enumerate(outputs) if value is not None
    }
    write_whole(path, lambda file: np.savez(file, **arrays))


def _output(index: int, value: Any) -> OutputReport:
    import torch

    if isinstance(value, torch.Tensor):
        first = value.flatten()[:_FIRST]
        numbers = first.tolist() if not first.dtype.is_complex else torch.view_as_real(first).flatten().tolist()
        return OutputReport(index, "tensor", str(value.dtype).removeprefix("torch."), list(value.shape), numbers)
    if value is None:
        return OutputReport(index, "none")
    return OutputReport(index, type(value).__name__, first=[value] if isinstance(value, int | float) else [])


def print_run(report: RunReport) -> None:
    """Print what was computed, and how long it took."""
    rows = [
        (each.index, each.dtype or each.kind, shape_text(each.shape) if each.shape is not None else "", _first(each))
        for each in report.outputs
    ]
    seed = f" with seed {report.seed}" if report.seed is not None else ""
    given = f"test case {report.case}" if report.case is not None else f"{', '.join(report.inputs) or 'no'} inputs"
    print_line(f"{report.method} of {report.file} on {given}{seed}")
    print_line()
    print_table([">output", "dtype", "shape", "first values"], rows)
    print_line()
    ordered = sorted(report.seconds)
    if len(ordered) == 1:
        print_line(f"{ordered[0]:.4f} s")
    else:
        median = ordered[len(ordered) // 2]
        print_line(f"{len(ordered)} runs: fastest {ordered[0]:.4f} s, median {median:.4f} s")
    if report.differences is not None:
        print_line("outputs are as expected" if not report.differences else "outputs are not as expected:")
        for line in report.differences:
            print_line(f"  {line}")
    if report.saved is not None:
        print_line(f"outputs are in {report.saved}")


def _first(output: OutputReport) -> str:
    texts = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in output.first]
    more = output.shape is not None and prod(output.shape) > len(texts)
    return " ".join(texts) + (" ..." if more else "")

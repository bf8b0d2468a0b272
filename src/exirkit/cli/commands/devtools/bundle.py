"""`exirkit bundle`: a program file and test cases of its methods in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exirkit.cli.console import Steps, counted, nbytes_text, output_to_stderr, print_json, print_line
from exirkit.cli.errors import CommandError, usage_error
from exirkit.cli.files import check_writable
from exirkit.cli.options import DataFiles, Json, Libraries, MethodName, OperatorBooks, ProgramFile, Seed
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.cli.model import ExportedTarget
    from exirkit.devtools import MethodTestSuite
    from exirkit.emit import PteFile


@dataclass(frozen=True)
class BundleReport:
    """The document of `exirkit bundle`.

    Attributes:
        file: The file that was written.
        program: The program in it.
        cases: Number of test cases by method.
        left_out: Methods without test cases, and why.
        expected_from: `the reference runtime`, or the model.
        seed: What random inputs were made from.
        nbytes: Size of the file.
    """

    file: str
    program: str
    cases: dict[str, int]
    left_out: dict[str, str]
    expected_from: str
    seed: int
    nbytes: int
    ok: bool = True


@app.command()
def bundle(
    file: ProgramFile,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="MODEL.bpte", help="The file to write.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODULE:FACTORY|FILE.pt2",
            help="Expect what this model computes, first on its example inputs.",
        ),
    ] = None,
    method: MethodName = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", metavar="FILE", help="One case with inputs from .npy, .npz or .pt files; repeatable."),
    ] = None,
    cases: Annotated[int, typer.Option(min=1, help="Number of test cases for each method.")] = 1,
    seed: Seed = 0,
    data: DataFiles = None,
    rules: OperatorBooks = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Bundle a program file with test cases: inputs, and the outputs that are expected of them.

    Expected outputs come from the model, if one is given, or else from the reference runtime. `exirkit verify` runs the
    cases, and the official runtime does.
    """
    check_writable(output, ".bpte")
    if inputs and (cases > 1 or model):
        raise usage_error("--input gives the inputs of one case: --cases and --model do not go with it")
    with Steps() as steps:
        steps("loading torch")
        from exirkit.cli.input_files import read_inputs
        from exirkit.cli.model import export_target, parse_source
        from exirkit.cli.program_file import register_operators
        from exirkit.devtools import BundledProgram
        from exirkit.emit import bundled_program_file, open_program, write_file

        register_operators(rules)
        with open_program(file) as opened:
            names, left_out = bundled_methods(opened, method)
            if inputs and len(names) > 1:
                raise usage_error("--input gives the inputs of one method: say which with --method")
            if model is not None:
                exported = export_target(parse_source(model), steps)
                calls = {name: _calls_of_model(exported, name, cases, seed) for name in names}
                steps("running the model")
                suites = [_suite_of_model(exported, name, calls[name]) for name in names]
            else:
                given: list[Sequence[Any]] | None = [read_inputs(inputs)] if inputs else None
                calls = {name: given or _drawn_calls(opened, name, cases, seed) for name in names}
                steps("running the reference runtime")
                suites = _suites_of_program(opened, calls, list(data or ()))
        made = bundled_program_file(BundledProgram(None, suites, pte_file_path=file).serialize_to_schema())
        write_file(output, made)
    report = BundleReport(
        file=os.fspath(output),
        program=os.fspath(file),
        cases={name: len(one) for name, one in calls.items()},
        left_out=left_out,
        expected_from=model or "the reference runtime",
        seed=seed,
        nbytes=made.nbytes,
    )
    if json:
        print_json(report)
    else:
        for name, count in report.cases.items():
            print_line(f"{name}: {counted(count, 'test case')}, outputs from {report.expected_from}")
        for name, reason in report.left_out.items():
            print_line(f"{name}: no test cases, since {reason}")
        print_line(f"{report.file} ({nbytes_text(report.nbytes)} bytes)")


def bundled_methods(opened: PteFile, method: str | None) -> tuple[list[str], dict[str, str]]:
    """Return the methods that get test cases, and why others do not: all whose outputs are tensors, if none is named.

    Raises:
        CommandError: EK723, there is no method of that name; EK727, no method returns tensors only.
    """
    from exirkit.cli.program_file import chosen_plans
    from exirkit.emit import Tensor

    plans = chosen_plans(opened.program, method)
    reasons = {}
    for plan in plans:
        kinds = sorted({type(plan.values[at].val).__name__ for at in plan.outputs} - {Tensor.__name__})
        if kinds or not plan.outputs:
            what = f"a value of kind {kinds[0]}" if kinds else "nothing"
            reasons[plan.name] = f"it returns {what}: only tensors can be expected"
    names = [plan.name for plan in plans if plan.name not in reasons]
    if not names:
        name, reason = next(iter(reasons.items()), ("the program", "it has no methods"))
        raise CommandError(code="EK727", message=f"there is nothing to bundle: {name} cannot have test cases; {reason}")
    return names, reasons


def _drawn_calls(opened: PteFile, method: str, count: int, seed: int) -> list[Sequence[Any]]:
    import torch

    from exirkit.cli.input_files import make_inputs
    from exirkit.cli.program_file import chosen_plans

    (plan,) = chosen_plans(opened.program, method)
    generator = torch.Generator().manual_seed(seed)
    return [make_inputs(plan, "random", generator) for _ in range(count)]


def _suites_of_program(
    opened: PteFile, calls: Mapping[str, Sequence[Sequence[Any]]], data: list[Path]
) -> list[MethodTestSuite]:
    """Return test cases that expect what the reference runtime computes, on a method that is loaded for each."""
    from exirkit.devtools import MethodTestCase, MethodTestSuite
    from exirkit.runtime_ref import Runtime

    def outputs(method: str, inputs: Sequence[Any]) -> list[Any]:
        return Runtime.get().load_program(opened, data_path=data).load_method(method).execute(inputs)

    return [
        MethodTestSuite(name, [MethodTestCase(list(one), outputs(name, one)) for one in listed])
        for name, listed in calls.items()
    ]


def _calls_of_model(exported: ExportedTarget, method: str, count: int, seed: int) -> list[Sequence[Any]]:
    from exirkit.cli.model import example_leaves
    from exirkit.fuzz import drawn_inputs

    example = example_leaves(exported.only(method).programs[method], method)
    return [example, *(drawn_inputs(example, seed + at) for at in range(count - 1))]


def _suite_of_model(exported: ExportedTarget, method: str, calls: Sequence[Sequence[Any]]) -> MethodTestSuite:
    """Return test cases that expect what the model computes, each as the first call of a model as it was exported."""
    from exirkit.devtools import MethodTestCase, MethodTestSuite
    from exirkit.fuzz import eager_outputs

    program = exported.programs[method]
    eager = exported.models.get(method) or program.module()
    cases = []
    for inputs in calls:
        try:
            with output_to_stderr():
                (outputs,) = eager_outputs(eager, program, [inputs])
        except Exception as error:  # whatever the user's model raises
            raise CommandError(code="EK715", message=f"{method} raised {type(error).__name__}: {error}") from error
        cases.append(MethodTestCase(list(inputs), outputs))
    return MethodTestSuite(method, cases)

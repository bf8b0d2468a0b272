"""The commands and their options; each imports what it needs when it runs."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from exirkit import __version__

from .bisect_command import bisect
from .compare_command import compare
from .console import Steps, print_json
from .failures import WRONG_USAGE, CommandError, failure_of, report_failure, wants_traceback
from .fuzz_commands import fuzz_app
from .interrupts import INTERRUPTED, noticed_interrupts
from .memory_command import memory
from .partition_command import new_backend, partition
from .planners import Planner
from .print_command import print_program
from .rule_commands import rule_app

_EPILOG = (
    "Exit codes: 0 done; 1 the model or file cannot be handled; 2 wrong usage; 3 a pass or backend broke its contract; "
    "4 a bug of exirkit; 130 interrupted."
    "\n\n"
    "An error is one line on standard error: `exirkit -v` shows it in full, `exirkit explain CODE` says what it means, "
    "EXIRKIT_TRACEBACK=1 shows where it comes from. With `--json`, standard output is one JSON document, also after an "
    "error."
)


class Aim(StrEnum):
    """What optimization aims at."""

    SPEED = "speed"
    SIZE = "size"


class OneLineGroup(TyperGroup):
    """Commands whose errors are one line and an exit code, never a traceback."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> NoReturn:
        """Run the command that the arguments name, and leave with its exit code."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        try:
            with _quiet(), noticed_interrupts() as interrupts:
                code = super().main(given, *rest, **{**named, "standalone_mode": False})
        except BrokenPipeError:
            _stop_writing()
            code = 0
        except Exception as error:
            if wants_traceback():
                raise
            if interrupts.seen:
                sys.exit(INTERRUPTED)
            failure = failure_of(error)
            options = given[: given.index("--")] if "--" in given else given
            report_failure(failure, as_json="--json" in options, verbose=bool({"-v", "--verbose"} & set(options)))
            code = failure.exit_code
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    cls=OneLineGroup,
    epilog=_EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Boxes cut names of options on narrow terminals.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(rule_app, name="rule")
app.command()(compare)
app.command()(bisect)
app.command("print")(print_program)
app.command()(memory)
app.command()(partition)
app.command("new-backend")(new_backend)
app.add_typer(fuzz_app, name="fuzz")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Books = Annotated[
    list[str] | None,
    typer.Option("--rules", metavar="BOOK", help="Book that defines operators of the file; repeatable."),
]
ProgramFile = Annotated[Path, typer.Argument(metavar="MODEL.pte", show_default=False)]
MethodName = Annotated[str | None, typer.Option("--method", help="Name of the method.", show_default=False)]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"exirkit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show errors in full, not on one line.")] = False,
) -> None:
    """Lower PyTorch models to ExecuTorch programs; run, inspect and verify them."""


@app.command()
def lower(
    target: Annotated[str, typer.Argument(metavar="MODULE:FACTORY|FILE.pt2", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL.pte", show_default=False)],
    alloc_graph_input: Annotated[bool, typer.Option(help="Plan memory of inputs.")] = True,
    alloc_graph_output: Annotated[bool, typer.Option(help="Plan memory of outputs.")] = True,
    planner: Annotated[
        Planner | None, typer.Option(help="How to plan memory; portfolio if neither this nor a policy says.")
    ] = None,
    memory_policy: Annotated[
        Path | None, typer.Option(metavar="FILE.yaml", help="Plan memory by a policy of pools.", show_default=False)
    ] = None,
    alignment: Annotated[int, typer.Option(min=1, help="Of tensors in memory, in bytes.")] = 16,
    segment_alignment: Annotated[int, typer.Option(min=1, help="Of the parts of the file, in bytes.")] = 128,
    strict: Annotated[bool, typer.Option("--strict", help="Export with TorchDynamo.")] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Let results take the place of arguments that die, where kernels allow.")
    ] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Order independent instructions so that less memory is needed.")
    ] = False,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rules", metavar="BOOK", help="Rewrite with a rule book: a file or a shipped one; repeatable."),
    ] = None,
    check_rules: Annotated[
        bool, typer.Option("--check", help="Check rules of --rules that were never accepted, and stop if one is wrong.")
    ] = False,
    rewrite_limit: Annotated[int | None, typer.Option(min=0, help="Stop after so many applications of rules.")] = None,
    journal: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write what every rule did there.")] = None,
    pipeline: Annotated[
        list[str] | None,
        typer.Option("--pipeline", metavar="FILE", help="Replace or add a step of lowering by a pipeline; repeatable."),
    ] = None,
    partitioner: Annotated[
        list[str] | None,
        typer.Option("--partitioner", metavar="FILE", help="What goes to a backend; also MODULE:CLASS; repeatable."),
    ] = None,
    optimize: Annotated[
        int, typer.Option("-O", min=0, max=2, help="0: not; 1: without any change of results; 2: within tolerances.")
    ] = 1,
    optimize_for: Annotated[Aim, typer.Option(help="What -O2 aims at; size: no larger arena than -O0.")] = Aim.SPEED,
    arena_limit: Annotated[
        int | None, typer.Option(min=0, help="Most bytes of planned memory of a method.", show_default=False)
    ] = None,
    runtime: Annotated[
        str, typer.Option("--target", metavar="FILE", help="What is lowered for: a file, a shipped one, or any.")
    ] = "official_host",
    report: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Also write the report there.")] = None,
    json: Json = False,
) -> None:
    """Lower a model to a program file.

    MODULE is a dotted module or the path of a .py file. FACTORY takes no argument and returns (model, example_inputs),
    (model, example_inputs, dynamic_shapes), an ExportedProgram, or a dict from method names to any of these. FILE.pt2
    is what torch.export.save writes.
    """
    from .model_source import parse_source
    from .output_files import check_writable, write_whole

    source = parse_source(target)
    check_writable(output, ".pte")
    for document in (report, journal):
        if document is not None:
            check_writable(document, ".json")
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from .book_files import expand_books
            from .lowering import LowerOptions, Optimization, lower_source

        choices = LowerOptions(
            output, alloc_graph_input, alloc_graph_output, planner and planner.value, alignment, segment_alignment,
            strict, expand_books(rules or ()), rewrite_limit, journal, tuple(pipeline or ()),
            Optimization(optimize, optimize_for.value, arena_limit, runtime), in_place, schedule, memory_policy,
            tuple(partitioner or ()),
            check_rules,
        )  # fmt: skip
        lowered = lower_source(source, choices, steps)
    if report is not None:
        text = lowered.model_dump_json(indent=2) + "\n"
        write_whole(report, lambda file: file.write(text.encode()))
    if json:
        print_json(lowered)
        return
    from .rendering import print_lowered

    print_lowered(lowered)


@app.command()
def run(
    file: ProgramFile,
    method: MethodName = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", metavar="FILE", help="Inputs from a .npy, .npz or .pt file; may be repeated."),
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Random inputs, the default.")] = False,
    ones: Annotated[bool, typer.Option("--ones", help="Inputs filled with ones.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of random inputs.")] = 0,
    repeat: Annotated[int, typer.Option(min=1, help="Run so many times; state stays.")] = 1,
    save: Annotated[Path | None, typer.Option(metavar="OUT.npz", help="Write the outputs there.")] = None,
    knowing: Annotated[
        bool, typer.Option("--knowing", help="Watch every byte of planned memory; fail on any wrong use.")
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="With --knowing: results may lie over arguments that die.")
    ] = False,
    rules: Books = None,
    json: Json = False,
) -> None:
    """Run a method of a program file on the reference runtime."""
    if sum((bool(inputs), random, ones)) > 1:
        raise CommandError(
            code="EK711", message="--input, --random and --ones exclude each other", exit_code=WRONG_USAGE
        )
    from .output_files import check_writable

    if save is not None:
        check_writable(save, ".npz")
    with Steps() as steps:
        steps("loading torch")
        from .running import RunOptions, run_file

        given = tuple(inputs or ())
        choices = RunOptions(
            method, given, "ones" if ones else "random", seed, repeat, save, knowing, in_place, tuple(rules or ())
        )
        result = run_file(file, choices, steps)
    if json:
        print_json(result)
        return
    from .rendering import print_run

    print_run(result)


@app.command()
def inspect(
    file: ProgramFile,
    method: MethodName = None,
    instructions: Annotated[bool, typer.Option("--instructions", help="List the instructions.")] = False,
    values: Annotated[bool, typer.Option("--values", help="List the value table.")] = False,
    rules: Books = None,
    json: Json = False,
) -> None:
    """Show what is in a program file."""
    from .inspection import inspect_file

    result = inspect_file(file, method=method, instructions=instructions, values=values, rules=tuple(rules or ()))
    if json:
        print_json(result)
        return
    from .rendering import print_inspected

    print_inspected(result)


@app.command()
def verify(
    file: ProgramFile,
    target: Annotated[
        str, typer.Option("--target", metavar="FILE", help="Whose kernels it calls: a file, a shipped one, or any.")
    ] = "official_host",
    rules: Books = None,
    json: Json = False,
) -> None:
    """Check a program file: its form, its meaning, and that the target has its kernels and these take its calls."""
    from .verification import verify_file

    result, texts = verify_file(file, target, tuple(rules or ()))
    if json:
        print_json(result)
    else:
        from .rendering import print_verified

        print_verified(result, texts)
    raise typer.Exit(0 if result.ok else 1)


@app.command()
def demo(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="MODEL.pte", help="Keep the program file.")
    ] = None,
    json: Json = False,
) -> None:
    """Lower MobileNetV2, run it, and compare with eager PyTorch."""
    from .output_files import check_writable

    if output is not None:
        check_writable(output, ".pte")
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from .demonstration import run_demo

        result = run_demo(output, steps)
    if json:
        print_json(result)
        return
    from .rendering import print_demo

    print_demo(result)


@app.command()
def explain(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", show_default=False)] = None, json: Json = False
) -> None:
    """Say what a diagnostic code such as EK101 means; without one, list all."""
    from .code_texts import code_text, read_code_texts
    from .reports import ExplainReport

    codes = [code_text(code)] if code is not None else list(read_code_texts().values())
    if json:
        print_json(ExplainReport(codes=codes))
        return
    from .rendering import print_codes

    print_codes(codes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch has to say to its developers off the terminal.

    Warnings come back with `-W` or `PYTHONWARNINGS`, log records with `EXIRKIT_TRACEBACK=1`.
    """
    disabled = logging.root.manager.disable
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        if not wants_traceback():
            logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)


def _stop_writing() -> None:
    """Let the interpreter end quietly although whoever read our output has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

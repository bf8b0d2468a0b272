"""`exirkit quantization ...`: what quantization does to the values of a model, and what to leave in float."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exirkit.cli.console import Steps, counted, output_to_stderr, print_json, print_line, print_table, source_text
from exirkit.cli.errors import WRONG_USAGE, CommandError
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.model import call_factory, example_leaves, export_target, find_functions, parse_source
from exirkit.cli.options import Json, Libraries, MethodName, ModelTarget, Strict
from exirkit.cli.root import app

from .quantizer import parse_setting

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.passes import FloatModules, QuantizationReport, SearchStep

quantization_app = typer.Typer(
    rich_markup_mode=None,
    help="Measure quantization layer by layer, and choose what stays float.",
    no_args_is_help=True,
)
app.add_typer(quantization_app, name="quantization")

Samples = Annotated[
    str | None,
    typer.Option(
        "--samples",
        metavar="MODULE:FUNCTION",
        help="Function that returns tuples of inputs, to calibrate and to measure with; default: the example inputs.",
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=true|false", help="A setting of the quantizer.", show_default=False),
]


class By(StrEnum):
    """What rows of the table are."""

    CALL = "call"
    MODULE = "module"
    LINE = "line"


@dataclass(frozen=True)
class QuantizationNoiseReport:
    """The document of `exirkit quantization report`.

    Attributes:
        target: The float model.
        quantized: The quantized model, or the quantizer that made it.
        method: The method.
        report: What was measured; see `exirkit.passes.QuantizationReport`.
        modules: The noise of modules, the noisiest first.
        lines: The noise of source lines, the noisiest first.
        html: Where the page is, if one was asked for.
    """

    target: str
    quantized: str
    method: str
    report: QuantizationReport
    modules: list[Any]
    lines: list[Any]
    html: str | None
    ok: bool = True


@quantization_app.command()
def report(
    target: ModelTarget,
    quantized: Annotated[
        str | None,
        typer.Option(
            "--quantized",
            metavar="MODULE:FACTORY|FILE.pt2",
            help="The same model, quantized; default: what --quantizer makes of it.",
            show_default=False,
        ),
    ] = None,
    quantizer: Annotated[
        str | None, typer.Option("--quantizer", metavar="FILE.yaml|NAME", help="Quantizer; default: xnnpack.")
    ] = None,
    settings: Settings = None,
    samples: Samples = None,
    by: Annotated[By, typer.Option(help="What rows of the table are.")] = By.CALL,
    top: Annotated[int, typer.Option(min=0, help="Number of the noisiest rows to list; 0 for all.")] = 20,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page to explore; it needs no network.")
    ] = None,
    method: MethodName = None,
    strict: Strict = False,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Show how much noise quantization adds in each layer of a model, the noisiest first.

    Isolated is the noise of one layer alone, whose inputs are those of the float program; accumulated is what its value
    carries in the quantized program; on results is what the model gives if only this layer is quantized. All are
    signal-to-noise ratios in decibels: less is worse.
    """
    if quantized is not None and (quantizer or settings):
        message = "--quantized gives a model that is quantized already; it does not go with --quantizer and --set"
        raise CommandError(code="EK711", message=message, exit_code=WRONG_USAGE)
    check_writable(html, ".html")
    chosen = dict(map(parse_setting, settings or ()))
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from exirkit.passes import quantization_report, quantize_program
            from exirkit.visualization import quantization_page

        name, plain = _one_program(target, method, steps, strict=strict)
        inputs = _samples(samples, plain, name)
        with output_to_stderr():
            if quantized is None:
                steps("quantizing")
                made = quantize_program(plain, quantizer or "xnnpack", inputs, chosen)
            else:
                _, made = _one_program(quantized, method, steps, strict=strict)
            steps("measuring")
            measured = quantization_report(plain, made, inputs)
    title = f"{target}, {quantized or quantizer or 'xnnpack'}"
    if html is not None:
        write_text(html, quantization_page(measured, title))
    if json:
        shown = None if html is None else os.fspath(html)
        maker = quantized or quantizer or "xnnpack"
        modules, lines = measured.by_module(), measured.by_line()
        print_json(QuantizationNoiseReport(target, maker, name, measured, modules, lines, shown))
    else:
        _print_report(measured, name, by, top)
        if html is not None:
            print_line(f"written: {html}")


def _one_program(target: str, method: str | None, steps: Steps, *, strict: bool) -> tuple[str, ExportedProgram]:
    """Return the name and the program of the method to measure.

    Raises:
        CommandError: EK711, there is no such method, or there are several and none is named; EK713 to EK718, the
            target gives no exported program.
    """
    programs = export_target(parse_source(target), steps, strict=strict).only(method).programs
    if len(programs) > 1:
        names = ", ".join(sorted(programs))
        message = f"{target} has {counted(len(programs), 'method')}: {names}"
        raise CommandError(code="EK711", message=message, hint="choose one with --method", exit_code=WRONG_USAGE)
    ((name, program),) = programs.items()
    return name, program


def _samples(text: str | None, program: ExportedProgram, method: str) -> list[tuple[Any, ...]]:
    """Return the samples that a function gives, or the example inputs as the only one.

    Raises:
        CommandError: EK713 to EK716, there is no such function, it raised, or it returned something else.
    """
    if text is None:
        return [tuple(example_leaves(program, method))]
    source = parse_source(text)
    made = call_factory(source) if source.factory else None
    found: list[Any] = list(made) if isinstance(made, Iterable) else [None]
    if not all(isinstance(one, tuple) for one in found):
        message = f"{text} did not return tuples of inputs"
        raise CommandError(code="EK716", message=message, hint="return a list such as [(x,), (y,)]")
    return found


def decibels_text(value: float | None) -> str:
    """Return a ratio as tables show it."""
    if value is None:
        return ""
    return f"{value:.1f}" if math.isfinite(value) else "exact" if value > 0 else "noise only"


def _print_report(measured: QuantizationReport, method: str, by: By, top: int) -> None:
    results = ", ".join(decibels_text(one.accumulated) for one in measured.results) or "no floats"
    print_line(f"{method}: results {results} dB, {counted(measured.samples, 'sample')}")
    ratios = [">isolated dB", ">accumulated dB", ">on results dB"]
    if by is By.CALL:
        layers = measured.ranked()
        rows = [[one.call, one.operator, one.module or "", *_ratios(one), source_text(one.source)] for one in layers]
        columns = ["call", "operator", "module", *ratios, "source"]
    else:
        groups = measured.by_module() if by is By.MODULE else measured.by_line()
        unknown = "(the model itself)" if by is By.MODULE else "(unknown)"
        rows = [[source_text(one.name) or unknown, str(len(one.calls)), *_ratios(one)] for one in groups]
        columns = [by.value, ">calls", *ratios]
    print_table(columns, rows[: top or None])
    if top and len(rows) > top:
        print_line(f"... and {len(rows) - top} with less noise; --top 0 lists all")
    if measured.missing:
        names = ", ".join(measured.missing[:10]) + (", ..." if len(measured.missing) > 10 else "")
        print_line(f"without a counterpart in the quantized program: {names}")


def _ratios(one: Any) -> list[str]:
    return [decibels_text(value) for value in (one.isolated, one.accumulated, one.on_results)]


class CostName(StrEnum):
    """What leaving modules in float may cost."""

    BYTES = "bytes"
    LATENCY = "latency"


@dataclass(frozen=True)
class FloatModulesReport:
    """The document of `exirkit quantization search`.

    Attributes:
        target: The float model.
        quantizer: The quantizer.
        method: The method.
        modules: The modules to leave in float.
        layers: How many calls the quantizer quantizes if it leaves none of them.
        left: How many of these it leaves.
        score: The accuracy that is reached.
        cost: What the program costs, in bytes of weights or estimated nanoseconds.
        steps: All that was tried.
        output: Where the quantizer that leaves them is, if it was asked for.
    """

    target: str
    quantizer: str
    method: str
    modules: list[str]
    layers: int
    left: int
    score: float
    cost: float
    steps: list[SearchStep]
    output: str | None
    ok: bool = True


@quantization_app.command()
def search(
    target: ModelTarget,
    at_least: Annotated[
        float, typer.Option("--at-least", metavar="NUMBER", help="Accuracy that is asked: decibels, or of --metric.")
    ],
    quantizer: Annotated[str, typer.Option("--quantizer", metavar="FILE.yaml|NAME", help="The quantizer.")] = "xnnpack",
    settings: Settings = None,
    samples: Samples = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Takes a model and returns how good it is; default: signal to noise of the worst result in decibels.",
            show_default=False,
        ),
    ] = None,
    cost: Annotated[
        CostName, typer.Option(help="Bytes of the weights, or latency as estimated for official_host.")
    ] = CostName.BYTES,
    limit: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="The most that the program may cost.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.yaml", help="Write the quantizer that leaves these modules."),
    ] = None,
    method: MethodName = None,
    strict: Strict = False,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Find modules to leave in float until a quantized model is accurate enough, at little cost."""
    check_writable(output, ".yaml")
    chosen = dict(map(parse_setting, settings or ()))
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from exirkit.passes import load_quantizer, search_float_modules, stored_bytes

        policy = load_quantizer(quantizer)
        measure = None if metric is None else find_functions(parse_source(metric), metric.rpartition(":")[2])[0]
        name, plain = _one_program(target, method, steps, strict=strict)
        inputs = _samples(samples, plain, name)
        with output_to_stderr():
            steps("searching")
            found = search_float_modules(
                plain,
                policy,
                inputs,
                at_least,
                settings=chosen,
                metric=measure,
                cost=_latency if cost is CostName.LATENCY else stored_bytes,
                limit=math.inf if limit is None else limit,
            )
    if output is not None:
        _write_quantizer(quantizer, found, output)
    shown = None if output is None else os.fspath(output)
    made = FloatModulesReport(
        target, quantizer, name, list(found.modules), found.layers, found.left, found.score, found.cost,
        list(found.steps), shown,
    )  # fmt: skip
    if json:
        print_json(made)
    else:
        _print_search(made, "bytes" if cost is CostName.BYTES else "ns", "dB" if metric is None else "")


def _latency(program: ExportedProgram) -> float:
    """Return the estimated time of a program in nanoseconds, without a delegate; unknown calls cost nothing."""
    from exirkit.patterns import read_target
    from exirkit.program import to_edge

    described = read_target("official_host")
    calls = to_edge(program).exported_program().graph.nodes
    return sum(each for node in calls if math.isfinite(each := described.cost_of(node)))


def _write_quantizer(quantizer: str, found: FloatModules, output: Path) -> None:
    from exirkit.passes import leaving_text, quantizer_text

    write_text(output, leaving_text(quantizer_text(quantizer), found))


def _print_search(made: FloatModulesReport, unit: str, scale: str) -> None:
    rows = [[one.module or "(all quantized)", f"{one.score:.4g}", f"{one.cost:,.0f}"] for one in made.steps]
    print_table(["left in float as well", f">accuracy {scale}".rstrip(), f">{unit}"], rows)
    names = ", ".join(made.modules) or "nothing"
    print_line(f"leave {names}: {made.left} of {counted(made.layers, 'layer')}, {made.score:.4g} {scale}".rstrip())
    if made.output is not None:
        print_line(f"written: {made.output}")

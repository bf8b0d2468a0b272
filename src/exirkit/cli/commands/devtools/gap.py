"""`exirkit gap`: how far each instruction is from eager PyTorch, and the pass or rule that made it so."""

from __future__ import annotations

import json as json_module
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exirkit.cli.choices import Lowering, choose_partitioners, choose_pipelines
from exirkit.cli.commands.compare import WrongStepReport, describe_step, print_findings
from exirkit.cli.console import Steps, counted, output_to_stderr, print_json, print_line, print_table, source_text
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.model import example_leaves, export_target, parse_source
from exirkit.cli.options import (
    Atol,
    Executor,
    ExecutorName,
    Json,
    Level,
    LevelTarget,
    Libraries,
    MethodName,
    ModelTarget,
    Partitioners,
    Passes,
    Pipelines,
    Rtol,
    Rules,
    Strict,
)
from exirkit.cli.root import app
from exirkit.cli.tracing import tracing_errors

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.fuzz import LoweringChoices, MethodGap, Tolerances, TracedRuntime, ValueGap
    from exirkit.ir import Diagnostic


class Measure(StrEnum):
    """What is printed of a difference."""

    RELATIVE = "relative"
    MSE = "MSE"
    L1 = "L1"
    SNR = "SNR"


@dataclass(frozen=True)
class GapReport:
    """The document of `exirkit gap`.

    Attributes:
        ok: Whether nothing is off by more than the tolerances allow.
        target: The model.
        runtime: Who ran the program.
        measure: What `value` of an instruction is.
        inputs: What the inputs are.
        methods: The result of every method: `name`, `ok`, how many `calls` it has, the `instructions` that were
            compared, the gaps of its `outputs`, the wrong `step`, and the node that was `followed` to find it.
        output: The file that was written.
        diagnostics: The findings.
    """

    ok: bool
    target: str
    runtime: str
    measure: str
    inputs: str
    methods: list[dict[str, Any]]
    output: str | None
    diagnostics: list[Diagnostic]


@app.command()
def gap(
    target: ModelTarget,
    rules: Rules = None,
    pipeline: Pipelines = None,
    passes: Passes = None,
    partitioner: Partitioners = None,
    method: MethodName = None,
    optimize: Level = 1,
    level_target: LevelTarget = "official_host",
    strict: Strict = False,
    runtime: ExecutorName = Executor.REFERENCE,
    measure: Annotated[
        Measure, typer.Option(help="Largest difference relative to the largest value, mean square, sum, or dB.")
    ] = Measure.RELATIVE,
    rtol: Rtol = None,
    atol: Atol = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draw inputs instead of the example inputs.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Number of instructions to print; 0 for all.")] = 20,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.json", help="Write the gaps for `exirkit report --gaps`."),
    ] = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Compare every instruction with eager PyTorch: exit code 1 if one is off, and the pass or rule that made it so.

    The model is lowered and run with tracing on. Each value is compared with that of the ATen operator of the exported
    program from which the instruction comes. The first step of the lowering after which values are off is named, and
    the application of a rule where the step applies rules.
    """
    source = parse_source(target)
    check_writable(output, ".json")
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from exirkit.fuzz import Tolerances, TracedRuntime, drawn_inputs
        # Files are read before the model is exported, which may take long.
        choices = Lowering(optimize, rules, pipeline, passes, level_target).choices()
        with output_to_stderr():
            partitioners = choose_partitioners(partitioner, choose_pipelines(pipeline))
        exported = export_target(source, steps, strict=strict)
        chosen = exported.only(method)
        inputs = {name: example_leaves(program, name) for name, program in chosen.programs.items()}
        if seed is not None:
            inputs = {name: drawn_inputs(example, seed) for name, example in inputs.items()}
        found = find_gaps(
            steps,
            exported.programs,
            inputs,
            replace(choices, partitioners=tuple(partitioners)),
            measure=measure.value,
            tolerances=Tolerances(rtol, atol),
            runtime=TracedRuntime(runtime.value),
        )
        if output is not None:
            write_text(output, json_module.dumps(gap_document(found), indent=1) + "\n")
    report = GapReport(
        ok=all(one.ok for one in found),
        target=source.text,
        runtime=runtime.value,
        measure=measure.value,
        inputs="example inputs" if seed is None else f"drawn with seed {seed}",
        methods=[_document(one) for one in found],
        output=None if output is None else os.fspath(output),
        diagnostics=[one for each in found if not each.ok for one in [finding_of(each)]],
    )
    if json:
        print_json(report)
    else:
        _print(report, found, top)
    raise typer.Exit(0 if report.ok else 1)


def find_gaps(
    steps: Steps,
    programs: Mapping[str, ExportedProgram],
    inputs: Mapping[str, Sequence[Any]],
    choices: LoweringChoices,
    *,
    measure: str = Measure.RELATIVE,
    tolerances: Tolerances | None = None,
    runtime: TracedRuntime | None = None,
) -> list[MethodGap]:
    """Lower programs with a snapshot after every pass, and compare instructions of some methods with eager PyTorch.

    Args:
        steps: Where progress is shown.
        programs: The exported programs by method.
        inputs: Flat inputs of the methods to compare.
        choices: How the programs are lowered.
        measure: What a gap is.
        tolerances: What an element may be off.
        runtime: Who runs the program; the reference runtime if absent.

    Raises:
        Exception: What ended the lowering.
    """
    from exirkit.fuzz import TracedRuntime, gap_to_eager, lower_in_steps
    from exirkit.fuzz import with_debug_handles as handled

    with steps.phase("lower in steps", "lowering, with a snapshot after every pass"), output_to_stderr():
        lowered = lower_in_steps({name: handled(program) for name, program in programs.items()}, choices)
    if lowered.failure is not None:
        raise lowered.failure
    found = []
    with output_to_stderr(), tracing_errors():
        for name in sorted(inputs):
            steps(f"comparing {name}")
            found.append(
                gap_to_eager(
                    name,
                    lowered,
                    inputs[name],
                    measure=measure,
                    tolerances=tolerances,
                    runtime=runtime or TracedRuntime.REFERENCE,
                )
            )
    return found


def gap_document(found: Sequence[MethodGap]) -> dict[str, list[dict[str, Any]]]:
    """Return relative gaps as `exirkit report --gaps` reads them."""
    from exirkit.fuzz import measured_gaps

    return {
        name: [{"instruction": one.instruction, "value": one.value, "note": one.note} for one in listed]
        for name, listed in measured_gaps(found).items()
    }


def _document(found: MethodGap) -> dict[str, Any]:
    return {
        "name": found.method,
        "ok": found.ok,
        "calls": found.calls,
        "instructions": [
            {
                "instruction": one.instruction,
                "kernel": one.kernel,
                "operator": one.operator,
                "node": one.node,
                "nodes": one.nodes,
                "value": one.measure,
                "gap": one.gap,
            }
            for one in found.instructions
        ],
        "outputs": found.outputs,
        "step": WrongStepReport.of(found.step),
        "followed": found.followed,
    }


def finding_of(found: MethodGap) -> Diagnostic:
    """Return EK735, the step that made the gap, or EK775 if there is none."""
    from exirkit.ir import Diagnostic, Location

    if found.step is not None:
        return describe_step(found.step)
    first = found.wrong[0] if found.wrong else None
    where = "an output" if first is None else f"instruction {first.instruction}, {first.kernel}"
    text = next(one.text for one in found.outputs if one.is_bad) if first is None else first.gap.text
    place = Location(method=found.method)
    if first is not None:
        place = Location(
            method=found.method, node=f"%{first.node.name}", source=first.node.source, module=first.node.module
        )
    return Diagnostic.of(
        "EK775",
        f"{where}, differs from eager PyTorch on the {found.runtime} runtime, and no step of the lowering does",
        location=place,
        notes=(text,),
    )


def _print(report: GapReport, found: Sequence[MethodGap], top: int) -> None:
    print_line(f"{report.target}, {report.runtime} runtime against eager PyTorch; {report.inputs}")
    for method in found:
        print_line()
        shown = _shown(method, top)
        columns = [">at", "kernel", "ATen operator", "node", "module", "source", f">{report.measure}", ""]
        rows = [
            (
                one.instruction, one.kernel, one.operator, f"%{one.node.name}", one.node.module or "",
                source_text(one.node.source), f"{one.measure:.3g}", _verdict(one.gap),
            )
            for one in shown
        ]  # fmt: skip
        compared = f"{len(method.instructions)} of {counted(method.calls, 'instruction')} compared"
        title = f"{method.method}: {compared}" + (
            f", {len(shown)} shown" if len(shown) < len(method.instructions) else ""
        )
        print_table(columns, rows, title=title)
    print_findings(report.diagnostics)
    for method in found:
        wrong = counted(len(method.wrong), "instruction") + " off" if method.wrong else "all within the tolerances"
        outputs = sum(one.is_bad for one in method.outputs)
        print_line(f"{method.method}: {wrong}" + (f", {counted(outputs, 'output')} off" if outputs else ""))
    if report.output is not None:
        print_line(f"gaps are in {report.output}")


def _shown(method: MethodGap, top: int) -> Sequence[Any]:
    """Return the instructions that are farthest off, in the order of the program; with the first one that is off."""
    rows = method.instructions
    if not top or len(rows) <= top:
        return rows
    order = sorted(range(len(rows)), key=lambda at: (-rows[at].gap.is_bad, -rows[at].gap.relative, at))
    first = next((at for at, one in enumerate(rows) if one.gap.is_bad), None)
    kept = set(order[:top]) if first is None else {first, *order[: top - 1]}
    return [one for at, one in enumerate(rows) if at in kept]


def _verdict(gap: ValueGap) -> str:
    return f"OFF: {gap.text}" if gap.is_bad else "equal" if gap.kind == "equal" else "within"

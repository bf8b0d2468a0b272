"""A page of a lowering with its numeric gap and times, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from torch.export import ExportedProgram

from exirkit.emit import read_trace, replaced_file
from exirkit.ir import DiagnosticError, pytree
from exirkit.passes import ApplyRules
from exirkit.program import EdgeProgramManager, ExecutorchProgramManager, lower_to_backends, to_edge
from exirkit.visualization import (
    LoweringRecord,
    Measured,
    ReportOptions,
    report_document,
    report_page,
    times_of_trace,
    versions,
)

from .eager_gap import MethodGap, gap_to_eager, with_debug_handles
from .lowering_steps import LoweringChoices, lower_in_steps
from .traced_runs import TracedRuntime, trace_runs

# Runs whose times are averaged.
_RUNS = 5
# Where all should be zero, no number says how far it is off; JSON has no infinity.
_MOST_RELATIVE = 1e9


@dataclass(frozen=True)
class MeasuredReport:
    """What a page shows, as far as one wants to go on with it.

    Attributes:
        manager: What became of the programs; None if the lowering failed.
        failure: What ended the lowering.
        gaps: The numeric gap of each method: instructions, outputs, and the step that made the first difference.
        times: Nanoseconds by instruction, for each method.
    """

    manager: ExecutorchProgramManager | None
    failure: Sequence[str]
    gaps: Sequence[MethodGap]
    times: Mapping[str, Sequence[Measured]]


def write_measured_report(
    programs: ExportedProgram | Mapping[str, ExportedProgram],
    path: str | PathLike[str],
    choices: LoweringChoices | None = None,
    *,
    inputs: Mapping[str, Sequence[Any]] | None = None,
    runtime: TracedRuntime = TracedRuntime.REFERENCE,
    title: str = "program",
    with_sources: bool = True,
) -> MeasuredReport:
    """Lower programs, run them, and write a page with every pass, the numeric gap and the time of each instruction.

    Args:
        programs: One program, which becomes the method `forward`, or programs by method.
        path: The page.
        choices: What to lower them with.
        inputs: Flat inputs by method; the example inputs where a method is not in it. A method that has neither is
            not run, and the page says so.
        runtime: Who runs them.
        title: What the page is called.
        with_sources: Whether the page has the files of the model.

    Raises:
        NotTracedError: The official runtime is not there, or did not run the file.
        DiagnosticError: The reference runtime did not.
        OSError: The page cannot be written.
    """
    named = dict(programs) if isinstance(programs, Mapping) else {"forward": programs}
    choices = choices or LoweringChoices()
    flat = {
        name: (inputs or {}).get(name) or pytree.tree_leaves(program.example_inputs)
        for name, program in named.items()
        if name in (inputs or {}) or program.example_inputs is not None
    }
    record = LoweringRecord(named)
    manager, failure = lower_recorded(named, choices, record)
    facts = versions()
    gaps: list[MethodGap] = []
    times: dict[str, list[Measured]] = {}
    if manager is not None:
        facts |= {f"run of {name}": "none: it has no example inputs" for name in named if name not in flat}
        times = measured_times(bytes(manager.buffer), flat, runtime)
        steps = lower_in_steps({name: with_debug_handles(program) for name, program in named.items()}, choices)
        gaps = [gap_to_eager(name, steps, flat[name], runtime=runtime) for name in sorted(flat)]
        facts |= {f"numeric gap of {one.method}": _verdict(one) for one in gaps}
    options = ReportOptions(
        title=title, facts=facts, times=times, gaps=measured_gaps(gaps), failure=failure, with_sources=with_sources
    )
    page = report_page(report_document(record, manager, options))
    with replaced_file(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return MeasuredReport(manager, failure, gaps, times)


def lower_recorded(
    exported: Mapping[str, ExportedProgram], choices: LoweringChoices, record: LoweringRecord
) -> tuple[ExecutorchProgramManager | None, list[str]]:
    """Lower programs and record it; return the result, and what ended the lowering if something did."""

    def transform(edge: EdgeProgramManager) -> EdgeProgramManager:
        steps: list[Any] = [*choices.passes, *choices.on_edge]
        if choices.rules:
            steps.insert(0, ApplyRules(list(choices.rules), choices.rewriting))
        return edge.transform(steps) if steps else edge

    try:
        with record.watching():
            if choices.partitioners:
                edge = lower_to_backends(dict(exported), list(choices.partitioners), transform)
                delegated = {name: edge.exported_program(name) for name in exported}
                record.add("to-backend", delegated, "Give parts of the program to backends.")
            else:
                edge = transform(to_edge(dict(exported), pipeline=choices.to_edge))
            return edge.to_executorch(choices.config, pipeline=choices.to_executorch), []
    except DiagnosticError as error:
        return None, [one.render() for one in error.diagnostics]


def measured_times(
    data: bytes, inputs: Mapping[str, Sequence[Any]], runtime: TracedRuntime = TracedRuntime.REFERENCE
) -> dict[str, list[Measured]]:
    """Return how long each instruction of a program file takes on average over some runs, by method."""
    return {
        name: times_of_trace(read_trace(trace_runs(data, name, leaves, runtime=runtime, runs=_RUNS).etdump))
        for name, leaves in inputs.items()
    }


def measured_gaps(found: Sequence[MethodGap]) -> dict[str, list[Measured]]:
    """Return relative gaps as a report shows them."""
    return {
        method.method: [
            Measured(
                min(one.gap.relative, _MOST_RELATIVE),
                one.instruction,
                note=f"{one.operator} %{one.node.name}" + (f": {one.gap.text}" if one.gap.is_bad else ""),
            )
            for one in method.instructions
        ]
        for method in found
    }


def _verdict(found: MethodGap) -> str:
    if found.ok:
        return f"{len(found.instructions)} of {found.calls} instructions compared, all within the tolerances"
    step = "" if found.step is None else f" since {found.step.stage}"
    made_by = None if found.step is None else found.step.application
    rule = "" if made_by is None else f", rule {made_by.rule}"
    return f"{len(found.wrong)} instructions are off{step}{rule}"

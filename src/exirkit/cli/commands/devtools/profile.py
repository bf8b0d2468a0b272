"""`exirkit profile`: where the time of a program goes, by operator, module and source line."""

from __future__ import annotations

import json as json_module
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exirkit.cli.choices import Lowering, choose_partitioners, choose_pipelines
from exirkit.cli.console import Steps, counted, output_to_stderr, print_json, print_line, print_table, source_text
from exirkit.cli.errors import usage_error
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.model import example_leaves, export_target, parse_source
from exirkit.cli.options import (
    DataFiles,
    Executor,
    ExecutorName,
    Json,
    Level,
    LevelTarget,
    Libraries,
    MethodName,
    Partitioners,
    Passes,
    Pipelines,
    Rules,
    Strict,
)
from exirkit.cli.root import app
from exirkit.cli.tracing import tracing_errors

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.devtools import ETRecord, GroupTimes, InstructionTimes, MethodProfile

_EAGER = "eager"
_TABLES = ("operators", "modules", "sources")


@dataclass(frozen=True)
class MethodReport:
    """The times of one method, in nanoseconds.

    Attributes:
        name: Its name.
        median_ns: Median of the runs.
        totals: Each run.
        operators: Times by kernel or backend, longest first.
        modules: Times by module, without those in it.
        sources: Times by line of the model.
        instructions: Times by instruction, in the order of the program.
    """

    name: str
    median_ns: float
    totals: list[float]
    operators: list[GroupTimes]
    modules: list[GroupTimes]
    sources: list[GroupTimes]
    instructions: list[dict[str, Any]]


@dataclass(frozen=True)
class ProfileReport:
    """The document of `exirkit profile`.

    Attributes:
        ok: True.
        target: The model or file.
        runtime: Who ran it.
        runs: How many runs were measured.
        warmup: How many runs before these were not.
        methods: The times of every method.
        against: What it is compared with: `target`, its `methods`, and a table of `ratios` by method.
        trace: The file with the trace.
    """

    ok: bool
    target: str
    runtime: str
    runs: int
    warmup: int
    methods: list[MethodReport]
    against: dict[str, Any] | None
    trace: str | None


@dataclass(frozen=True)
class _Subject:
    """A program to run.

    Attributes:
        data: The file.
        inputs: Flat inputs by method.
        records: What is known of the lowering, by method.
        exported: Of a model, what was lowered, by method.
    """

    data: bytes
    inputs: Mapping[str, Sequence[Any]]
    records: Mapping[str, ETRecord]
    exported: Mapping[str, ExportedProgram] = field(default_factory=dict)


@app.command()
def profile(
    target: Annotated[str, typer.Argument(metavar="MODULE:FACTORY|FILE.pt2|FILE.pte", show_default=False)],
    against: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help="Compare with this model or file, or with `eager`: PyTorch.", show_default=False
        ),
    ] = None,
    rules: Rules = None,
    pipeline: Pipelines = None,
    passes: Passes = None,
    partitioner: Partitioners = None,
    method: MethodName = None,
    optimize: Level = 1,
    level_target: LevelTarget = "official_host",
    strict: Strict = False,
    runtime: ExecutorName = Executor.REFERENCE,
    runs: Annotated[int, typer.Option(min=1, help="Number of runs that are measured.")] = 10,
    warmup: Annotated[int, typer.Option(min=0, help="Number of runs before these.")] = 2,
    etrecord: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Record of the lowering of a .pte file: modules and lines.", show_default=False
        ),
    ] = None,
    data: DataFiles = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs of a .pte file.")] = 0,
    top: Annotated[int, typer.Option(min=1, help="Rows of each table.")] = 10,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write a trace for Perfetto and chrome://tracing.")
    ] = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Measure where the time of a program goes: by instruction, operator, module and source line.

    A model is lowered first and runs on its example inputs, a file on random ones. Times are medians over the runs.
    """
    check_writable(trace, ".json")
    if etrecord is not None and not target.endswith(".pte"):
        raise usage_error("--etrecord belongs to a .pte file: what is lowered here is known")
    if against == _EAGER and target.endswith(".pte"):
        raise usage_error("--against eager belongs to a model: a .pte file does not have the program that PyTorch runs")
    lowering = Lowering(optimize, rules, pipeline, passes, level_target)
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from exirkit.devtools import trace_events

        def subject_of(text: str, record: Path | None) -> _Subject:
            if text.endswith(".pte"):
                return _of_file(Path(text), record, rules, seed, steps)
            return _of_model(text, lowering, partitioner, strict, steps)

        def profiled(subject: _Subject) -> list[MethodProfile]:
            with tracing_errors(), output_to_stderr():
                return _profiles(subject, method, runtime, (warmup, runs), data or (), steps)

        subject = subject_of(target, etrecord)
        found = profiled(subject)
        others = None
        if against == _EAGER:
            others = _eager_profiles(subject, [one.method for one in found], (warmup, runs), steps)
        elif against is not None:
            others = profiled(subject_of(against, None))
        if trace is not None:
            document = {"traceEvents": trace_events(found), "displayTimeUnit": "ns"}
            write_text(trace, json_module.dumps(document) + "\n")
    report = ProfileReport(
        ok=True,
        target=target,
        runtime=runtime.value,
        runs=runs,
        warmup=warmup,
        methods=[_report(one) for one in found],
        against=None if others is None or against is None else _against(against, found, others),
        trace=None if trace is None else os.fspath(trace),
    )
    if json:
        print_json(report)
    else:
        _print(report, top)


def _of_model(target: str, lowering: Lowering, partitioner: list[str] | None, strict: bool, steps: Steps) -> _Subject:
    from exirkit.fuzz import lower_in_steps, record_of, with_debug_handles

    source = parse_source(target)
    # Files are read before the model is exported, which may take long.
    choices = lowering.choices()
    with output_to_stderr():
        partitioners = choose_partitioners(partitioner, choose_pipelines(lowering.pipelines))
    exported = export_target(source, steps, strict=strict)
    inputs = {name: example_leaves(program, name) for name, program in exported.programs.items()}
    with steps.phase("lower", "lowering"), output_to_stderr():
        programs = {name: with_debug_handles(program) for name, program in exported.programs.items()}
        lowered = lower_in_steps(programs, replace(choices, partitioners=tuple(partitioners)))
    if lowered.failure is not None:
        raise lowered.failure
    assert lowered.manager is not None, "it did not fail"
    records = {name: record_of(lowered.manager, name, program) for name, program in programs.items()}
    return _Subject(bytes(lowered.manager.buffer), inputs, records, programs)


def _of_file(path: Path, record: Path | None, rules: list[str] | None, seed: int, steps: Steps) -> _Subject:
    import torch

    from exirkit.cli.input_files import make_inputs
    from exirkit.cli.program_file import register_operators
    from exirkit.devtools import ETRecord, parse_etrecord
    from exirkit.emit import DelegateCall, open_program

    # The runtime knows the shipped backends when their module is imported.
    import_module("exirkit.program.demo_backend")
    register_operators(rules)
    given = None if record is None else parse_etrecord(record)
    steps(f"loading {path}")
    inputs, records = {}, {}
    with open_program(path) as file:
        for plan in file.program.execution_plan:
            inputs[plan.name] = make_inputs(plan, "random", torch.Generator().manual_seed(seed))
            # The file says which backends it calls, and nothing of modules and lines.
            names = {
                at: {"name": plan.delegates[call.delegate_index].id}
                for chain in plan.chains
                for at, one in enumerate(chain.instructions)
                if isinstance(call := one.instr_args, DelegateCall)
            }
            records[plan.name] = given or ETRecord(debug_handle_map={plan.name: {}}, delegate_map={plan.name: names})
    return _Subject(path.read_bytes(), inputs, records)


def _profiles(
    subject: _Subject,
    method: str | None,
    runtime: Executor,
    counts: tuple[int, int],
    data: Sequence[Path],
    steps: Steps,
) -> list[MethodProfile]:
    from exirkit.cli.errors import unknown_name
    from exirkit.devtools import Inspector, TimeScale, profile_of
    from exirkit.fuzz import TracedRuntime, trace_runs

    if method is not None and method not in subject.inputs:
        raise unknown_name("the program has no method", method, list(subject.inputs))
    warmup, runs = counts
    found = []
    for name in sorted(subject.inputs) if method is None else [method]:
        steps(f"running {name}")
        traced = trace_runs(
            subject.data,
            name,
            subject.inputs[name],
            runtime=TracedRuntime(runtime.value),
            runs=warmup + runs,
            data_files=data,
        )
        inspector = Inspector(etdump_data=traced.etdump, etrecord=subject.records[name], target_time_scale=TimeScale.NS)
        found.append(profile_of(inspector, name, warmup=warmup))
    return found


def _eager_profiles(
    subject: _Subject, methods: Sequence[str], counts: tuple[int, int], steps: Steps
) -> list[MethodProfile]:
    from exirkit.fuzz import profile_eagerly

    found = []
    for name in methods:
        steps(f"running {name} in eager PyTorch")
        warmup, runs = counts
        found.append(profile_eagerly(name, subject.exported[name], subject.inputs[name], runs=runs, warmup=warmup))
    return found


def _report(found: MethodProfile) -> MethodReport:
    return MethodReport(
        name=found.method,
        median_ns=found.median_ns,
        totals=found.totals,
        operators=found.by_operator(),
        modules=found.by_module(),
        sources=found.by_source(),
        instructions=[_instruction(one) for one in found.instructions],
    )


def _instruction(one: InstructionTimes) -> dict[str, Any]:
    from statistics import median

    return {
        "chain": one.chain,
        "instruction": one.instruction,
        "kernel": one.kernel,
        "executions": one.executions,
        "median_ns": median(one.totals),
        "operators": one.operators,
        "module": one.module,
        "source": one.source,
    }


def _against(target: str, found: Sequence[MethodProfile], others: Sequence[MethodProfile]) -> dict[str, Any]:
    """Return the other program and, for methods that both have, medians side by side."""
    theirs = {one.method: one for one in others}
    ratios = {
        one.method: {
            "operators": _ratios(one.by_operator(), other.by_operator()),
            "modules": _ratios(one.by_module(), other.by_module()),
        }
        for one in found
        if (other := theirs.get(one.method)) is not None
    }
    return {"target": target, "methods": [_report(one) for one in others], "ratios": ratios}


def _ratios(mine: Sequence[GroupTimes], theirs: Sequence[GroupTimes]) -> list[dict[str, Any]]:
    """Return medians of both by name; the ratio is that of the other to this one, None where one of them has none."""
    here, there = ({one.name: one.median_ns for one in groups} for groups in (mine, theirs))
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys((*here, *there)):
        one, other = here.get(name), there.get(name)
        ratio = other / one if one and other is not None else None
        rows.append({"name": name, "median_ns": one, "other_ns": other, "ratio": ratio})
    return sorted(rows, key=lambda row: (-max(row["median_ns"] or 0, row["other_ns"] or 0), row["name"]))


def _print(report: ProfileReport, top: int) -> None:
    print_line(f"{report.target} on the {report.runtime} runtime: medians of {counted(report.runs, 'run')}")
    for method in report.methods:
        print_line()
        executions = sum(one["executions"] for one in method.instructions)
        print_line(f"{method.name}: {_time(method.median_ns)}, {counted(executions, 'call')}", style="bold")
        for kind in _TABLES:
            groups: list[GroupTimes] = getattr(method, kind)
            if not any(one.name for one in groups):
                continue
            rows = [
                (_named(kind, one.name), one.executions, _time(one.median_ns), f"{one.share:.1%}")
                for one in groups[:top]
            ]
            more = f", {len(groups) - top} more" if len(groups) > top else ""
            print_table([kind[:-1], ">calls", ">time", ">share"], rows, title=f"by {kind[:-1]}{more}")
            print_line()
    if report.against is not None:
        _print_ratios(report.against, top)
    if report.trace is not None:
        print_line(f"trace is in {report.trace}")


def _print_ratios(against: Mapping[str, Any], top: int) -> None:
    for name, tables in against["ratios"].items():
        for kind, rows in tables.items():
            if not any(row["name"] for row in rows):
                continue
            shown = [
                (
                    _named(kind, row["name"]),
                    _time(row["median_ns"]),
                    _time(row["other_ns"]),
                    "" if row["ratio"] is None else f"{row['ratio']:.2f}",
                )
                for row in rows[:top]
            ]
            columns = [kind[:-1], ">time", ">other", ">other / this"]
            print_table(columns, shown, title=f"{name} against {against['target']}, by {kind[:-1]}")
            print_line()
    missing = [one.name for one in against["methods"] if one.name not in against["ratios"]]
    if missing:
        print_line(f"only in {against['target']}: {', '.join(missing)}")


def _named(kind: str, name: str) -> str:
    if kind == "sources":
        return source_text(name) if name else "(unknown)"
    return name or ("(the model itself)" if kind == "modules" else "(unknown)")


def _time(nanoseconds: float | None) -> str:
    if nanoseconds is None:
        return ""
    return f"{nanoseconds / 1e6:.3f} ms" if nanoseconds >= 1e6 else f"{nanoseconds / 1e3:.1f} us"

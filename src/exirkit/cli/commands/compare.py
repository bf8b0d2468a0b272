"""`exirkit compare`: eager torch, the reference runtime and the official runtime on one program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exirkit.cli.choices import Lowering
from exirkit.cli.console import Steps, output_to_stderr, print_json, print_line, print_table, print_text
from exirkit.cli.errors import CommandError
from exirkit.cli.model import ExportedTarget, example_leaves, export_target, parse_source
from exirkit.cli.options import (
    Atol,
    Json,
    Level,
    LevelTarget,
    Libraries,
    MethodName,
    ModelTarget,
    Passes,
    Pipelines,
    Rtol,
    Rules,
    Runs,
    Seed,
    Strict,
)
from exirkit.cli.root import app

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.fuzz import (
        ComparedFile,
        LoweringSteps,
        MethodComparison,
        NodePlace,
        Official,
        RuntimeDifference,
        Tolerances,
        ValueGap,
        WrongStep,
    )
    from exirkit.ir import Diagnostic, Location

# Of outputs that agree, the worst of each executor is enough to see how close they are.
_MOST_ROWS = 12
_COLUMNS = ["executor", ">run", ">output", "type", ">largest error", ">relative", ">allowed", "verdict", ""]


@dataclass(frozen=True)
class WrongStepReport:
    """The first step of lowering after which results are wrong.

    Attributes:
        stage: Name of the pass.
        pipeline: File of the pipeline that it is in; empty for a pass that was given by itself.
        after: The pass before.
        result: Which result is off.
        gap: How far; absent if the program records what is not true, as `failure` explains.
        failure: What is not true.
        rule: Id of the rule, if the pass applies rules.
        rule_place: File and line of the rule.
        application: Number of its application, from 1.
        rewritten: Names of the nodes that it rewrites.
        node: First node whose value differs.
        node_gap: How far its value is off.
        before: Node of the program before the step, to which it was compared.
        made: Nodes that the application or pass has made.
        removed: Nodes that the pass has removed or left without users.
    """

    stage: str
    pipeline: str
    after: str
    result: str
    gap: ValueGap | None
    failure: str | None
    rule: str | None
    rule_place: str | None
    application: int | None
    rewritten: Sequence[str]
    node: NodePlace | None
    node_gap: ValueGap | None
    before: NodePlace | None
    made: Sequence[NodePlace]
    removed: Sequence[NodePlace]

    @classmethod
    def of(cls, step: WrongStep | None) -> WrongStepReport | None:
        """Return the document of a wrong step."""
        if step is None:
            return None
        applied, node = step.application, step.node
        return cls(
            stage=step.stage,
            pipeline=step.pipeline,
            after=step.after,
            result=step.result,
            gap=step.gap,
            failure=step.failure,
            rule=None if applied is None else applied.rule,
            rule_place=step.rule_place,
            application=None if applied is None else applied.number,
            rewritten=() if applied is None else applied.before,
            node=None if node is None else node.place,
            node_gap=None if node is None else node.gap,
            before=None if node is None else node.before,
            made=step.made,
            removed=step.removed,
        )


@dataclass(frozen=True)
class CompareReport:
    """The document of `exirkit compare`.

    Attributes:
        ok: Whether nothing differs.
        target: The model.
        file: The program file, if one was given.
        is_own: Whether the file is what these options make of the model.
        inputs: What the inputs of every run are.
        seed: Seed of random inputs.
        methods: The result of every method: `name`, `ok`, `outputs` of every run of every executor, `failures` and
            `missing` executors with the reason, the wrong `step`, `instructions` where runtimes depart, and `notes`.
        diagnostics: The findings.
    """

    ok: bool
    target: str
    file: str | None
    is_own: bool
    inputs: list[str]
    seed: int
    methods: list[dict[str, Any]]
    diagnostics: list[Diagnostic]


@app.command()
def compare(
    target: ModelTarget,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE.pte]", show_default=False)] = None,
    method: MethodName = None,
    optimize: Level = 1,
    rules: Rules = None,
    pipeline: Pipelines = None,
    passes: Passes = None,
    runtime: LevelTarget = "official_host",
    strict: Strict = False,
    runs: Runs = 2,
    seed: Seed = 0,
    rtol: Rtol = None,
    atol: Atol = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Compare eager PyTorch, the reference runtime and the official runtime: exit code 1 if results differ.

    Where they differ, the program is run after every pass, and the first wrong pass, rule, application and node are
    named, or the first instruction at which a runtime departs. The official runtime runs in a process of its own.
    """
    source = parse_source(target)
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from exirkit.fuzz import ComparedFile, Official, Tolerances, is_own_file, lower_in_steps
        # Files are read before the model is exported, which may take long.
        choices = Lowering(optimize, rules, pipeline, passes, runtime).choices()
        given = None if file is None else file.read_bytes()
        exported = export_target(source, steps, strict=strict)
        chosen = exported.only(method)
        with steps.phase("lower", "lowering, with a snapshot after every pass"), output_to_stderr():
            lowered = lower_in_steps(exported.programs, choices)
        if lowered.failure is not None:
            raise lowered.failure
        assert lowered.manager is not None, "it did not fail"
        data = lowered.manager.buffer if given is None else given
        program_file = ComparedFile(data, given is None or is_own_file(data, lowered))
        compared: list[MethodComparison] = []
        with Official() as official, output_to_stderr():
            for name in sorted(chosen.programs):
                steps(f"comparing {name}")
                calls = calls_of(exported.programs[name], name, runs, seed)
                tolerances = Tolerances(rtol, atol)
                compared.append(_compared(name, exported, lowered, program_file, official, calls, tolerances))
    report = CompareReport(
        ok=all(one.ok for one in compared),
        target=source.text,
        file=None if file is None else os.fspath(file),
        is_own=program_file.is_own,
        inputs=input_texts(runs, seed),
        seed=seed,
        methods=[_document(one) for one in compared],
        diagnostics=[one for each in compared for one in _findings(each)],
    )
    if json:
        print_json(report)
    else:
        _print_compared(report, compared)
    raise typer.Exit(0 if report.ok else 1)


def calls_of(program: ExportedProgram, method: str, runs: int, seed: int) -> list[Sequence[Any]]:
    """Return the flat inputs of every run of a method: the example inputs, then drawn ones.

    Raises:
        CommandError: EK716, the program has no example inputs.
    """
    from exirkit.fuzz import drawn_inputs

    example = example_leaves(program, method)
    return [example, *(drawn_inputs(example, seed + at) for at in range(runs - 1))]


def input_texts(runs: int, seed: int) -> list[str]:
    """Return what the inputs of every run are."""
    return ["example inputs", *(f"drawn with seed {seed + at}" for at in range(runs - 1))]


def _compared(
    name: str,
    target: ExportedTarget,
    lowered: LoweringSteps,
    file: ComparedFile,
    official: Official,
    calls: list[Sequence[Any]],
    tolerances: Tolerances,
) -> MethodComparison:
    from exirkit.fuzz import compare_method, eager_outputs

    eager = None
    if name in target.models:
        try:
            eager = eager_outputs(target.models[name], target.programs[name], calls)
        except Exception as error:  # whatever the user's model raises
            raise CommandError(
                code="EK715",
                message=f"{name} raised {type(error).__name__}: {error}",
                hint="--runs 1 only runs the example inputs" if len(calls) > 1 else None,
            ) from error
    return compare_method(name, lowered, file, calls, official, eager=eager, tolerances=tolerances)


def _document(compared: MethodComparison) -> dict[str, Any]:
    return {
        "name": compared.method,
        "ok": compared.ok,
        "outputs": [
            {"executor": one.executor, "run": one.run + 1, "output": one.index, "type": one.type, "gap": one.gap}
            for one in compared.outputs
        ],
        "failures": compared.failures,
        "missing": compared.missing,
        "step": WrongStepReport.of(compared.step),
        "instructions": [
            {
                "executor": one.executor,
                "against": one.against,
                "instruction": one.instruction.index,
                "operator": one.instruction.operator,
                "gap": one.instruction.gap,
                "node": one.node,
            }
            for one in compared.instructions
        ],
        "notes": compared.notes,
    }


def _findings(compared: MethodComparison) -> list[Diagnostic]:
    found = [describe_missing(name, reason) for name, reason in compared.missing.items()]
    found += [describe_failure(compared.method, name, text) for name, text in compared.failures.items()]
    if compared.step is not None:
        found.append(describe_step(compared.step))
    return found + [describe_runtime(compared.method, one) for one in compared.instructions]


def describe_step(step: WrongStep) -> Diagnostic:
    """Return EK735: the first step of lowering after which results are wrong, or which records what is not true."""
    from exirkit.ir import Diagnostic

    place = step.node.place if step.node else (step.made[0] if step.made else None)
    notes = []
    if step.gap is not None:
        notes.append(f"{step.result}: {_gap_text(step.gap)}")
    if step.node is not None:
        run = f" in run {step.node.run + 1}" if step.node.run else ""
        notes.append(f"%{step.node.place.name}{run}: {_gap_text(step.node.gap)}")
        if step.node.before.call != step.node.place.call:
            notes.append(f"before that step: %{step.node.before.name} = {step.node.before.call}")
    if place is not None and place.module:
        notes.append(f"module: {place.module}")
    notes += _made_notes(step, place)
    notes.append(f"right after {step.after}" + (f", in {step.pipeline}" if step.pipeline else ""))
    does = "the results are wrong after" if step.gap is not None else "what is recorded of values is false after"
    applied = step.application
    author = f"pass {step.stage}"
    if applied is not None:
        where = f" ({step.rule_place})" if step.rule_place else ""
        author = f"application {applied.number} of rule {applied.rule}{where}, in pass {step.stage}"
    return Diagnostic.of(
        "EK735",
        f"{does} {author}" + (f": {step.failure}" if step.failure else ""),
        location=_location(step.method, place),
        notes=tuple(notes),
        hint=f"`exirkit rule check` tries rule {applied.rule} by itself" if applied else None,
    )


def describe_runtime(method: str, found: RuntimeDifference) -> Diagnostic:
    """Return EK736: the first instruction whose result differs on a runtime."""
    from exirkit.ir import Diagnostic

    at = found.instruction
    text = f"instruction {at.index}, {at.operator}"
    notes = [_gap_text(at.gap)]
    if found.node is not None:
        notes.append(text)
        if found.node.module:
            notes.append(f"module: {found.node.module}")
    return Diagnostic.of(
        "EK736",
        f"the {found.executor} departs from {found.against} at {at.operator}",
        location=_location(method, found.node, text),
        notes=tuple(notes),
    )


def describe_failure(method: str, executor: str, failure: str) -> Diagnostic:
    """Return EK737: a runtime does not run the file."""
    from exirkit.ir import Diagnostic

    return Diagnostic.of("EK737", f"the {executor} does not run the file: {failure}", location=_location(method, None))


def describe_missing(executor: str, reason: str) -> Diagnostic:
    """Return EK738: a runtime was not asked."""
    from exirkit.ir import Diagnostic

    return Diagnostic.of("EK738", f"the {executor} was NOT compared: {reason}", severity="warning")


def _location(method: str, place: NodePlace | None, node: str | None = None) -> Location:
    from exirkit.ir import Location

    if place is None:
        return Location(method=method, node=node)
    known = asdict(place)
    text = f"%{known.pop('name')} = {known.pop('call')}"
    return Location(method=method, node=f"%{place.name}", text=text, **known)


def _gap_text(gap: ValueGap) -> str:
    if gap.kind == "type" or not gap.absolute:
        return gap.text
    of_largest = f"{gap.relative:.3g} of the largest value; {gap.allowed:.2g} is allowed"
    return f"largest error {gap.absolute:.3g} ({of_largest}): {gap.text}"


def _made_notes(step: WrongStep, place: NodePlace | None) -> list[str]:
    def listed(title: str, places: Sequence[NodePlace], most: int = 3) -> list[str]:
        shown = [f"{title}: %{one.name} = {one.call}" for one in places[:most]]
        return shown + ([f"{title}: {len(places) - most} more"] if len(places) > most else [])

    shown = listed("made there", [one for one in step.made if place is None or one.name != place.name])
    shown += listed("removed there", step.removed)
    if step.application is not None:
        shown.append(f"rewritten: {', '.join('%' + name for name in step.application.before)}")
    return shown


def _print_compared(report: CompareReport, compared: Sequence[MethodComparison]) -> None:
    """Print the outputs that are farthest off, the findings and a verdict for every method."""
    file = f" and {report.file}" if report.file else ""
    print_line(f"{report.target}{file}, against eager PyTorch; {runs_text(report.inputs)}")
    for method in compared:
        print_line()
        rows = [_row(one) for one in _shown(method)]
        if rows:
            print_table(_COLUMNS, rows)
    print_findings(report.diagnostics)
    for method in compared:
        for note in method.notes:
            print_line(f"{method.method}: {note}")
    for method in compared:
        print_line(f"{method.method}: {_verdict(method)}")


def runs_text(inputs: Sequence[str]) -> str:
    """Return what every run was made on, on one line."""
    return "; ".join(f"run {at}: {text}" for at, text in enumerate(inputs, 1))


def print_findings(findings: Sequence[Diagnostic]) -> None:
    """Print diagnostics in full, each followed by an empty line."""
    print_line()
    for one in findings:
        print_text(one.render())
        print_line()


def _shown(method: MethodComparison) -> Sequence[Any]:
    if len(method.outputs) <= _MOST_ROWS:
        return method.outputs
    wrong = [one for one in method.outputs if one.gap.is_bad]
    executors = dict.fromkeys(one.executor for one in method.outputs)
    worst = [
        max((one for one in method.outputs if one.executor == name), key=lambda one: one.gap.relative)
        for name in executors
    ]
    return (wrong or worst)[:_MOST_ROWS]


def _row(one: Any) -> list[object]:
    gap: ValueGap = one.gap
    verdict = "WRONG" if gap.is_bad else "equal" if gap.kind == "equal" else "within"
    return [
        one.executor, one.run + 1, one.index, one.type, f"{gap.absolute:.3g}", f"{gap.relative:.3g}",
        f"{gap.allowed:.2g}" if gap.kind != "equal" else "", verdict, gap.text if gap.is_bad else "",
    ]  # fmt: skip


def _verdict(method: MethodComparison) -> str:
    executors = list(dict.fromkeys([*(one.executor for one in method.outputs), *method.failures]))
    verdicts = []
    for name in executors:
        count = sum(one.executor == name for one in method.outputs)
        wrong = len(method.wrong(name))
        if name in method.failures:
            verdicts.append(f"{name} FAILED")
        else:
            verdicts.append(f"{name}: {wrong} of {count} outputs WRONG" if wrong else f"{name} agrees")
    verdicts += [f"{name} NOT COMPARED" for name in method.missing]
    return "; ".join(verdicts)

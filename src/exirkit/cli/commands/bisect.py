"""`exirkit bisect`: the first wrong pass, rule and application of a lowering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from exirkit.cli.choices import Lowering
from exirkit.cli.commands.compare import (
    WrongStepReport,
    calls_of,
    describe_step,
    input_texts,
    print_findings,
    runs_text,
)
from exirkit.cli.console import Steps, counted, output_to_stderr, print_json, print_line
from exirkit.cli.model import export_target, parse_source
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
    from exirkit.fuzz import LoweringSteps, Tolerances, WrongStep
    from exirkit.ir import Diagnostic


@dataclass(frozen=True)
class BisectReport:
    """The document of `exirkit bisect`.

    Attributes:
        ok: Whether no step is wrong.
        target: The model.
        inputs: What the inputs of every run are.
        seed: Seed of random inputs.
        methods: The result of every method: `name`, `ok`, the `steps` that changed the program, in their order, and
            the first wrong `step`.
        diagnostics: The findings.
    """

    ok: bool
    target: str
    inputs: list[str]
    seed: int
    methods: list[dict[str, Any]]
    diagnostics: list[Diagnostic]


@app.command()
def bisect(
    target: ModelTarget,
    rules: Rules = None,
    pipeline: Pipelines = None,
    passes: Passes = None,
    method: MethodName = None,
    optimize: Level = 1,
    runtime: LevelTarget = "official_host",
    strict: Strict = False,
    runs: Runs = 2,
    seed: Seed = 0,
    rtol: Rtol = None,
    atol: Atol = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Find the first pass, rule and rule application that changes the results of a model: exit code 1 if there is one.

    The model is lowered with the given rules, passes and pipelines; after every pass that changes it, it is run on
    torch and compared with the exported program. Without any, the passes of exirkit are tried.
    """
    source = parse_source(target)
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from exirkit.fuzz import Tolerances, lower_in_steps
        # Files are read before the model is exported, which may take long.
        choices = Lowering(optimize, rules, pipeline, passes, runtime).choices()
        exported = export_target(source, steps, strict=strict)
        chosen = exported.only(method)
        with steps.phase("lower", "lowering, with a snapshot after every pass"), output_to_stderr():
            lowered = lower_in_steps(exported.programs, choices)
        found: dict[str, WrongStep | None] = {}
        with output_to_stderr():
            for name in sorted(chosen.programs):
                steps(f"running every step of {name}")
                found[name] = _first_wrong(name, lowered, runs, seed, Tolerances(rtol, atol))
        if lowered.failure is not None and not any(found.values()):
            raise lowered.failure
    findings = [describe_step(one) for one in found.values() if one is not None]
    findings += [] if lowered.failure is None else lowered.failure.diagnostics
    report = BisectReport(
        ok=not any(found.values()),
        target=source.text,
        inputs=input_texts(runs, seed),
        seed=seed,
        methods=[
            {
                "name": name,
                "ok": one is None,
                "steps": [step.stage for step in lowered.snapshots(name)[1:]],
                "step": WrongStepReport.of(one),
            }
            for name, one in found.items()
        ],
        diagnostics=findings,
    )
    if json:
        print_json(report)
    else:
        print_line(f"{report.target}, against the exported program; {runs_text(report.inputs)}")
        print_findings(report.diagnostics)
        for each in report.methods:
            verdict = "none of them wrong" if each["ok"] else "see above"
            count = len(each["steps"])
            print_line(f"{each['name']}: {counted(count, 'step')} that change the program, {verdict}")
    raise typer.Exit(0 if report.ok else 1)


def _first_wrong(name: str, lowered: LoweringSteps, runs: int, seed: int, tolerances: Tolerances) -> WrongStep | None:
    from exirkit.fuzz import MethodJudge, first_false_step, first_wrong_step, results_of

    program = lowered.exported[name]
    calls = calls_of(program, name, runs, seed)
    path = lowered.snapshots(name)
    wrong = first_wrong_step(path, MethodJudge(results_of(program, calls), calls, tolerances))
    if wrong is None and lowered.failure is not None:
        # A pass may raise because of what an earlier one recorded.
        return first_false_step(path)
    return wrong

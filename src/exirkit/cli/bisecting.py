"""`exirkit bisect`: the first wrong pass, rule and application of a lowering."""

from __future__ import annotations

from dataclasses import dataclass, field

from exirkit.fuzz import (
    LoweringSteps,
    MethodJudge,
    Tolerances,
    WrongStep,
    first_false_step,
    first_wrong_step,
    lower_in_steps,
    results_of,
)
from exirkit.ir import Diagnostic

from .chosen_lowering import ChosenLowering, choices_of, export_target
from .compare_findings import describe_step
from .compare_reports import BisectedMethodReport, BisectReport
from .comparing import calls_of, input_texts, step_report
from .console import Steps, output_to_stderr
from .model_source import ModelSource
from .reports import Finding


@dataclass(frozen=True)
class BisectOptions:
    """Choices of `exirkit bisect`.

    Attributes:
        lowering: How the model is lowered.
        method: Name of a method; otherwise all.
        runs: How often each method runs: first with the example inputs, then with drawn ones.
        seed: Of the drawn inputs of the second run; the next ones have the following seeds.
        tolerances: What is near enough.
    """

    lowering: ChosenLowering = field(default_factory=ChosenLowering)
    method: str | None = None
    runs: int = 2
    seed: int = 0
    tolerances: Tolerances = field(default_factory=Tolerances)


def bisect_source(source: ModelSource, options: BisectOptions, steps: Steps) -> tuple[BisectReport, list[Diagnostic]]:
    """Lower a model step by step and find the first one after which it computes something else.

    Returns:
        The report and its findings.

    Raises:
        CommandError: EK711, there is no such method; EK713 to EK718, the target gives no exported program.
        DiagnosticError: A step raised, and no step before it left anything wrong behind.
        OSError: A file cannot be read.
    """
    # Before the model is exported, which may take long.
    choices = choices_of(options.lowering)
    target = export_target(source, steps, strict=options.lowering.strict)
    chosen = target.only(options.method)
    with steps.phase("lower", "lowering, with a snapshot after every pass"), output_to_stderr():
        lowered = lower_in_steps(target.programs, choices)
    found: dict[str, WrongStep | None] = {}
    with output_to_stderr():
        for name in sorted(chosen.programs):
            steps(f"running every step of {name}")
            found[name] = _first_wrong(name, lowered, options)
    if lowered.failure is not None and not any(found.values()):
        raise lowered.failure
    findings = [describe_step(one) for one in found.values() if one is not None]
    findings += [] if lowered.failure is None else lowered.failure.diagnostics
    report = BisectReport(
        ok=not any(found.values()),
        target=source.text,
        inputs=input_texts(options.runs, options.seed),
        seed=options.seed,
        methods=[
            BisectedMethodReport(
                name=name,
                ok=one is None,
                steps=[each.stage for each in lowered.snapshots(name)[1:]],
                step=step_report(one),
            )
            for name, one in found.items()
        ],
        diagnostics=[Finding.model_validate(one.model_dump()) for one in findings],
    )
    return report, findings


def _first_wrong(name: str, lowered: LoweringSteps, options: BisectOptions) -> WrongStep | None:
    program = lowered.exported[name]
    calls = calls_of(program, name, options.runs, options.seed)
    path = lowered.snapshots(name)
    wrong = first_wrong_step(path, MethodJudge(results_of(program, calls), calls, options.tolerances))
    if wrong is None and lowered.failure is not None:
        # A pass may raise because of what an earlier one recorded.
        return first_false_step(path)
    return wrong

"""`exirkit compare`: eager torch, the reference runtime and the official runtime on one program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from exirkit.fuzz import (
    ComparedFile,
    LoweringSteps,
    MethodComparison,
    NodePlace,
    Official,
    Tolerances,
    ValueGap,
    WrongStep,
    compare_method,
    drawn_inputs,
    eager_outputs,
    is_own_file,
    lower_in_steps,
)
from exirkit.ir import Diagnostic

from .chosen_lowering import ChosenLowering, ExportedTarget, choices_of, export_target, flat_example
from .compare_findings import describe_failure, describe_missing, describe_runtime, describe_step
from .compare_reports import (
    ComparedMethodReport,
    CompareReport,
    GapReport,
    NodeReport,
    OutputGapReport,
    WrongInstructionReport,
    WrongStepReport,
)
from .console import Steps, output_to_stderr
from .failures import CommandError
from .model_source import ModelSource
from .reports import Finding


@dataclass(frozen=True)
class CompareOptions:
    """Choices of `exirkit compare`.

    Attributes:
        lowering: How the model is lowered.
        file: A program file; what the model is lowered to if absent.
        method: Name of a method; otherwise all.
        runs: How often each method runs: first with the example inputs, then with drawn ones.
        seed: Of the drawn inputs of the second run; the next ones have the following seeds.
        tolerances: What is near enough.
    """

    lowering: ChosenLowering = field(default_factory=ChosenLowering)
    file: Path | None = None
    method: str | None = None
    runs: int = 2
    seed: int = 0
    tolerances: Tolerances = field(default_factory=Tolerances)


def compare_source(
    source: ModelSource, options: CompareOptions, steps: Steps
) -> tuple[CompareReport, list[Diagnostic]]:
    """Lower a model, run it on everything that there is, and find where results part.

    Returns:
        The report and its findings.

    Raises:
        CommandError: EK711, there is no such method; EK713 to EK718, the target gives no exported program.
        DiagnosticError: The program cannot be lowered.
        OSError: A file cannot be read.
    """
    # Before the model is exported, which may take long.
    choices = choices_of(options.lowering)
    given = None if options.file is None else options.file.read_bytes()
    target = export_target(source, steps, strict=options.lowering.strict)
    chosen = target.only(options.method)
    with steps.phase("lower", "lowering, with a snapshot after every pass"), output_to_stderr():
        lowered = lower_in_steps(target.programs, choices)
    if lowered.failure is not None:
        raise lowered.failure
    assert lowered.manager is not None, "it did not fail"
    data = lowered.manager.buffer if given is None else given
    file = ComparedFile(data, given is None or is_own_file(data, lowered))
    compared: list[MethodComparison] = []
    with Official() as official, output_to_stderr():
        for name in sorted(chosen.programs):
            steps(f"comparing {name}")
            compared.append(_compared(name, target, lowered, file, official, options))
    findings = [one for method in compared for one in _findings(method)]
    report = CompareReport(
        ok=all(one.ok for one in compared),
        target=source.text,
        file=None if options.file is None else os.fspath(options.file),
        is_own=file.is_own,
        inputs=input_texts(options.runs, options.seed),
        seed=options.seed,
        methods=[_method(one) for one in compared],
        diagnostics=[Finding.model_validate(one.model_dump()) for one in findings],
    )
    return report, findings


def calls_of(program: ExportedProgram, method: str, runs: int, seed: int) -> list[Sequence[Any]]:
    """Return the flat inputs of every run of a method.

    Raises:
        CommandError: EK716, the program has no example inputs.
    """
    example = flat_example(program, method)
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
    options: CompareOptions,
) -> MethodComparison:
    program = target.programs[name]
    calls = calls_of(program, name, options.runs, options.seed)
    eager = None
    if name in target.models:
        try:
            eager = eager_outputs(target.models[name], program, calls)
        except Exception as error:  # whatever the user's model raises
            raise CommandError(
                code="EK715",
                message=f"{name} raised {type(error).__name__}: {error}",
                hint="--runs 1 only runs the example inputs" if options.runs > 1 else None,
            ) from error
    return compare_method(name, lowered, file, calls, official, eager=eager, tolerances=options.tolerances)


def _findings(compared: MethodComparison) -> list[Diagnostic]:
    found = [describe_missing(name, reason) for name, reason in compared.missing.items()]
    found += [describe_failure(compared.method, name, text) for name, text in compared.failures.items()]
    if compared.step is not None:
        found.append(describe_step(compared.step))
    return found + [describe_runtime(compared.method, one) for one in compared.instructions]


def _method(compared: MethodComparison) -> ComparedMethodReport:
    return ComparedMethodReport(
        name=compared.method,
        ok=compared.ok,
        outputs=[
            OutputGapReport(
                executor=one.executor, run=one.run + 1, output=one.index, type=one.type, gap=gap_report(one.gap)
            )
            for one in compared.outputs
        ],
        failures=dict(compared.failures),
        missing=dict(compared.missing),
        step=step_report(compared.step),
        instructions=[
            WrongInstructionReport(
                executor=one.executor,
                against=one.against,
                instruction=one.instruction.index,
                operator=one.instruction.operator,
                gap=gap_report(one.instruction.gap),
                node=node_report(one.node),
            )
            for one in compared.instructions
        ],
        notes=list(compared.notes),
    )


def step_report(step: WrongStep | None) -> WrongStepReport | None:
    """Return the document of a wrong step."""
    if step is None:
        return None
    applied, node = step.application, step.node
    return WrongStepReport(
        stage=step.stage,
        pipeline=step.pipeline,
        after=step.after,
        result=step.result,
        gap=None if step.gap is None else gap_report(step.gap),
        failure=step.failure,
        rule=None if applied is None else applied.rule,
        rule_place=step.rule_place,
        application=None if applied is None else applied.number,
        rewritten=[] if applied is None else list(applied.before),
        node=None if node is None else node_report(node.place),
        node_gap=None if node is None else gap_report(node.gap),
        before=None if node is None else node_report(node.before),
        made=[_known_node(one) for one in step.made],
        removed=[_known_node(one) for one in step.removed],
    )


def gap_report(gap: ValueGap) -> GapReport:
    """Return the document of a gap."""
    return GapReport(
        kind=gap.kind, absolute=gap.absolute, relative=gap.relative, allowed=gap.allowed, text=gap.text
    )  # fmt: skip


def node_report(place: NodePlace | None) -> NodeReport | None:
    """Return the document of a node."""
    return None if place is None else _known_node(place)


def _known_node(place: NodePlace) -> NodeReport:
    return NodeReport(name=place.name, call=place.call, source=place.source, module=place.module)

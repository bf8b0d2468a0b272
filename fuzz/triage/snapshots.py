"""Finding the pass after which a program is wrong: every snapshot of the chain is run on torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch.export import ExportedProgram

from exirkit.fuzz.oracles import (
    Examination,
    Failure,
    LoweringTrace,
    Snapshot,
    compared,
    run_dialect,
)
from exirkit.ir import DiagnosticError
from exirkit.passes import ApplyRules
from exirkit.patterns import bisect_rewrites
from exirkit.verifiers import check_metadata

from .culprit import Guilt

IsBad = Callable[[ExportedProgram], bool]


def guilty_pass(examination: Examination, failure: Failure) -> Guilt | None:
    """Return the first pass after which a program is wrong in the way of a failure, or None if there is none.

    The chain runs once more and keeps a snapshot after every pass. All of them are looked at in their order, so that
    it does not matter if a later pass hides what an earlier one has done.
    """
    trace = LoweringTrace(has_state=examination.trace.has_state, keeps_snapshots=True)
    methods = [str(failure.details["method"])] if "method" in failure.details else examination.methods
    try:
        lowering = examination.compiler.lower(examination.exported, trace)
        paths = {method: trace.path_to(method, lowering.planned[method]) for method in methods}
    except Exception:  # whatever the chain raises is what is looked into here
        path = trace.path_so_far(examination.exported)
        paths = {path[0].method: path} if path and path[0].method in methods else {}
    for method, path in paths.items():
        found = _first_bad(path, _judge(examination, method, failure))
        if failure.rung == "O1":
            # A pass may raise because of what an earlier one recorded, strides of a view for a copy say, long before
            # anything comes out wrong.
            liar = _first_bad(path[:found], _has_false_metadata)
            if liar is not None:
                return _within_pass(path, liar, method, _has_false_metadata)
            if found is None:
                found = _first_that_cannot_run(path, _run_of(examination, method))
        if found is not None:
            return _within_pass(path, found, method, _judge(examination, method, failure))
    return None


def _first_that_cannot_run(path: Sequence[Snapshot], runs: Callable[[ExportedProgram], bool]) -> int | None:
    """Return the first of the last snapshots that torch does not run, if it runs what was there before them.

    A later stage may only be the first one with a check that sees why.
    """
    first = len(path)
    while first and not runs(path[first - 1].program):
        first -= 1
    return first if 0 < first < len(path) else None


def _run_of(examination: Examination, method: str) -> Callable[[ExportedProgram], bool]:
    """Return what says whether torch runs a program of a method at all."""
    one_method = _of_method(examination, method)

    def runs(program: ExportedProgram) -> bool:
        return run_dialect(one_method, "snapshot", {method: program}, is_layout_promised=False).error is None

    return runs


def _of_method(examination: Examination, method: str) -> Examination:
    program = replace(examination.program, runs=tuple(examination.runs_of(method)))
    one_method = Examination(program, examination.compiler, examination.seed)
    # What has been computed already need not be computed again.
    one_method.share(examination)
    return one_method


def _has_false_metadata(program: ExportedProgram) -> bool:
    return bool(check_metadata(program, layouts=True))


def _first_bad(path: Sequence[Snapshot], is_bad: IsBad) -> int | None:
    return next((at for at, one in enumerate(path) if is_bad(one.program)), None)


def _judge(examination: Examination, method: str, failure: Failure) -> IsBad:
    """Return what says whether a program of a method is wrong in the way of a failure."""
    one_method = _of_method(examination, method)
    is_about_layout = failure.symptom == "metadata layout"
    cannot_run = failure.symptom.startswith("raised graph cannot be run")

    def is_bad(program: ExportedProgram) -> bool:
        run = run_dialect(one_method, "snapshot", {method: program}, is_layout_promised=is_about_layout)
        if failure.rung == "O2":
            return any(one.symptom == failure.symptom for one in run.findings)
        if run.error is not None:
            # Between two dialects there may be programs that torch does not run; that alone says nothing.
            return cannot_run
        if failure.rung == "O1" and run.findings:
            return True
        return any(True for _ in compared(one_method, "O3", "snapshot", run.results, is_lowered=True))

    return is_bad


def _within_pass(path: Sequence[Snapshot], at: int, method: str, is_bad: IsBad) -> Guilt:
    """Name the pass, and the application of a rule where it applies rules."""
    guilty = path[at]
    evidence = f"wrong after {guilty.stage}" + (f", right after {path[at - 1].stage}" if at else "")
    if at and isinstance(guilty.edit, ApplyRules):
        try:
            found = bisect_rewrites(
                path[at - 1].program, guilty.edit.engine.rules, lambda one: not is_bad(one), guilty.edit.options
            )
        except DiagnosticError:
            return Guilt(guilty.stage, method=method, evidence=evidence)
        if found.culprit is not None:
            evidence += f"; %{found.culprit.root} was rewritten"
            return Guilt(guilty.stage, found.culprit.number, found.culprit.rule, method, evidence)
    return Guilt(guilty.stage, method=method, evidence=evidence)

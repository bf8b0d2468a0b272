"""Telling planner, emitter and interpreter apart, when the programs of all dialects are right and the file is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from exirkit.fuzz.official import missing_reason
from exirkit.fuzz.oracles import LAYOUTS, Examination, ExirkitCompiler, Failure, check, examine, replanned, rungs_of
from exirkit.ir import DiagnosticError

from .culprit import Guilt
from .plan_places import misplaced

_FILE_RUNGS = ("O0", "O5", "O6", "O7", "O8")


def guilty_part(examination: Examination, failure: Failure) -> Guilt:
    """Return the part behind the dialects that a failure comes from."""
    place = misplaced(examination.lowering.planned)
    if place is not None:
        return Guilt("planner", evidence=place)
    if failure.rung == "O4":
        return Guilt(failure.stage or "planner", evidence="a static check")
    if failure.rung == "O9":
        return Guilt("planner", evidence="results depend on the plan")
    if failure.rung == "O10":
        return Guilt("emitter", evidence="bytes differ")
    if failure.rung.startswith("O11"):
        return Guilt(failure.stage or "official-runtime", evidence="our interpreter agrees with eager torch")
    if not isinstance(examination.compiler, ExirkitCompiler):
        return Guilt(failure.stage or "compiler")
    for attempt in (_planner, _view_elimination):
        found = attempt(examination)
        if found is not None:
            return found
    # The fourth oracle has compared the file with the graph before.
    verdict = examine(examination, rungs_of(("O4",)))
    if not verdict.is_good:
        return Guilt("emitter", evidence=verdict.failures[0].message)
    return _of_two_runtimes(examination, failure)


def _planner(examination: Examination) -> Guilt | None:
    """Does a plan without reuse help?"""

    def file_of(layout: str) -> Callable[[], bytes]:
        return lambda: replanned(examination, layout)

    for layout in ("naive", "reversed"):
        if layout in LAYOUTS and _is_good_file(examination, file_of(layout)):
            return Guilt("planner", evidence=f"right with plan {layout}")
    return None


def _view_elimination(examination: Examination) -> Guilt | None:
    """Does it help if no value shares the memory of another?"""
    compiler = examination.compiler
    if not isinstance(compiler, ExirkitCompiler) or not compiler.remove_view_copy:
        return None
    other = check(examination.program, compiler=replace(compiler, remove_view_copy=False), rungs=_FILE_RUNGS)
    if other.is_good and not other.not_run:
        return Guilt("eliminate-views", evidence="right with remove_view_copy=False")
    return None


def _of_two_runtimes(examination: Examination, failure: Failure) -> Guilt:
    """What does the official runtime make of the same file?"""
    if missing_reason():
        return Guilt("interpreter", evidence="graph and file agree, and other plans do not help")
    other = examine(examination, rungs_of(("O11",)))
    if other.is_good and not other.not_run:
        return Guilt("interpreter", evidence="the official runtime gives the right results")
    if other.not_run:
        return Guilt("interpreter", evidence="graph and file agree, and other plans do not help")
    if not any(_is_of_the_same(failure, one) for one in other.failures):
        return Guilt("interpreter", evidence="the official runtime gives other results that are wrong")
    return Guilt("emitter", evidence="the official runtime gives wrong results too")


def _is_of_the_same(failure: Failure, other: Failure) -> bool:
    """Tell whether two failures are about the same result: kernels of the official runtime have bugs of their own."""
    compared = {"method", "run"} <= failure.details.keys() & other.details.keys()
    return not compared or (failure.node, failure.details["method"]) == (other.node, other.details["method"])


def _is_good_file(examination: Examination, make: Callable[[], bytes]) -> bool:
    """Whether another file of the same programs runs as it should."""
    other = Examination(examination.program, examination.compiler, examination.seed)
    other.share(examination)
    try:
        other.take_file(make())
    except DiagnosticError:
        return False
    verdict = examine(other, rungs_of(_FILE_RUNGS))
    return verdict.is_good and not verdict.not_run

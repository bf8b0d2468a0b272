"""The ladder: all rungs, and checking a program on them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from exirkit.fuzz.compilers.compilers import Compiler, ExirkitCompiler
from exirkit.fuzz.examination.examination import Examination, FailedError, NotRunError, RefusedError
from exirkit.fuzz.examination.verdict import Failure, Verdict
from exirkit.fuzz.programs import Program
from exirkit.ir import Diagnostic, UsageError, choices_hint

from .rung import Rung
from .rung_of_equivalents import EquivalentPrograms
from .rungs_of_files import ErrorBudget, KnowingRun, PoisonedRun, RunsInARow, SameBytes, ShapeSchedule
from .rungs_of_graphs import ChainWithVerifiers, EagerRuns, EqualDialects, TrueMetadata
from .rungs_of_officials import OfficialFileAgrees, OfficialRuntimeAgrees
from .rungs_of_plans import OtherLayouts, PlanHolds

RUNGS: Mapping[str, Rung] = MappingProxyType(
    {
        one.id: one
        for one in (
            EagerRuns(),
            ChainWithVerifiers(),
            TrueMetadata(),
            EqualDialects(),
            PlanHolds(),
            PoisonedRun(),
            KnowingRun(),
            RunsInARow(),
            ShapeSchedule(),
            OtherLayouts(),
            SameBytes(),
            ErrorBudget(),
            OfficialRuntimeAgrees(),
            EquivalentPrograms(),
            OfficialFileAgrees(),
        )
    }
)
"""By id, from cheap to dear."""

USUAL_RUNGS = ("O0", "O1", "O2", "O3", "O4", "O5", "O6", "O7", "O8", "O9", "O10", "O12")
"""Those that need nothing but exirkit and lower a program once."""


def check(
    program: Program,
    *,
    compiler: Compiler | None = None,
    rungs: Iterable[str] | None = None,
    seed: int = 0,
    is_exhaustive: bool = False,
) -> Verdict:
    """Check a program.

    Args:
        program: The program.
        compiler: What lowers it; our chain with its usual choices when absent.
        rungs: Ids of the rungs to ask; `USUAL_RUNGS` when absent.
        seed: Decides where rungs choose: which other layout, which equivalent.
        is_exhaustive: Go on after the first rung that finds something. What follows is mostly the same once more.

    Raises:
        UsageError: EK830, there is no such rung.
    """
    chosen = rungs_of(USUAL_RUNGS if rungs is None else rungs)
    examination = Examination(program, compiler or ExirkitCompiler(), seed)
    return examine(examination, chosen, is_exhaustive=is_exhaustive)


def examine(examination: Examination, rungs: Iterable[Rung], *, is_exhaustive: bool = False) -> Verdict:
    """Check a program of which something is known already."""
    failures: list[Failure] = []
    seconds: dict[str, float] = {}
    not_run: dict[str, str] = {}
    refusal: str | None = None
    for rung in rungs:
        shared = sum(examination.seconds.values())
        start = time.perf_counter()
        try:
            failures += rung.check(examination)
        except FailedError as error:
            if not failures:
                failures.append(error.failure)
            not_run[rung.id] = "what it needs has failed"
        except RefusedError as error:
            refusal = error.code
            not_run[rung.id] = f"the compiler declined the program: {error}"
        except NotRunError as error:
            not_run[rung.id] = str(error)
        # What rungs share is not the time of the one that happened to ask first.
        seconds[rung.id] = time.perf_counter() - start - (sum(examination.seconds.values()) - shared)
        if refusal or (failures and not is_exhaustive):
            break
    fired, changed = examination.tested
    return Verdict(
        tuple(failures), refusal, {**examination.seconds, **seconds}, not_run, examination.comparisons, fired, changed
    )


def rungs_of(ids: Iterable[str]) -> list[Rung]:
    """Return rungs by their ids, from cheap to dear.

    Raises:
        UsageError: EK830, there is no such rung.
    """
    wanted = list(ids)
    unknown = [one for one in wanted if one not in RUNGS]
    if unknown:
        raise UsageError(
            Diagnostic(
                code="EK830",
                message=f"there is no rung {unknown[0]!r}",
                expected="one of these:\n" + "\n".join(f"       {name}: {rung.title}" for name, rung in RUNGS.items()),
                hint=choices_hint(unknown[0], RUNGS, "there are"),
            )
        )
    return [rung for name, rung in RUNGS.items() if name in wanted]

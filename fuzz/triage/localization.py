"""From a failure to the guilty part: pass, application of a rule, planner, emitter or interpreter."""

from __future__ import annotations

from exirkit.fuzz.official import missing_reason
from exirkit.fuzz.oracles import (
    Compiler,
    Examination,
    ExirkitCompiler,
    FailedError,
    Failure,
    RefusedError,
    check,
    equivalent,
    examine,
    rungs_of,
)
from exirkit.fuzz.programs import Program

from .backend_parts import guilty_part
from .culprit import Guilt
from .snapshots import guilty_pass


def blame(program: Program, failure: Failure, *, compiler: Compiler | None = None, seed: int = 0) -> Guilt:
    """Find out which part of a compiler is guilty of a failure.

    Args:
        program: The program; the smaller, the faster.
        failure: What an oracle found.
        compiler: What lowered it.
        seed: As for `check`.
    """
    compiler = compiler or ExirkitCompiler()
    if failure.rung == "O0":
        return Guilt(failure.stage or "eager", evidence="the program cannot be run or built")
    if failure.rung == "O13":
        return _of_equivalent(program, failure, compiler, seed)
    examination = Examination(program, compiler, seed)
    if compiler.is_black_box:
        return _of_black_box(examination, failure)
    if failure.rung == "O2" and failure.stage == "export":
        return Guilt("export", evidence="metadata are wrong before the first pass")
    if failure.rung in ("O1", "O2", "O3"):
        return _of_dialects(examination, failure)
    # Only if all dialects are right it is what comes behind them.
    earlier = examine(examination, rungs_of(("O0", "O1", "O2", "O3")))
    if earlier.failures:
        return _of_dialects(examination, earlier.failures[0])
    try:
        return guilty_part(examination, failure)
    except (FailedError, RefusedError) as error:
        return Guilt(failure.stage or "compiler", evidence=str(error))


def _of_dialects(examination: Examination, failure: Failure) -> Guilt:
    found = guilty_pass(examination, failure)
    if found is not None:
        return found
    if failure.rung == "O1":
        return Guilt(failure.stage or "compiler", evidence="it raised, or a verifier found something after it")
    return Guilt("planner", evidence="the last pass leaves a right program behind")


def _of_equivalent(program: Program, failure: Failure, compiler: Compiler, seed: int) -> Guilt:
    """Blame whatever is wrong with the equivalent program, or the chain as a whole if nothing else shows it."""
    changed, note = equivalent(program, seed)
    verdict = check(changed, compiler=compiler, seed=seed)
    if verdict.is_good:
        return Guilt(failure.stage or "compiler", evidence=f"only in comparison: {note}")
    return blame(changed, verdict.failures[0], compiler=compiler, seed=seed)


def _of_black_box(examination: Examination, failure: Failure) -> Guilt:
    """Of a file that a black box made: do our interpreter and the official runtime see the same?"""
    name = "official-exporter" if "official" in examination.compiler.describe().lower() else "compiler"
    if failure.rung == "O1" or missing_reason():
        return Guilt(failure.stage or name, evidence="it raised" if failure.rung == "O1" else "")
    theirs = examine(examination, rungs_of(("O11",)))
    ours = examine(examination, rungs_of(("O5", "O6", "O7", "O8")))
    if theirs.is_good and not theirs.not_run and not ours.is_good:
        return Guilt("interpreter", evidence="the official runtime gives the right results")
    if ours.is_good and not ours.not_run and not theirs.is_good:
        return Guilt("official-runtime", evidence="our interpreter gives the right results")
    return Guilt(name, evidence="both runtimes agree that the file is wrong")

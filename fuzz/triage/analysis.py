"""A failure of a program: a small program that fails alike, and the part of the compiler that is to blame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from exirkit.fuzz.compilers import Compiler
from exirkit.fuzz.examination import Failure
from exirkit.fuzz.official import missing_reason
from exirkit.fuzz.oracles import ORACLES, check
from exirkit.fuzz.programs import Program

from .localization import Culprit, find_culprit
from .reducing import reduce, same_failure, with_fewer_choices


@dataclass(frozen=True)
class Localized:
    """What is known of a failure.

    Attributes:
        program: A small program that fails alike.
        compiler: With as few choices as show it.
        failure: How the small program fails.
        culprit: What is to blame.
        is_repeated: The small program has failed again; otherwise something is not deterministic.
    """

    program: Program
    compiler: Compiler
    failure: Failure
    culprit: Culprit
    is_repeated: bool


def localized(program: Program, failure: Failure, compiler: Compiler, seed: int = 0, *, trials: int) -> Localized:
    """Reduce a program, and find the culprit in what is left: other parts have less to do with it.

    Args:
        program: The program.
        failure: What an oracle found.
        compiler: What lowered it.
        seed: As for `check`.
        trials: How many programs are tried to reduce it.
    """
    compiler = with_fewer_choices(program, failure, compiler, seed)
    small = reduce(program, _same_failure_of_the_same_part(program, failure, compiler, seed), trials=trials)
    again = check(small, compiler=compiler, oracles=("eager-run", failure.oracle), seed=seed).failures
    shown = again[0] if again else failure
    return Localized(small, compiler, shown, find_culprit(small, shown, compiler=compiler, seed=seed), bool(again))


def _same_failure_of_the_same_part(
    program: Program, failure: Failure, compiler: Compiler, seed: int
) -> Callable[[Program], bool]:
    """Return what `same_failure` does, but once the official runtime is right it must stay so in smaller programs.

    Where numbers become simpler, kernels get what they were not made for, a scale of zero for one: both runtimes then
    differ from eager PyTorch, whatever the failure was, and the smallest program would show that instead.
    """
    is_bad = same_failure(failure, compiler=compiler, seed=seed)
    if "runtimes" not in ORACLES[failure.oracle].suspects or missing_reason():
        return is_bad
    was_right = False

    def is_bad_there(one: Program) -> bool:
        nonlocal was_right
        if not is_bad(one):
            return False
        verdict = check(one, compiler=compiler, oracles=("official-runtime",), seed=seed)
        was_right |= verdict.is_good and not verdict.not_run
        return verdict.is_good or not was_right

    # The whole program is the first that it may get right.
    is_bad_there(program)
    return is_bad_there

"""Making a program smaller as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable

from exirkit.fuzz.oracles import Compiler, ExirkitCompiler, Failure, check, simpler_choices
from exirkit.fuzz.programs import Program, check_program, program_text
from exirkit.ir import DiagnosticError

from .culprit import Guilt
from .localization import blame
from .reductions import CUTS, tidied


def reduce(program: Program, is_bad: Callable[[Program], bool], *, trials: int = 2000) -> Program:
    """Return a small program that is still bad.

    Runs, outputs, calls, stored tensors, symbols, sizes and contents are taken away one after another, until nothing
    can be taken away any more. The same program is never looked at twice.

    Args:
        program: A bad program.
        is_bad: Looks at a program, which need not be valid. It should be true for programs that fail in the same way
            only: see `same_failure`.
        trials: How many programs are looked at in the whole.
    """
    search = _Search(is_bad, trials)
    search.seen.add(program_text(program))
    has_changed = True
    while has_changed and search.trials > 0:
        has_changed = False
        for cut in CUTS:
            while search.trials > 0:
                smaller = next((one for one in map(tidied, cut(program)) if search.accepts(one)), None)
                if smaller is None:
                    break
                program, has_changed = smaller, True
    return program


class _Search:
    def __init__(self, is_bad: Callable[[Program], bool], trials: int) -> None:
        self.is_bad = is_bad
        self.trials = trials
        self.seen: set[str] = set()

    def accepts(self, program: Program) -> bool:
        if self.trials <= 0 or not program.runs:
            return False
        text = program_text(program)
        if text in self.seen:
            return False
        self.seen.add(text)
        self.trials -= 1
        return self.is_bad(program)


def same_failure(
    failure: Failure, *, compiler: Compiler | None = None, seed: int = 0, guilt: Guilt | None = None
) -> Callable[[Program], bool]:
    """Return what says whether a program fails in the same way: at the same rung, with the same symptom.

    Args:
        failure: The failure.
        compiler: As for `check`.
        seed: As for `check`.
        guilt: Who must be guilty as well.
    """
    rungs = ("O0", failure.rung)

    def is_bad(program: Program) -> bool:
        try:
            check_program(program)
        except DiagnosticError:
            return False
        verdict = check(program, compiler=compiler, rungs=rungs, seed=seed)
        found = next((one for one in verdict.failures if _is_alike(one, failure)), None)
        if found is None or guilt is None:
            return found is not None
        other = blame(program, found, compiler=compiler, seed=seed)
        return (other.pass_name, other.rule) == (guilt.pass_name, guilt.rule)

    return is_bad


def with_fewer_choices(program: Program, failure: Failure, compiler: Compiler, seed: int = 0) -> Compiler:
    """Return a compiler with as few choices of the chain as show a failure still.

    Args:
        program: A program that fails.
        failure: How.
        compiler: What it fails with; anything but our own chain comes back as it is.
        seed: As for `check`.
    """
    others = simpler_choices(compiler) if isinstance(compiler, ExirkitCompiler) else iter(())
    for other in others:
        if same_failure(failure, compiler=other, seed=seed)(program):
            return with_fewer_choices(program, failure, other, seed)
    return compiler


def _is_alike(one: Failure, other: Failure) -> bool:
    return (one.rung, one.symptom) == (other.rung, other.symptom)

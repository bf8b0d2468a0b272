"""The bench: each mutant in a process of its own, generated programs until an oracle finds it or time is up."""

from __future__ import annotations

import ast
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from exirkit.fuzz.campaigns import ProcessPool, watchdog
from exirkit.fuzz.campaigns.changed_code import names_with
from exirkit.fuzz.compilers import Compiler, ExirkitCompiler, drawn_choices
from exirkit.fuzz.examination import Failure, Verdict
from exirkit.fuzz.generation import Focus, focusable, program_of, seed_of_choices
from exirkit.fuzz.oracles import DEFAULT_ORACLES, check
from exirkit.fuzz.programs import Program, parse_program
from exirkit.fuzz.triage import localized

from .applying import applied, applied_companions
from .model import Mutant, shipped_mutants
from .observing import changes
from .results import MutantResult

_RESULTS = TypeAdapter(list[MutantResult])
# Whether a program is infected costs two more compilations, so that only a few are asked.
_MOST_COMPARED = 5
_START_SECONDS = 120
# Programs for which a bug is applied once.
_BATCH = 16
# Programs that are tried to reduce the one that shows a bug, before its culprit is sought.
_TRIALS = 60
_PATIENCE = 10
_BLAME_SECONDS = 180.0
"""Seconds to wait for one second of a processor."""


@dataclass(frozen=True)
class MutationBenchOptions:
    """How much is tried.

    Attributes:
        seconds: Time of a processor for each bug, so that a machine that is busy finds as much as an idle one.
        seeds: Most programs for each bug.
        first_seed: Seed of the first program.
        oracles: Names of the oracles that are asked.
        is_focused: Programs are those that reach the function that is changed, as for one who changes it.
        only_witnesses: Only the program written for each bug is tried: whether an oracle sees the bug, and the right
            part is blamed.
    """

    seconds: float = 40.0
    seeds: int = 1000
    first_seed: int = 0
    oracles: tuple[str, ...] = DEFAULT_ORACLES
    is_focused: bool = False
    only_witnesses: bool = False


class _Programs:
    """Programs and choices of the chain by seed, for a bug."""

    def __init__(self, mutant: Mutant, is_focused: bool) -> None:
        names = [name for name in _changed(mutant) if name in focusable()] if is_focused else []
        self._mutant = mutant
        self._focus = Focus(names) if names else None

    def program(self, seed: int) -> Program:
        """Return the program of a seed."""
        return program_of(seed) if self._focus is None else self._focus.program_of(seed)

    def compiler(self, seed: int) -> ExirkitCompiler:
        """Return the chain with the choices that campaigns make, as far as the bug leaves them open."""
        needed = _needed(self._mutant)
        if not set(self._mutant.compiler) <= {"level"}:
            return needed
        if self._focus is not None:
            return drawn_choices(needed, *self._focus.choices_of(seed))
        return drawn_choices(needed, seed_of_choices(seed))


def _changed(mutant: Mutant) -> Iterator[str]:
    """Yield what a bug changes, as `exirkit fuzz --changed` would: a function, or rules whose text it replaces."""
    yield f"{mutant.module}:{mutant.function}"
    try:
        made = ast.parse(mutant.new.strip())
    except SyntaxError:  # a part of a statement
        return
    for call in ast.walk(made):
        match call:
            case ast.Call(func=ast.Attribute(attr="replace"), args=[ast.Constant(value=str(text)), _]):
                yield from names_with(text)


def run_mutant(mutant: Mutant, options: MutationBenchOptions) -> MutantResult:
    """Try to find one bug, in this process."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {"id": mutant.id, "part": mutant.part}
    started = time.process_time()
    program, needed = parse_program(mutant.program), _needed(mutant)
    with applied(mutant):
        witness = check(program, compiler=needed, oracles=options.oracles)
    found["witness_killed_by"] = witness.failures[0].oracle if witness.failures else None
    if options.only_witnesses:
        found |= {"programs": 1, "seconds": time.process_time() - started}
        failure = _failure_of(witness)
        if failure is None or not _is_good_without(mutant, program, needed, options, 0, witness):
            return MutantResult(**found)
        return MutantResult(**found, **_blamed(mutant, program, failure, needed, 0))
    programs = _Programs(mutant, options.is_focused)
    started, compared = time.process_time(), 0
    last = options.first_seed + options.seeds
    for first in range(options.first_seed, last, _BATCH):
        if time.process_time() - started > options.seconds:
            break
        # Made without the bug: the generator takes patterns from books of the compiler.
        made = [(seed, programs.program(seed)) for seed in range(first, min(first + _BATCH, last))]
        for seed, program, verdict, is_reached in _checked(mutant, made, programs, options, started + options.seconds):
            compiler = programs.compiler(seed)
            found |= {"programs": seed - options.first_seed + 1, "seconds": time.process_time() - started}
            found["is_reached"] = found.get("is_reached", False) or is_reached
            failure = _failure_of(verdict)
            if failure is not None and _is_good_without(mutant, program, compiler, options, seed, verdict):
                found |= {"is_infected": True, "seed": seed}
                return MutantResult(**found, **_blamed(mutant, program, failure, compiler, seed))
            if is_reached and not found.get("is_infected") and compared < _MOST_COMPARED:
                compared += 1
                found["is_infected"] = changes(mutant, program)[1]
    return MutantResult(**found)


def _checked(
    mutant: Mutant,
    made: Sequence[tuple[int, Program]],
    programs: _Programs,
    options: MutationBenchOptions,
    end: float,
) -> Iterator[tuple[int, Program, Verdict, bool]]:
    """Yield seed, program, verdict and whether the bug was reached, until time is up.

    What the compiler keeps from program to program, its rule books above all, is made again when a bug is applied: that
    is done once for all programs that are fine, as in a campaign, and again behind one that is to be examined.
    """
    left = list(made)
    while left:
        fine: list[tuple[int, Program, Verdict, bool]] = []
        with applied(mutant) as reach:
            while left and time.process_time() <= end:
                seed, program = left.pop(0)
                before = reach.count
                verdict = check(program, compiler=programs.compiler(seed), oracles=options.oracles, seed=seed)
                fine.append((seed, program, verdict, reach.count > before))
                if _failure_of(verdict) is not None:
                    break
        if not fine:
            return
        yield from fine


def _failure_of(verdict: Verdict) -> Failure | None:
    """Return what is wrong: also a program that is rejected may be, if the compiler takes it without the bug."""
    if verdict.failures:
        return verdict.failures[0]
    if verdict.unsupported is None:
        return None
    message = f"rejected with {verdict.unsupported}, and not without the bug"
    return Failure("lowering", f"rejected {verdict.unsupported}", message, verdict.rejected_by)


def _needed(mutant: Mutant) -> ExirkitCompiler:
    """Return the chain with the choices without which a bug cannot show."""
    return ExirkitCompiler(**mutant.compiler)  # type: ignore[arg-type]


def run_mutation_bench(
    options: MutationBenchOptions,
    *,
    only: Sequence[str] = (),
    mutants: Sequence[Mutant] | None = None,
    file: Path | None = None,
    listen: Callable[[MutantResult], None] | None = None,
    workers: int = 1,
) -> list[MutantResult]:
    """Try to find all bugs, each in a process of its own.

    Args:
        options: How much is tried.
        only: Ids of bugs; all when absent.
        mutants: The bugs; those that come with exirkit when absent.
        file: Where results are kept as JSON, after every bug; those that are there already are not tried again.
        listen: Is told each result, as it comes.
        workers: Bugs that are tried at a time.

    Returns:
        The results, in the order of the bugs.
    """
    listed = shipped_mutants() if mutants is None else mutants
    known = {one.id: one for one in _read(file)}
    chosen = [one for one in listed if not only or one.id in only]
    for one in chosen:
        if one.id in known and listen is not None:
            listen(known[one.id])
    with ThreadPoolExecutor(workers) as pool:
        tried = [pool.submit(_in_a_process, one, options) for one in chosen if one.id not in known]
        try:
            for done in as_completed(tried):
                result = done.result()
                known[result.id] = result
                _keep(file, known.values())
                if listen is not None:
                    listen(result)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [known[one.id] for one in chosen]


def _keep(file: Path | None, results: Iterable[MutantResult]) -> None:
    """Write results down; whatever ends the process, the file is whole."""
    if file is None:
        return
    partial = file.with_name(f"{file.name}.partial")
    partial.write_bytes(_RESULTS.dump_json([*results], indent=1) + b"\n")
    os.replace(partial, file)


def _is_good_without(
    mutant: Mutant,
    program: Program,
    compiler: ExirkitCompiler,
    options: MutationBenchOptions,
    seed: int,
    verdict: Verdict,
) -> bool:
    """Whether there is nothing to find in a program but the bug; what a blind checker misses does not count."""
    if mutant.together:
        return True
    with applied_companions(mutant):
        without = check(program, compiler=compiler, oracles=options.oracles, seed=seed)
    # What the compiler rejects and should does not concern of a bug that rejects it too.
    return without.is_good and (bool(verdict.failures) or without.unsupported is None)


def _blamed(mutant: Mutant, program: Program, failure: Failure, compiler: Compiler, seed: int) -> dict[str, Any]:
    found = {"killed_by": failure.oracle, "symptom": failure.symptom}
    try:
        with _at_most(_BLAME_SECONDS), applied(mutant):
            culprit = localized(program, failure, compiler, seed, trials=_TRIALS).culprit
    except (Exception, _BlameTooLongError) as error:  # the mutant may break the search; it is found all the same
        return {**found, "is_blame_right": False, "note": f"{type(error).__name__}: {error}"}
    return {**found, "blamed": culprit.part, "is_blame_right": culprit.part in mutant.culprits}


class _BlameTooLongError(BaseException):
    """Blame took too much time; no `Exception`, since these are taken for failures of the compiler."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """End a block that takes more time of the processor; a bug may let the interpreter or a pass run for ever."""
    if threading.current_thread() is not threading.main_thread():
        # Signals reach the main thread only.
        yield
        return

    def end(*_: object) -> None:
        raise _BlameTooLongError(f"not localized within {seconds:.0f} s")

    handler = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)


def _in_a_process(mutant: Mutant, options: MutationBenchOptions) -> MutantResult:
    """Try one mutant in a process of its own, which may die or hang."""
    with ProcessPool(1) as pool:
        try:
            return pool.submit(_run_in_time, mutant, options).result()
        except Exception as error:
            note = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            return MutantResult(id=mutant.id, part=mutant.part, note=note)


def _run_in_time(mutant: Mutant, options: MutationBenchOptions) -> MutantResult:
    with watchdog(_PATIENCE * (options.seconds + _START_SECONDS)):
        return run_mutant(mutant, options)


def _read(file: Path | None) -> list[MutantResult]:
    return [] if file is None or not file.exists() else _RESULTS.validate_json(file.read_bytes())

"""Methods that are called in turn: each alone, and those that share what they write."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.examination import (
    Budget,
    Examination,
    FailedError,
    Failure,
    NotRunError,
    differing_outputs,
    run_in_turn,
)
from exirkit.fuzz.oracles.oracle import Oracle
from exirkit.fuzz.programs import Program, Run, run_eagerly, run_shaken

_BITS: Literal["bits"] = "bits"


class MethodsInTurn(Oracle):
    """Methods of one loaded program do not disturb each other, and see what others write where they share buffers.

    Private buffers: what a method computes does not depend on what is called in between. Shared buffers (the program is
    lowered once more, with `share_mutable_buffers`): it is what eager PyTorch computes in that order of calls.
    """

    name = "methods-in-turn"
    title = "methods that are called in turn"
    cost = 136
    is_default = False
    needs = ("file", "results")
    suspects = ("stage",)

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what methods compute differently when they are called in turn."""
        program = examination.program
        if len(examination.methods) < 2:
            raise NotRunError("there is one method only")
        order = _mixed(program.runs, examination.methods, examination.seed)
        calls = [(run.method, examination.inputs[run.method][place]) for run, place in order]
        for (run, place), one in zip(
            order,
            run_in_turn(examination.lowering.data, calls, is_for_official=examination.is_for_official),
            strict=True,
        ):
            wanted = examination.results[run.method][place].outputs
            where, bits = f"{run.method}, run {place + 1}", [_BITS] * len(wanted)
            budget = partial(examination.budget_of_output, run.method, place)
            yield from differing_outputs(self.name, one.outputs, wanted, bits, budget, where, "others in between")
        compiler = examination.compiler
        if isinstance(compiler, ExirkitCompiler) and _shares_buffers(program) and _may_share(compiler):
            changed = replace(program, runs=tuple(run for run, _ in order))
            shared = Examination(changed, replace(compiler, share_mutable_buffers=True), examination.seed)
            yield from self._shared(shared, calls)

    def _shared(self, examination: Examination, calls: Sequence[tuple[str, Sequence[Any]]]) -> Iterator[Failure]:
        """Yield what methods that share buffers compute differently from eager PyTorch."""
        program = examination.program
        try:
            data = examination.lowering.data
        except FailedError as error:
            failure = error.failure
            yield Failure(self.name, f"shared {failure.symptom}", failure.message, failure.stage)
            return
        wanted, precise = run_eagerly(program), run_eagerly(program, in_float64=True)
        expectations = examination.lowered_expectations
        found = run_in_turn(data, calls, share_arenas=True, is_for_official=examination.is_for_official)

        def budget_of(number: int, place: int) -> Budget:
            return precise[number].outputs[place], lambda: [one[number].outputs[place] for one in run_shaken(program)]

        for number, (one, expected) in enumerate(zip(found, wanted, strict=True)):
            closeness, where = expectations[expected.method].outputs, f"{expected.method}, call {number + 1} of all"
            outputs = (one.outputs, expected.outputs, closeness, partial(budget_of, number))
            yield from differing_outputs(self.name, *outputs, where, "buffers that methods share")


def _mixed(runs: Sequence[Run], methods: Sequence[str], seed: int) -> list[tuple[Run, int]]:
    """Return all runs with their numbers among those of their method, which stay in order, mixed with each other."""
    left = {name: [run for run in runs if run.method == name] for name in methods}
    chooser = random.Random(seed)
    order: list[tuple[Run, int]] = []
    while left:
        name = chooser.choice(sorted(left))
        order.append((left[name].pop(0), sum(run.method == name for run, _ in order)))
        if not left[name]:
            del left[name]
    return order


def _shares_buffers(program: Program) -> bool:
    """Whether two methods write to one buffer, and every method that reads a written buffer writes to it."""
    is_shared = False
    for one in program.stored:
        if one.kind == "buffer":
            writers = {method.name for method in program.methods if one.name in dict(method.updates)}
            readers = {method.name for method in program.methods if one.name in method.names_read}
            if writers and readers - writers:
                return False
            is_shared = is_shared or len(writers) > 1
    return is_shared


def _may_share(compiler: ExirkitCompiler) -> bool:
    return not compiler.separate_methods and compiler.memory_policy is None

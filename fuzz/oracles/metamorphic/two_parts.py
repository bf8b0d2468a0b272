"""A metamorphic relation: a program that is cut in two computes what the whole does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from exirkit.fuzz.examination import (
    Examination,
    FailedError,
    Failure,
    NotRunError,
    differing_outputs,
    halves,
)
from exirkit.fuzz.oracles.oracle import Oracle
from exirkit.fuzz.programs import run_eagerly

_ONE_OF = 4


class TwoParts(Oracle):
    """A program whose first part hands its results over to the second computes the same as the whole.

    It lowers two more programs: it is asked when it is named, and by every fourth seed.
    """

    name = "two-parts"
    title = "a program in two parts computes what the whole does"
    cost = 134
    is_default = False
    needs = ("results",)
    suspects = ("stage",)

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what the two parts compute differently."""
        if examination.seed % _ONE_OF != 3:
            return
        program = examination.program
        if program.symbols:
            raise NotRunError("what one part hands over to the other would have sizes that vary")
        name = examination.methods[examination.seed // _ONE_OF % len(examination.methods)]
        run = examination.runs_of(name)[0]
        method = next(one for one in program.methods if one.name == name)
        (values,) = run_eagerly(replace(program, runs=(run,)), keep_values=True)
        parts = halves(program, method, run, values.values, examination.seed)
        if parts is None:
            raise NotRunError("there is no place to cut")
        first, second = parts
        note = f"{name} cut after call {len(first.methods[0].steps)}"
        try:
            (handed,) = Examination(first, examination.compiler, examination.seed).results[name]
            (found,) = Examination(second(handed.outputs), examination.compiler, examination.seed).results[name]
        except FailedError as error:
            failure = error.failure
            yield Failure(self.name, f"equivalent {failure.symptom}", f"{note}: {failure.message}", failure.stage)
            return
        closeness = examination.lowered_expectations[name].outputs
        budget = partial(examination.budget_of_output, name, 0)
        wanted = examination.results[name][0].outputs
        yield from differing_outputs(self.name, found.outputs, wanted, closeness, budget, name, note)

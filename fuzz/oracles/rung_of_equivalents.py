"""O13: a program that must compute the same does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from exirkit.fuzz.examination.comparing import beyond_budget, difference, difference_of_types
from exirkit.fuzz.examination.equivalents import equivalent
from exirkit.fuzz.examination.examination import Examination, FailedError, NotRunError
from exirkit.fuzz.examination.verdict import Failure


class EquivalentPrograms:
    """O13: detours and dead code change nothing, and neither does compiling a second time."""

    id: ClassVar[str] = "O13"
    title: ClassVar[str] = "metamorphic equivalents"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        usual = examination.results
        changed, note = equivalent(examination.program, examination.seed)
        if not note:
            raise NotRunError("there is no place for a detour")
        other = Examination(changed, examination.compiler, examination.seed)
        try:
            results = other.results
        except FailedError as error:
            failure = error.failure
            yield Failure(self.id, f"equivalent {failure.symptom}", f"{note}: {failure.message}", failure.stage)
            return
        for method, listed in results.items():
            closeness = examination.lowered_expectations[method].outputs
            if not other.lowering.is_exact:
                closeness = other.lowered_expectations[method].outputs
            for index, one in enumerate(listed):
                pairs = zip(one.outputs, usual[method][index].outputs, closeness, strict=True)
                for place, (got, wanted, close) in enumerate(pairs):
                    found = difference_of_types(got, wanted) if close == "type" else difference(got, wanted)
                    if found is not None and close == "budget":
                        found = beyond_budget(got, wanted, examination.precise[method][index].outputs[place])
                    if found is not None:
                        message = f"{method}, run {index + 1}, output {place}, with {note}: {found[1]}"
                        yield Failure(self.id, f"equivalent {found[0]}", message, "file", f"output {place}")

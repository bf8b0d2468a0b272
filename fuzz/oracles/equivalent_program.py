"""A metamorphic relation: programs that must compute the same do."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import (
    Examination,
    FailedError,
    Failure,
    NotRunError,
    beyond_budget,
    difference,
    difference_of_types,
    equivalent,
)

from .oracle import Oracle


class EquivalentProgram(Oracle):
    """Detours and dead code change nothing, and neither does compiling a second time."""

    name = "equivalent-program"
    title = "metamorphic equivalents"
    cost = 130
    is_default = False
    needs = ("results",)
    suspects = ("equivalent program",)
    former_name = "O13"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what the equivalent program computes differently."""
        changed, note = equivalent(examination.program, examination.seed)
        if not note:
            raise NotRunError("there is no place for a detour")
        other = Examination(changed, examination.compiler, examination.seed)
        try:
            results = other.results
        except FailedError as error:
            failure = error.failure
            yield Failure(self.name, f"equivalent {failure.symptom}", f"{note}: {failure.message}", failure.stage)
            return
        for method, listed in results.items():
            exact = examination if other.lowering.is_exact else other
            closeness = exact.lowered_expectations[method].outputs
            for index, one in enumerate(listed):
                pairs = zip(one.outputs, examination.results[method][index].outputs, closeness, strict=True)
                for place, (got, wanted, close) in enumerate(pairs):
                    found = difference_of_types(got, wanted) if close == "type" else difference(got, wanted)
                    if found is not None and close == "budget":
                        found = beyond_budget(got, wanted, examination.precise[method][index].outputs[place])
                    if found is not None:
                        message = f"{method}, run {index + 1}, output {place}, with {note}: {found[1]}"
                        yield Failure(self.name, f"equivalent {found[0]}", message, "file", f"output {place}")

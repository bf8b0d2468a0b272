"""Results against those of float64."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, beyond_budget
from exirkit.fuzz.oracles.oracle import FILE_SUSPECTS, Oracle


class ErrorBudget(Oracle):
    """Results are about as close to those of float64 as eager torch is."""

    name = "error-budget"
    title = "float64, with an error budget"
    cost = 120
    needs = ("results",)
    suspects = tuple(FILE_SUSPECTS)
    former_name = "O12"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield outputs that are farther from float64 than the budget."""
        for method, results in examination.results.items():
            closeness = examination.lowered_expectations[method].outputs
            for index, one in enumerate(results):
                wanted = examination.reference[method][index].outputs
                for place, (got, expected) in enumerate(zip(one.outputs, wanted, strict=False)):
                    if closeness[place] != "budget":
                        continue
                    budget = examination.budget_of_output(method, index, place)
                    found = beyond_budget(got, expected, *budget)
                    if found is not None:
                        message = f"file: {method}, run {index + 1}, output {place}: {found[1]}"
                        yield Failure(self.name, f"output {found[0]}", message, "file", f"output {place}")

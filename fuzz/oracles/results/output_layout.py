"""The layout of results: a caller relies on it as on their values."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, ExpectedLayouts, Failure
from exirkit.fuzz.oracles.oracle import Oracle


class OutputLayout(Oracle):
    """Results lie in memory as those of eager torch do; a program that lost a layout change has the same values."""

    name = "output-layout"
    title = "results have the layouts of eager torch"
    cost = 65
    needs = ("exported", "results")
    suspects = ("stated layouts", "passes", "planner", "emission", "emitter")

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield the first result of each method that lies otherwise."""
        for method in examination.methods:
            results = [one.outputs for one in examination.results[method]]
            found = ExpectedLayouts(examination, method).first_other(results)
            if found is not None:
                run, place, order, expected = found
                message = f"{method}, run {run + 1}, output {place}: dims lie in order {order} instead of {expected}"
                details = {"method": method, "run": run}
                yield Failure(self.name, "output layout", message, "file", f"output {place}", details)

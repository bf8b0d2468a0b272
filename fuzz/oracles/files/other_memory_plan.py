"""Another memory plan for the same program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from exirkit.fuzz.examination import LAYOUTS, Examination, Failure, difference, failure_of_error, replanned, run_file
from exirkit.fuzz.examination.file_runs import FileResult
from exirkit.fuzz.oracles.oracle import Oracle
from exirkit.ir import ALIGNMENT, DiagnosticError


class OtherMemoryPlan(Oracle):
    """The results do not depend on where values lie."""

    name = "other-memory-plan"
    title = "another memory plan gives the same results"
    cost = 90
    needs = ("own plan", "results")
    suspects = ("earlier oracles", "allocation", "emission of other plan", "planner")
    former_name = "O9"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what differs between two plans."""
        layout = sorted(LAYOUTS)[examination.seed % len(LAYOUTS)]
        try:
            data = replanned(examination, layout).buffer
            for method in examination.methods:
                calls, buffers = examination.inputs[method], examination.buffers_of(method)
                others = run_file(
                    data, method, calls, buffers, is_sanitized=False, is_for_official=examination.is_for_official
                )
                for index, (one, other) in enumerate(zip(examination.results[method], others, strict=True)):
                    found = _difference(other, one, may_sum_otherwise=_may_sum_otherwise(examination))
                    if found is not None:
                        message = f"{method}, run {index + 1}: with plan {layout}: {found[1]}"
                        yield Failure(self.name, f"layout {found[0]}", message, "planner", details={"layout": layout})
        except DiagnosticError as error:
            failed = failure_of_error(error, self.name, "planner")
            yield replace(failed, details={**failed.details, "layout": layout})


def _difference(got: FileResult, wanted: FileResult, *, may_sum_otherwise: bool) -> tuple[str, str] | None:
    """Return how the first value differs that may not, of the outputs and then of the state."""
    pairs = zip([*got.outputs, *got.state.values()], [*wanted.outputs, *wanted.state.values()], strict=True)
    found = (difference(one, other) for one, other in pairs)
    return next((one for one in found if one is not None and not (may_sum_otherwise and one[0] == "last-bits")), None)


def _may_sum_otherwise(examination: Examination) -> bool:
    """Return whether values lie so loosely aligned that libraries add products up in another order at other places."""
    return getattr(examination.compiler, "alignment", ALIGNMENT) < ALIGNMENT

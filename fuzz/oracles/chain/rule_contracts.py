"""The contract of rules: dtype, shape and layout of what they replace."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure
from exirkit.fuzz.oracles.oracle import Oracle


class RuleContracts(Oracle):
    """No rule makes a result of another dtype, shape or layout, or one that reads what is computed later.

    The engine takes such a result back, and no other oracle finds it.
    """

    name = "rule-contracts"
    title = "results of rules have the types of what they replace"
    cost = 12
    needs = ("lowering",)
    suspects = ("stage",)

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield a failure for each rule whose result was taken back."""
        for rule, (stage, text) in examination.trace.faults.items():
            yield Failure(self.name, "result taken back", f"rule {rule} {text}", stage, details={"rule": rule})

"""The lowering: the chain takes the program, and its verifiers find nothing after any pass."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure
from exirkit.fuzz.oracles.oracle import Oracle


class Lowering(Oracle):
    """The chain takes the program, and its verifiers find nothing after any pass."""

    name = "lowering"
    title = "the chain works, with verifiers after every pass"
    cost = 10
    needs = ("lowering",)
    suspects = ("verifier", "rejected calls", "passes", "plan", "shared views", "stage")
    former_name = "O1"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield nothing: what fails is what the oracle needs."""
        return iter(())

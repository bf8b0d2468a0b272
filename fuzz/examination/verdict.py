"""What the oracles report about a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Failure:
    """Something that does not hold.

    Attributes:
        oracle: Name of the oracle, such as `dialect-agreement`.
        symptom: Kind of what is wrong, the same for all programs that suffer from one bug: no names, no numbers.
        message: What is wrong, for people.
        stage: The part or the pass where it shows, as far as the oracle can tell.
        node: Name of the node or value.
        details: More, as JSON takes it.
    """

    oracle: str
    symptom: str
    message: str
    stage: str | None = None
    node: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rung(self) -> str:
        """Deprecated name of `oracle`, which scripts of older versions print."""
        return self.oracle

    def document(self) -> dict[str, Any]:
        """Return the failure as JSON takes it."""
        return {
            "oracle": self.oracle,
            "symptom": self.symptom,
            "message": self.message,
            "stage": self.stage,
            "node": self.node,
            "details": dict(self.details),
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Failure:
        """Return the failure that `document` described."""
        return cls(**document)


@dataclass
class Comparisons:
    """How values were compared.

    Attributes:
        bitwise: Bit for bit.
        tolerant: Within the error budget.
        undecided: Shape and dtype only.
    """

    bitwise: int = 0
    tolerant: int = 0
    undecided: int = 0


@dataclass(frozen=True)
class Verdict:
    """What the oracles report.

    Attributes:
        failures: All of the first oracle that has any, or of all oracles if they were asked for.
        unsupported: Code of the diagnostic with which the compiler rejected a program as not supported.
        rejected_by: The pass or part that raised this diagnostic.
        seconds: Time by phase (`build`, `lower`, ...) and by oracle; an oracle's own time is without phases.
        not_run: Oracles that could not be asked, and why.
        comparisons: How values were compared.
        fired: How often the rules under test were applied, by id.
        changed: Whether each part under test has changed the program: passes, pipelines and their stages, by name.
        worked: Passes of the shipped pipelines that changed the program.
    """

    failures: tuple[Failure, ...] = ()
    unsupported: str | None = None
    rejected_by: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    not_run: Mapping[str, str] = field(default_factory=dict)
    comparisons: Comparisons = field(default_factory=Comparisons)
    fired: Mapping[str, int] = field(default_factory=dict)
    changed: Mapping[str, bool] = field(default_factory=dict)
    worked: frozenset[str] = frozenset()

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.failures

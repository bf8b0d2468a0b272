"""Who is guilty of a failure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guilt:
    """The part of a compiler that a failure comes from.

    Attributes:
        pass_name: Name of a pass, or `export`, `planner`, `emitter`, `interpreter`, `official-runtime`,
            `official-exporter`, `compiler` (a black box), `eager` (the program itself).
        application: Number of the rule application, counted from 1, where the pass applies rules.
        rule: Id of that rule.
        method: Name of the method in which it shows.
        evidence: How that was found out.
    """

    pass_name: str
    application: int | None = None
    rule: str | None = None
    method: str | None = None
    evidence: str = ""

    def __str__(self) -> str:
        applied = f", rule {self.rule}, application {self.application}" if self.rule else ""
        return f"{self.pass_name}{applied}"

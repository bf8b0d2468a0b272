"""What rewriting did: every application of a rule, and why others were not made."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Application:
    """One rewrite.

    Attributes:
        number: Counted from 1.
        rule: Id of the rule.
        root: Name of the first root that was replaced.
        before: Names of the matched nodes, roots first.
        after: Names of the new nodes.
        bindings: Values of variables and sizes, as text.
        seconds: What matching and rewriting took.
    """

    number: int
    rule: str
    root: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    bindings: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class Refusal:
    """A match that was not rewritten.

    Attributes:
        rule: Id of the rule.
        node: Name of the node; empty for a rule that could not match anywhere in the program.
        reason: Why.
        is_fault: The rule did not keep its word: its result had another dtype, shape or layout.
    """

    rule: str
    node: str
    reason: str
    is_fault: bool = False


@dataclass
class RuleStatistics:
    """What became of one rule."""

    tried: int = 0
    matched: int = 0
    applied: int = 0
    seconds: float = 0.0


@dataclass
class RewriteReport:
    """What a run of the engine did.

    Attributes:
        journal: Applications in their order.
        refusals: Matches that were not rewritten.
        statistics: By rule.
        visited: How many nodes were looked at, repeated ones counted.
        seconds: The whole run.
        is_limited: It ended because the limit of applications was reached.
    """

    journal: list[Application] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    statistics: dict[str, RuleStatistics] = field(default_factory=dict)
    visited: int = 0
    seconds: float = 0.0
    is_limited: bool = False

    @property
    def applied(self) -> Counter[str]:
        """How often each rule was applied."""
        return Counter(one.rule for one in self.journal)

"""What rewriting did: every application of a rule, why others were not made, and how to undo them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from exirkit.ir import Checkpoint, Diagnostic, GraphEditor, UsageError


@dataclass(frozen=True)
class Application:
    """One rewrite.

    Attributes:
        number: Counted from 1.
        rule: Id of the rule.
        graph: Which graph: nothing for that of the program, otherwise the attributes that lead to a body of control
            flow, with dots between them.
        root: Name of the first root that was replaced.
        before: Names of the matched nodes, roots first.
        after: Names of the new nodes.
        bindings: Values of variables and sizes, as text.
        seconds: What matching and rewriting took.
        interface: What the program takes or gives instead, as `input x: int64 [2] -> int32 [2]`, if that has changed.
    """

    number: int
    rule: str
    root: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    bindings: dict[str, str]
    seconds: float
    graph: str = ""
    interface: str | None = None

    def entry(self) -> dict[str, Any]:
        """Return what a journal says of it, which is the same whenever the same is done."""
        return {
            "number": self.number,
            "rule": self.rule,
            "graph": self.graph,
            "root": self.root,
            "before": list(self.before),
            "after": list(self.after),
            "bindings": dict(self.bindings),
            **({} if self.interface is None else {"interface": self.interface}),
        }


@dataclass(frozen=True)
class Rejection:
    """A match that was not rewritten.

    Attributes:
        rule: Id of the rule.
        node: Name of the node; empty for a rule that could not match anywhere in the program.
        reason: Why.
        is_fault: The rule violated its contract: its result had another dtype, shape or dense layout, or read what is
            computed behind the match.
        graph: Which graph, as in `Application`.
    """

    rule: str
    node: str
    reason: str
    is_fault: bool = False
    graph: str = ""


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
        rejections: Matches that were not rewritten.
        statistics: By rule.
        seconds: The whole run.
        is_limited: It ended because the limit of applications was reached.
    """

    journal: list[Application] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    statistics: dict[str, RuleStatistics] = field(default_factory=dict)
    seconds: float = 0.0
    is_limited: bool = False

    @property
    def refusals(self) -> list[Rejection]:
        """Former name of `rejections`."""
        warnings.warn("RewriteReport.refusals is now called rejections", DeprecationWarning, stacklevel=2)
        return self.rejections

    @property
    def applied(self) -> Counter[str]:
        """How often each rule was applied."""
        return Counter(one.rule for one in self.journal)

    @property
    def interface(self) -> list[str]:
        """What the program takes and gives instead of what it did, change by change."""
        return [one.interface for one in self.journal if one.interface is not None]

    def document(self) -> dict[str, Any]:
        """Return applications and rejections as JSON takes them, without times: two equal runs give equal documents."""
        return {
            "applications": [one.entry() for one in self.journal],
            "rejections": [asdict(one) for one in self.rejections],
        }


# What rules did to a program, while it can still be undone


class RewriteHistory:
    """Applications on a program, the last of which can be undone; see `RuleEngine.reversible`.

    After `undo` and `undo_to` the program is what a run with that limit of applications would have made of it.

    Args:
        editor: Editor of the program, inside a transaction.

    Attributes:
        report: What the engine did; its journal is that of the applications that stand.
    """

    def __init__(self, editor: GraphEditor) -> None:
        self.report = RewriteReport()
        self._editor = editor
        self._marks: list[Checkpoint] = []
        self._tidying: list[tuple[int, Callable[[], None]]] = []

    @property
    def journal(self) -> list[Application]:
        """The applications that stand, in their order."""
        return self.report.journal

    def undo(self) -> Application:
        """Undo the last application and return it.

        Raises:
            UsageError: EK253, nothing is left to undo; EK121, the rewriting is over.
        """
        if not self.journal:
            raise UsageError(Diagnostic(code="EK253", message="no application is left to undo"))
        last = self.journal[-1]
        self.undo_to(last.number - 1)
        return last

    def undo_to(self, count: int) -> None:
        """Undo all but the first `count` applications.

        Raises:
            UsageError: EK253, there were not that many; EK121, the rewriting is over.
        """
        if not 0 <= count <= len(self.journal):
            message = f"{count} of {len(self.journal)} applications cannot be kept"
            raise UsageError(Diagnostic(code="EK253", message=message))
        if count == len(self.journal):
            return
        self._marks[count].restore()
        for one in self.journal[count:]:
            self.report.statistics[one.rule].applied -= 1
        del self.journal[count:], self._marks[count:]
        self.report.is_limited = True
        self._tidying = [(start, tidy) for start, tidy in self._tidying if start <= count]
        for _, tidy in self._tidying:
            tidy()
        self._editor.agree()

    def mark(self) -> Checkpoint:
        """Return the present state, for `push`."""
        return self._editor.checkpoint()

    def push(self, mark: Checkpoint) -> None:
        """Note the state before an application that was made."""
        self._marks.append(mark)

    def tidied(self, start: int, tidy: Callable[[], None]) -> None:
        """Note how a graph is tidied up after its last application; `start` were made before its first."""
        self._tidying.append((start, tidy))

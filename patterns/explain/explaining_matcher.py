"""A second, slow matcher that remembers how far it got: the matcher itself, with every term wrapped.

The engine's matcher is compiled without any of this. Here each term says when it begins and when it is met, so that of
all the ways that a search tries, the one that got furthest is known, and what stopped it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from exirkit.patterns.forms.catalogue import Forms
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.matcher import PatternCompiler
from exirkit.patterns.matching.state import CompiledGuard, Matcher, State, Then
from exirkit.patterns.syntax.terms import Operator, Pattern, Term

Progress = tuple[int, int, int]
"""Whether the whole pattern is met, how many terms are begun or met, and whether a condition stopped the last one."""


@dataclass(frozen=True)
class Stop:
    """Where one way of the search ended.

    Attributes:
        progress: How far it got.
        reason: What the matcher said.
        value: What was there.
        term: What it was compared with; None once the whole pattern is met.
        within: Term around that one, if there is one.
        guard: The condition that did not hold, if one was asked.
        names: What was bound.
        nodes: Matched calls.
    """

    progress: Progress
    reason: str
    value: Any
    term: Any
    within: Any
    guard: CompiledGuard | None
    names: Mapping[str, Any]
    nodes: tuple[Node, ...]


@dataclass
class Search:
    """Follows one search for a match.

    Attributes:
        open: Terms that have begun and are not met yet, with their values.
        met: How many are met on the way that is being tried.
        stops: The ways that got furthest, in the order in which they ended.
        guard: The condition that is being asked.
        state: What the search knows.
        is_whole: The pattern is met; what fails now are the rules about what is around it.
    """

    open: list[tuple[Any, Any]] = field(default_factory=list)
    met: int = 0
    stops: list[Stop] = field(default_factory=list)
    guard: CompiledGuard | None = None
    state: State | None = None
    is_whole: bool = False

    @property
    def progress(self) -> Progress:
        """How far the search got; nothing at all is (0, 0, 0)."""
        return self.stops[0].progress if self.stops else (0, 0, 0)

    def note(self, depth: int, reason: str, value: Any, term: Any) -> None:
        """Take down where a way ends, unless an earlier one got further; called by the state of the search."""
        assert self.state is not None, "a search has begun"
        progress = (int(self.is_whole), self.met + len(self.open), int(self.guard is not None))
        if self.stops and progress < self.progress:
            return
        if progress > self.progress:
            self.stops.clear()
        shown = None if self.is_whole else self.open[-1][0] if term is None and self.open else term
        around = next((one for one, _ in reversed(self.open) if one is not shown), None)
        self.stops.append(
            Stop(
                progress, reason, value, shown, around, self.guard, dict(self.state.names), tuple(self.state.nodes)
            )
        )  # fmt: skip


class ExplainingCompiler(PatternCompiler):
    """Compiles a pattern so that a search can be followed."""

    def __init__(
        self,
        pattern: Pattern,
        variables: Mapping[str, Any],
        guards: Sequence[CompiledGuard],
        search: Search,
        forms: Mapping[Operator, Forms] | None = None,
    ) -> None:
        super().__init__(pattern, variables, guards, forms)
        self.search = search

    def term(self, term: Term, then: Then) -> Matcher:
        """Return the matcher of a term, which says when it begins and when it is met."""
        search = self.search

        def met(state: State) -> bool:
            # What follows is matched inside this call, so the term is taken off and put back on.
            top = search.open.pop()
            search.met += 1
            try:
                return then(state)
            finally:
                search.met -= 1
                search.open.append(top)

        matcher = super().term(term, met)

        def match(value: Any, state: State) -> bool:
            search.open.append((term, value))
            try:
                return matcher(value, state)
            finally:
                search.open.pop()

        return match

    def _holds(self, guard: CompiledGuard, state: State) -> bool:
        self.search.guard = guard
        try:
            return super()._holds(guard, state)
        finally:
            self.search.guard = None


def explaining_match(rule: CompiledRule, search: Search) -> Callable[[Node, State], bool]:
    """Return a closure like `rule.match` whose search is followed."""
    match = ExplainingCompiler(rule.pattern, rule.variables, rule.guards, search, rule.forms).compile()

    def followed(node: Node, state: State) -> bool:
        search.state = state
        search.is_whole = match(node, state)
        return search.is_whole

    return followed

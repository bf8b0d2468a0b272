"""What a search for a match knows, and the conditions that it asks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from exirkit.patterns.forms.composites import FoundComposites
from exirkit.patterns.functions.graph import GraphFacts
from exirkit.patterns.syntax.constant_names import FACTS, ConstantNames, numbers_read
from exirkit.patterns.syntax.expressions import Compiled, NameView
from exirkit.patterns.syntax.programs import Program

Then = Callable[["State"], bool]
Matcher = Callable[[Any, "State"], bool]


@dataclass(frozen=True)
class CompiledGuard:
    """A condition, ready to be asked as soon as its names are bound."""

    text: str
    compiled: Compiled
    needs: frozenset[str]
    kind: str = "sound"
    assume: bool = False
    opaque: tuple[str, ...] = ()


Progress = tuple[int, int, int]
"""Whether the whole pattern matches, how many calls and names were bound, and whether a guard failed."""


@dataclass(frozen=True)
class Failure:
    """Where one way of a search failed.

    Attributes:
        progress: How far it got.
        reason: What is wrong.
        value: What was found.
        term: What it was compared with; None if the whole pattern matches.
        guard: The condition that does not hold, if it is one.
        names: What was bound.
        nodes: Matched calls.
    """

    progress: Progress
    reason: str
    value: Any
    term: Any
    guard: CompiledGuard | None
    names: Mapping[str, Any]
    nodes: tuple[Node, ...]


@dataclass
class FailureTrace:
    """The deepest failures of a search.

    Attributes:
        failures: Those that got furthest, in the order in which they happened.
        is_whole: The pattern matches; what fails now are the conditions on what surrounds the match.
    """

    failures: list[Failure] = field(default_factory=list)
    is_whole: bool = False

    @property
    def progress(self) -> Progress:
        """How far the search got."""
        return self.failures[0].progress if self.failures else (0, 0, 0)

    def note(self, state: State, reason: str, value: Any, term: Any) -> None:
        """Keep a failure, unless an earlier one got further."""
        guard = term if isinstance(term, CompiledGuard) else None
        progress = (int(self.is_whole), len(state.nodes) + len(state.names), int(guard is not None))
        if self.failures and progress < self.progress:
            return
        if progress > self.progress:
            self.failures.clear()
        shown = None if self.is_whole or guard is not None else term
        self.failures.append(Failure(progress, reason, value, shown, guard, dict(state.names), tuple(state.nodes)))


@dataclass(slots=True)
class State:
    """What a search knows so far.

    Attributes:
        facts: What guards may ask about the graph.
        names: Variables, sizes and named terms that are bound.
        nodes: Matched calls, roots first.
        terms: Node of each call term, by the identity of the term.
        roots: Nodes of the roots; None for a result that nothing uses.
        trace: Remembers where the search fails; None while rewriting, which then costs nothing.
        beside: Arguments of the call among which a value is being matched.
        sees_through: Calls that give back what they were given may be looked through: nothing writes to a tensor.
        parts: The last call by each further call that is read with it as one.
        composites: Operators that are recognized in their parts; without it, none are.
    """

    facts: GraphFacts
    names: dict[str, Any]
    nodes: list[Node] = field(default_factory=list)
    terms: dict[int, Node] = field(default_factory=dict)
    roots: list[Node | None] = field(default_factory=list)
    trace: FailureTrace | None = None
    beside: Any = None
    sees_through: bool = False
    parts: dict[Node, Node] = field(default_factory=dict)
    composites: FoundComposites | None = None
    _assigned: dict[int, tuple[list[Any], dict[str, Any]]] = field(default_factory=dict)

    def assigned(self, let: Program) -> dict[str, Any]:
        """Return what a program assigns to names.

        Several conditions ask about these, and then the replacement does: as long as what the program uses is bound to
        the same values, and it asks nothing of the graph, it is run once.
        """
        used = [self.names.get(name) for name in let.uses]
        known = self._assigned.get(id(let))
        if known is not None and all(map(operator.is_, known[0], used)):
            return known[1]
        found = let.assigned(ConstantNames(MatchedNames(self)))
        if FACTS not in let.uses:
            self._assigned[id(let)] = used, found
        return found

    def fail(self, reason: str, value: Any = None, term: Any = None) -> bool:
        """Report a failure to the trace, if there is one.

        Args:
            reason: What is wrong.
            value: What was found.
            term: The term that it was compared with, or the guard that does not hold.
        """
        if self.trace is not None:
            self.trace.note(self, reason, value, term)
        return False


class MatchedNames(NameView):
    """Names of a state, and the facts of the graph under their key."""

    def __init__(self, state: State) -> None:
        self.names = state.names
        self.state = state

    def __getitem__(self, key: str) -> Any:
        if key == FACTS:
            return _FactsOfParts(self.state.facts, self.state.parts) if self.state.parts else self.state.facts
        return numbers_read(self.names[key])


class _FactsOfParts:
    """Facts of a graph in which several calls are read as one: together they are one user of a value."""

    def __init__(self, facts: GraphFacts, parts: Mapping[Node, Node]) -> None:
        self._facts = facts
        self._parts = parts

    def users(self, x: Any) -> int:
        """Return how many calls use a value."""
        count = self._facts.users(x)
        if not isinstance(x, Node):
            return count
        read = [self._parts.get(user, user) for user in x.users]
        return count - (len(read) - len(set(read)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._facts, name)

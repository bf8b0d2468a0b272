"""Matching all users of a value: each of them is a root, in the order of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.fx import Node

from exirkit.patterns.matching.state import State, Then
from exirkit.patterns.operators.arguments import is_remark
from exirkit.patterns.syntax.comprehensions import own_terms
from exirkit.patterns.syntax.every_user import USERS
from exirkit.patterns.syntax.terms import Call, Element, EveryUser, Item, OperatorCall, Splat, children

if TYPE_CHECKING:
    from collections.abc import Callable

    from exirkit.patterns.matching.matcher import PatternCompiler


_FAR = 1 << 10


class _Place:
    """How far the users of a value have been matched.

    Attributes:
        value: The value.
        users: Its users.
        at: The first that is not matched.
        taken: Those that match.
        runs: For each of them the values of the further names.
    """

    __slots__ = ("at", "runs", "taken", "users", "value")

    def __init__(self, value: Node, users: list[Node], at: int, taken: tuple[Node, ...], runs: tuple[Any, ...]) -> None:
        self.value = value
        self.users = users
        self.at = at
        self.taken = taken
        self.runs = runs


def compile_every_user(compiler: PatternCompiler, term: EveryUser, then: Then) -> Callable[[Node, State], bool]:
    """Return a closure that matches all users of a value, from one of them."""
    return _EveryUser(compiler, term, then).match


class _EveryUser:
    """Matches all users of a value.

    Args:
        compiler: Of the pattern.
        term: The root of the pattern.
        then: What follows.
    """

    def __init__(self, compiler: PatternCompiler, term: EveryUser, then: Then) -> None:
        self.compiler = compiler
        self.term = term
        self.places: list[_Place] = []
        self.results: list[Node] = []
        self.depth = _depth(term.element, term.user)
        self.own = own_terms(term)
        self.is_some = term.is_some or id(term) in compiler.loose
        of = compiler.term(term.of, then)
        chain: Then = lambda state: of(self.places[-1].value, state)  # noqa: E731
        for index in reversed(range(len(term.lists))):
            chain = _collected(compiler, term, index, self.places, chain)
        self.collect = chain
        self.element = compiler.term(term.element, self._go_on)

    def match(self, node: Node, state: State) -> bool:
        """Match the users of the values that so many calls are below a node."""
        state.roots = []
        for value in _below(node, self.depth):
            users = sorted(user for user in value.users if not is_remark(user))
            if self._at(_Place(value, users, 0, (), ()), state):
                return True
        return state.fail("users of one value match", node, self.term)

    def _at(self, place: _Place, state: State) -> bool:
        self.places.append(place)
        try:
            return self._match_next(state)
        finally:
            self.places.pop()

    def _match_next(self, state: State) -> bool:
        place, term = self.places[-1], self.term
        if place.at == len(place.users):
            return self._finish(state)
        for result in _above(place.users[place.at], self.depth - 1):
            state.names[term.user] = place.value
            self.results.append(result)
            try:
                if self.element(result, state):
                    return True
            finally:
                self.results.pop()
            state.names.pop(term.user, None)
        if not self.is_some:
            return state.fail("all users match", place.users[place.at], term)
        return self._at(_Place(place.value, place.users, place.at + 1, place.taken, place.runs), state)

    def _go_on(self, state: State) -> bool:
        """One more user is matched: take its names and nodes out of the way of the next one."""
        place, term = self.places[-1], self.term
        names = {name: state.names.pop(name) for name in (term.user, *term.names)}
        terms = {key: state.terms.pop(key) for key in self.own if key in state.terms}
        runs = (*place.runs, tuple(names[name] for name in term.names))
        taken = (*place.taken, self.results[-1])
        if self._at(_Place(place.value, place.users, place.at + 1, taken, runs), state):
            return True
        state.names.update(names)
        state.terms.update(terms)
        return False

    def _finish(self, state: State) -> bool:
        place = self.places[-1]
        if not place.taken:
            return state.fail("no user matches", place.value, self.term)
        roots, state.roots = state.roots, list(place.taken)
        if self.compiler.bound(USERS, len(place.taken), state, self.collect):
            return True
        state.roots = roots
        return False


def _depth(term: Any, user: str) -> int:
    """Return how many calls there are from an element down to the value whose user it is."""
    if isinstance(term, Element):
        return 0 if term.name == user else _FAR
    own = isinstance(term, Call | OperatorCall | Item)
    return min((_depth(child, user) for child in children(term)), default=_FAR) + own


def _below(node: Node, depth: int) -> list[Node]:
    """Return the values that are so many calls below a node."""
    level = [node]
    for _ in range(depth):
        level = list(dict.fromkeys(source for one in level for source in one.all_input_nodes))
    return level


def _above(node: Node, depth: int) -> list[Node]:
    """Return the calls that are so many calls above a node."""
    level = [node]
    for _ in range(depth):
        level = list(dict.fromkeys(user for one in level for user in one.users if user.op == "call_function"))
    return sorted(level)


def _collected(compiler: PatternCompiler, term: EveryUser, index: int, places: list[_Place], then: Then) -> Then:
    matcher = compiler.splat(Splat(term.lists[index], place=term.place), then)
    return lambda state: matcher([run[index] for run in places[-1].runs], state)

"""Matching lists that their elements divide: comprehensions, and what stands around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from exirkit.patterns.matching.arguments import same_bound, same_number, scalar_shown
from exirkit.patterns.matching.state import Matcher, State, Then
from exirkit.patterns.syntax.comprehensions import own_terms
from exirkit.patterns.syntax.terms import Each, Element, Splat
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.types.parser import parse_variable

if TYPE_CHECKING:
    from exirkit.patterns.matching.matcher import PatternCompiler


class _Place:
    """How far a list has been matched.

    Attributes:
        values: The list.
        at: Its first element that is not matched.
        runs: Values of the names of a comprehension, element by element.
    """

    __slots__ = ("at", "runs", "values")

    def __init__(self, values: Sequence[Any], at: int, runs: tuple[tuple[Any, ...], ...] = ()) -> None:
        self.values = values
        self.at = at
        self.runs = runs


def compile_element_name(compiler: PatternCompiler, term: Element, then: Then) -> Matcher:
    """Match the name of an element: anything the first time, the same value after that."""
    name = term.name
    number = None if term.kind == "tensor" else parse_variable(name, term.kind)

    def match(value: Any, state: State) -> bool:
        shown = value if number is None else scalar_shown(number, value, state)
        if name not in state.names:
            return compiler.bound(name, shown, state, then)
        known = state.names[name]
        same = same_bound(known, value) or (number is not None and same_number(known, shown, value, state))
        return (same or state.fail(f"{name} is another value", value, term)) and then(state)

    return match


def compile_divided_list(compiler: PatternCompiler, term: ListTerm, then: Then) -> Matcher:
    """Match a list with a comprehension, or with a `*` on either side of an element.

    The fewest elements stand for the first `*`, as many as match for the comprehension, the others for the last `*`.

    All ways to divide the list are tried, in this order, until what follows matches too.
    """
    places: list[_Place] = []

    def finish(state: State) -> bool:
        place = places[-1]
        if place.at != len(place.values):
            return state.fail("elements of one form", place.values[place.at], term)
        return then(state)

    chain: Then = finish
    for item in reversed(term.items):
        if not isinstance(item, Splat):
            chain = _one(compiler, item, places, chain)
        elif isinstance(item.term, Each):
            chain = _run(compiler, item.term, places, chain)
        else:
            chain = _any_number(compiler, item, places, chain)

    def match(value: Any, state: State) -> bool:
        if not isinstance(value, list | tuple):
            return state.fail("a list is expected", value, term)
        return _at(places, _Place(value, 0), chain, state)

    return match


def _at(places: list[_Place], place: _Place, then: Then, state: State) -> bool:
    places.append(place)
    try:
        return then(state)
    finally:
        places.pop()


def _one(compiler: PatternCompiler, item: Any, places: list[_Place], then: Then) -> Then:
    """Match an element of its own."""

    def go_on(state: State) -> bool:
        place = places[-1]
        return _at(places, _Place(place.values, place.at + 1), then, state)

    matcher = compiler.term(item, go_on)

    def match(state: State) -> bool:
        place = places[-1]
        if place.at >= len(place.values):
            return state.fail("a further element is expected", list(place.values), item)
        return matcher(place.values[place.at], state)

    return match


def _any_number(compiler: PatternCompiler, splat: Splat, places: list[_Place], then: Then) -> Then:
    """Match the elements that `*xs` stands for, as few as possible first."""
    ends: list[int] = []

    def go_on(state: State) -> bool:
        return _at(places, _Place(places[-1].values, ends[-1]), then, state)

    matcher = compiler.splat(splat, go_on)

    def match(state: State) -> bool:
        place = places[-1]
        for end in range(place.at, len(place.values) + 1):
            ends.append(end)
            try:
                if matcher(list(place.values[place.at : end]), state):
                    return True
            finally:
                ends.pop()
        return False

    return match


def _run(compiler: PatternCompiler, each: Each, places: list[_Place], then: Then) -> Then:
    """Match the elements of a comprehension, as many as possible first."""
    own = own_terms(each)
    collect: Then = then
    for index in reversed(range(len(each.lists))):
        collect = _collected(compiler, each, index, places, collect)

    def ended(state: State) -> bool:
        if not places[-1].runs:
            return state.fail("an element of the comprehension is expected", None, each)
        return collect(state)

    def go_on(state: State) -> bool:
        """One more element is matched: take its names and nodes out of the way of the next one."""
        names = {name: state.names.pop(name) for name in each.names}
        terms = {key: state.terms.pop(key) for key in own if key in state.terms}
        place = places[-1]
        runs = (*place.runs, tuple(names.values()))
        if _at(places, _Place(place.values, place.at + 1, runs), match, state):
            return True
        state.names.update(names)
        state.terms.update(terms)
        return False

    element = compiler.term(each.element, go_on)

    def match(state: State) -> bool:
        place = places[-1]
        if place.at < len(place.values) and element(place.values[place.at], state):
            return True
        return ended(state)

    return match


def _collected(compiler: PatternCompiler, each: Each, index: int, places: list[_Place], then: Then) -> Then:
    """Bind one of the lists that a comprehension runs over."""
    matcher = compiler.splat(Splat(each.lists[index], place=each.place), then)
    return lambda state: matcher([run[index] for run in places[-1].runs], state)

"""Matching lists: element by element, with room for any number of them in one place."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from exirkit.patterns.syntax.terms import (
    Call,
    Splat,
    Term,
)
from exirkit.patterns.syntax.terms import Sequence as ListTerm

from .state import Matcher, State, Then
from .values import same_bound

if TYPE_CHECKING:
    from .matcher import PatternCompiler


def compile_list(compiler: PatternCompiler, term: ListTerm, then: Then) -> Matcher:
    """Match a list, of which one part may be of any length."""
    places = [index for index, item in enumerate(term.items) if isinstance(item, Splat)]
    if not places:
        return compile_fixed_list(compiler, term, then)
    at = places[0]
    splat = term.items[at]
    assert isinstance(splat, Splat)
    after = len(term.items) - at - 1
    rest = compile_elements(compiler, list(term.items[:at] + term.items[at + 1 :]), then)
    middle = compile_splat(compiler, splat, lambda state: True)

    def match(value: Any, state: State) -> bool:
        if not isinstance(value, list | tuple) or len(value) < at + after:
            return state.fail(f"a list of at least {at + after} elements is expected", value, term)
        inner = list(value[at : len(value) - after])
        outer = [*value[:at], *value[len(value) - after :]]
        names, terms, count = dict(state.names), dict(state.terms), len(state.nodes)
        if middle(inner, state) and rest(outer, state):
            return True
        state.names.clear()
        state.names.update(names)
        state.terms.clear()
        state.terms.update(terms)
        del state.nodes[count:]
        return False

    return match


def compile_fixed_list(compiler: PatternCompiler, term: ListTerm, then: Then) -> Matcher:
    """Match a list of a fixed number of elements."""
    count = len(term.items)
    elements = compile_elements(compiler, list(term.items), then)

    def match(value: Any, state: State) -> bool:
        if not isinstance(value, list | tuple) or len(value) != count:
            return state.fail(f"a list of {count} elements is expected", value, term)
        return elements(value, state)

    return match


def compile_elements(
    compiler: PatternCompiler, items: Sequence[Any], then: Then, *, are_arguments: bool = False
) -> Matcher:
    """Match elements one after another; each finds its value in a list that stands on the state's way.

    Args:
        compiler: Of the pattern.
        items: Terms of the elements.
        then: What follows.
        are_arguments: The list is the arguments of a call, and not one of them.
    """
    if not items:
        return lambda value, state: then(state)
    holder: list[Any] = []

    def last(state: State) -> bool:
        return then(state)

    chain: Then = last
    for index in reversed(range(len(items))):
        chain = compile_element(compiler, index, items[index], holder, chain, are_arguments)

    def match(value: Any, state: State) -> bool:
        holder.append(value)
        try:
            return chain(state)
        finally:
            holder.pop()

    return match


def compile_element(
    compiler: PatternCompiler, index: int, item: Term, holder: list[Any], then: Then, is_argument: bool
) -> Then:
    """Match one element, found by place."""
    matcher = compiler.term(item, then)
    if not is_argument:
        return lambda state: matcher(holder[-1][index], state)

    def match(state: State) -> bool:
        state.beside = values = holder[-1]
        return matcher(values[index], state)

    return match


def compile_splat(compiler: PatternCompiler, splat: Splat, then: Then) -> Matcher:
    """Match the elements that `*xs` stands for."""
    if splat.term is not None:
        return compile_all_results(compiler, splat.term, then)
    if splat.name is None:
        return lambda value, state: then(state)
    name = splat.name
    if name in compiler.variables:
        return compiler.variable(name, then, splat)

    def match(value: Any, state: State) -> bool:
        if name in state.names:
            return same_bound(list(state.names[name]), list(value)) and then(state)
        return compiler.bound(name, list(value), state, then)

    return match


def compile_all_results(compiler: PatternCompiler, call: Call, then: Then) -> Matcher:
    """Match a list of all results of one call, in their order."""
    matcher = compiler.term(call, then)

    def match(value: Any, state: State) -> bool:
        first = value[0] if value else None
        base = first.args[0] if isinstance(first, Node) and first.target is operator.getitem else None
        if not isinstance(base, Node):
            return state.fail("all results of one call are expected", value, call)
        count = len(base.meta.get("val") or ())
        wanted = [(base, index) for index in range(count)]
        found = [one.args for one in value if isinstance(one, Node) and one.target is operator.getitem]
        if [tuple(each) for each in found] != wanted or len(value) != count:
            return state.fail("all results of the call, in their order, are expected", value, call)
        return matcher(base, state)

    return match

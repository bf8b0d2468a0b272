"""Matching the arguments of a call: by name, by what their defaults mean, and dims by either way of counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch.fx import Node

from exirkit.patterns.operators.arguments import Arguments, Meaning, meaning_of
from exirkit.patterns.operators.facts import traits_of
from exirkit.patterns.syntax.terms import Anything, Literal, Operator, Term, Variable
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.syntax.undecided import compare

from .literals import literal_agrees
from .state import Matcher, State, Then, numbers_read
from .values import from_front, same_literal

if TYPE_CHECKING:
    from .matcher import PatternCompiler

_MOST_DIMS = 8
"""Rank up to which lists of dims that count from the end are matched; operators of the runtime take no more."""


def compile_argument(
    compiler: PatternCompiler, op: Operator, name: str, argument: Term, holder: list[Any], then: Then
) -> Then:
    """Match one argument of an operator, found by name."""
    traits, meaning = traits_of(op), meaning_of(op, name)
    is_dim, is_pair = name in traits.dims, name in traits.pairs
    literal = _whole_literal(argument, is_pair)
    if literal is not None and (is_dim or is_pair or meaning is not None):
        return _compile_meant(name, argument, literal, meaning, holder, then)
    if is_dim and isinstance(argument, ListTerm) and any(map(_counts_from_end, argument.items)):
        return compile_dim_list(compiler, name, argument, holder, then)
    if isinstance(argument, ListTerm) and name in ("size", "shape") and any(map(_counts_from_end, argument.items)):
        return _compile_sizes(compiler, op, name, argument, holder, then)
    matcher = compiler.term(argument, then)
    if is_dim and isinstance(argument, Variable):
        return compile_dim_variable(compiler, name, matcher, holder)

    def match(state: State) -> bool:
        state.beside = arguments = holder[-1]
        return matcher(arguments[name], state)

    return match


def _whole_literal(argument: Term, is_pair: bool) -> Literal | None:
    """Return an argument that is written out, a list of literals as one; one number may stand for a pair."""
    literal = argument if isinstance(argument, Literal) else None
    if isinstance(argument, ListTerm) and all(isinstance(one, Literal) for one in argument.items):
        literal = Literal([one.value for one in argument.items if isinstance(one, Literal)], place=argument.place)
    if literal is None or not is_pair:
        return literal
    value = [literal.value] if type(literal.value) is int else literal.value
    return replace(literal, value=value * 2 if isinstance(value, list) and len(value) == 1 else value)


def _compile_meant(
    name: str, argument: Term, literal: Literal, meaning: Meaning | None, holder: list[Any], then: Then
) -> Then:
    """Match a literal by what it means; dims modulo the rank, since the canonical view counts from the front."""
    wanted = literal.value

    def match(state: State) -> bool:
        state.beside = arguments = holder[-1]
        value = arguments[name]
        here = from_front(wanted, arguments.rank_of(name))
        if literal_agrees(here, value, state):
            return then(state)
        if meaning is not None and not isinstance(value, Node) and _means(meaning, here, value, arguments):
            return then(state)
        return _fail(state, argument, literal, here, value)

    return match


def _means(meaning: Meaning, wanted: Any, value: Any, arguments: Arguments) -> bool:
    return same_literal(meaning(wanted, arguments), meaning(value, arguments))


def _fail(state: State, argument: Term, literal: Literal, wanted: Any, value: Any) -> bool:
    """Say which element of a list is another one, if it is one element."""
    if isinstance(argument, ListTerm) and isinstance(value, list) and len(value) == len(wanted):
        for item, one, found in zip(argument.items, wanted, value, strict=True):
            if not same_literal(one, found):
                return state.fail(f"{one!r} is expected", found, item)
    what = " (left out, so it must be the default)" if literal.is_default else ""
    return state.fail(f"{wanted!r}{what} is expected", value, argument)


def _compile_sizes(
    compiler: PatternCompiler, op: Operator, name: str, argument: ListTerm, holder: list[Any], then: Then
) -> Then:
    """Match sizes of which some are -1: what the others leave, or for an expansion the size that is there."""
    left = [index for index, one in enumerate(argument.items) if isinstance(one, Literal) and one.value == -1]
    items = tuple(Anything(one.place) if index in left else one for index, one in enumerate(argument.items))
    matcher = compiler.term(replace(argument, items=items), then)
    is_kept = "expand" in op._schema.name

    def match(state: State) -> bool:
        state.beside = arguments = holder[-1]
        sizes = arguments[name]
        if is_kept and not _keeps(arguments, sizes, left):
            return state.fail("an expansion that keeps this size is expected", sizes, argument)
        return matcher(sizes, state)

    return match


def _keeps(arguments: Mapping[str, Any], sizes: Any, places: Sequence[int]) -> bool:
    source = next(iter(arguments.values()), None)
    recorded = source.meta.get("val") if isinstance(source, Node) else None
    if not isinstance(recorded, torch.Tensor) or not isinstance(sizes, list):
        return False
    new = len(sizes) - recorded.dim()
    return all(
        new <= at < len(sizes) and compare("==", numbers_read(sizes)[at], recorded.shape[at - new]) is True
        for at in places
    )


def _counts_from_end(item: Any) -> TypeGuard[Literal]:
    return isinstance(item, Literal) and isinstance(item.value, int) and item.value < 0


def compile_dim_list(compiler: PatternCompiler, name: str, argument: ListTerm, holder: list[Any], then: Then) -> Then:
    """Dims in a list are compared modulo the rank too: there is a list for every rank."""

    def at_rank(rank: int) -> Matcher:
        items = tuple(
            replace(one, value=from_front(one.value, rank)) if _counts_from_end(one) else one for one in argument.items
        )
        return compiler.term(replace(argument, items=items), then)

    matchers = {rank: at_rank(rank) for rank in range(1, _MOST_DIMS + 1)}

    def match(state: State) -> bool:
        arguments = holder[-1]
        value, matcher = arguments[name], matchers.get(arguments.rank_of(name) or 0)
        return (
            matcher(value, state) if matcher is not None else state.fail("a list of dims is expected", value, argument)
        )

    return match


def compile_dim_variable(compiler: PatternCompiler, name: str, matcher: Matcher, holder: list[Any]) -> Then:
    """A variable for a dim may be typed by either way of counting."""

    def match(state: State) -> bool:
        arguments = holder[-1]
        value, rank = arguments[name], arguments.rank_of(name)
        if matcher(value, state):
            return True
        return type(value) is int and rank is not None and value >= 0 and matcher(value - rank, state)

    return match

"""Matching calls: arguments in either order where that means the same, results, alternatives, what may be missing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from torch.fx import Node

from exirkit.ir import underlying

from .argument_view import Arguments, canonical_arguments
from .matching_lists import compile_elements
from .matching_state import Matcher, State, Then
from .matching_values import from_front, rest_is_default, same_literal
from .operator_facts import traits_of
from .operator_table import name_of
from .terms import (
    Alternatives,
    Call,
    Item,
    Literal,
    OperatorCall,
    Optional,
    Term,
    Through,
    Variable,
    optional_names,
)
from .terms import Sequence as ListTerm
from .variable_types import OperatorVariable

_MOST_DIMS = 8
"""Rank up to which lists of dims that count from the end are matched; operators of the runtime take no more."""

if TYPE_CHECKING:
    from .matching import PatternCompiler

_MAX_THROUGH = 64


@dataclass(frozen=True)
class _Order:
    """One way to read the arguments of a call: names exchanged, if a condition holds."""

    renamed: Mapping[str, str]
    condition: Callable[[Any], bool] | None = None


def _orders(term: Call) -> Iterator[_Order]:
    yield _Order({})
    for left, right, condition in traits_of(term.op).commutes:
        if left in term.arguments and right in term.arguments:
            yield _Order({left: right, right: left}, condition)


# Calls


def compile_call(compiler: PatternCompiler, term: Call, then: Then) -> Matcher:
    """Match a call of an operator, its arguments in any order that means the same."""
    op, key, name = term.op, id(term), term.name
    wanted = name_of(op)
    fixed = _literals_in_place(term)

    def match(value: Any, state: State) -> bool:
        if not isinstance(value, Node) or value.op != "call_function" or underlying(value.target) is not op:
            return state.fail(f"{wanted} is expected", value)
        if value in state.nodes:
            return state.fail("this node is matched already", value)
        arguments = canonical_arguments(value)
        # Most calls that do not match fail here. Who listens hears of it in the order of the pattern instead.
        if state.trace is None and _differs(fixed, arguments):
            return False
        state.nodes.append(value)
        state.terms[key] = value
        # A named call is bound before its arguments, so that guards on it are asked early.
        if name is not None:
            state.names[name] = value
        if name is None or compiler.guards_hold((name,), state):
            for order in orders:
                if order(arguments, state):
                    return True
        if name is not None:
            del state.names[name]
        del state.terms[key]
        state.nodes.pop()
        return False

    orders = [compile_arguments(compiler, term, renamed, then) for renamed in _orders(term)]
    return match


def _literals_in_place(term: Call) -> list[tuple[str, Any, bool]]:
    """Return names and values of the literals that no exchange of arguments moves, and whether they are dims."""
    traits = traits_of(term.op)
    moved = {name for left, right, _ in traits.commutes for name in (left, right)}
    return [
        (name, argument.value, name in traits.dims)
        for name, argument in term.arguments.items()
        if isinstance(argument, Literal) and name not in moved
    ]


def _differs(fixed: Sequence[tuple[str, Any, bool]], arguments: Arguments) -> bool:
    """Whether a literal is certainly not there; what a node stands for is not looked at."""
    for name, wanted, is_dim in fixed:
        found = arguments[name]
        if isinstance(found, Node):
            continue
        if not same_literal(from_front(wanted, arguments.rank_of(name)) if is_dim else wanted, found):
            return True
    return False


def compile_arguments(compiler: PatternCompiler, term: Call, order: _Order, then: Then) -> Callable[[Any, State], bool]:
    """Return a closure that matches the arguments of a call, some of them exchanged."""
    items: list[Any] = []
    dims = traits_of(term.op).dims
    for name, argument in term.arguments.items():
        items.append((order.renamed.get(name, name), argument, name in dims))
    # Literals bind nothing, so asking them first changes no result; most calls that do not match fail there.
    items.sort(key=lambda item: not isinstance(item[1], Literal))
    holder: list[Any] = []
    chain: Then = then
    for name, argument, is_dim in reversed(items):
        chain = compile_argument(compiler, name, argument, is_dim, holder, chain)

    def match(arguments: Any, state: State) -> bool:
        if order.condition is not None and not order.condition(arguments):
            return False
        holder.append(arguments)
        try:
            return chain(state)
        finally:
            holder.pop()

    return match


def compile_argument(
    compiler: PatternCompiler, name: str, argument: Term, is_dim: bool, holder: list[Any], then: Then
) -> Then:
    """Match one argument, found by name."""
    if is_dim and isinstance(argument, Literal):
        return compile_dim_literal(compiler, name, argument, holder, then)
    if is_dim and isinstance(argument, ListTerm) and any(map(_counts_from_end, argument.items)):
        return compile_dim_list(compiler, name, argument, holder, then)
    matcher = compiler.term(argument, then)
    if is_dim and isinstance(argument, Variable):
        return compile_dim_variable(compiler, name, matcher, holder)
    return lambda state: matcher(holder[-1][name], state)


def compile_dim_literal(compiler: PatternCompiler, name: str, argument: Literal, holder: list[Any], then: Then) -> Then:
    """A dim is compared modulo the rank: the canonical view counts from the front."""

    def match(state: State) -> bool:
        arguments = holder[-1]
        value, rank = arguments[name], arguments.rank_of(name)
        if same_literal(from_front(argument.value, rank), value):
            return then(state)
        return state.fail(f"dim {argument.value!r} is expected", value, argument)

    return match


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


def compile_operator_call(compiler: PatternCompiler, term: OperatorCall, then: Then) -> Matcher:
    """Match a call of any operator of a family."""
    variable = compiler.variables[term.variable]
    assert isinstance(variable, OperatorVariable)

    def bound(state: State) -> bool:
        return then(state)

    elements = compile_elements(compiler, list(term.arguments), bound)
    count = len(term.arguments)

    def match(value: Any, state: State) -> bool:
        if not isinstance(value, Node) or value.op != "call_function" or value in state.nodes:
            return state.fail("a call is expected", value)
        op = underlying(value.target)
        if not variable.admits_operator(op):
            return state.fail(f"{term.variable} is not `{variable}`", value)
        if term.variable in state.names and state.names[term.variable] is not op:
            return state.fail(f"{term.variable} is another operator", value)
        values = list(canonical_arguments(value).values())
        if len(values) < count or (len(values) > count and term.rest is None and not rest_is_default(value, count)):
            return state.fail(f"{count} arguments are expected", value)
        before = dict(state.names)
        state.nodes.append(value)
        state.terms[id(term)] = value
        state.names[term.variable] = op
        if term.rest is not None:
            state.names[term.rest] = values[count:]
        if term.name is not None:
            state.names[term.name] = value
        fresh = [key for key in state.names if key not in before]
        if compiler.guards_hold(fresh, state) and elements(values[:count], state):
            return True
        state.names.clear()
        state.names.update(before)
        del state.terms[id(term)]
        state.nodes.pop()
        return False

    return match


def compile_item(compiler: PatternCompiler, term: Item, then: Then) -> Matcher:
    """Match one result of a call with several."""
    index, name = term.index, term.name
    current: list[Node] = []
    # The continuation runs inside the search of the base, so that it can backtrack into it.
    base = compiler.term(term.base, lambda state: compiler.bound(name, current[-1], state, then))

    def match(value: Any, state: State) -> bool:
        if not (isinstance(value, Node) and value.target is operator.getitem and value.args[1] == index):
            return state.fail(f"result {index} of a call is expected", value)
        known = state.terms.get(id(term.base))
        if known is not None:
            is_same = known is value.args[0] or state.fail("another call is expected", value)
            return is_same and compiler.bound(name, value, state, then)
        current.append(value)
        try:
            return base(value.args[0], state)
        finally:
            current.pop()

    return match


def compile_alternatives(compiler: PatternCompiler, term: Alternatives, then: Then) -> Matcher:
    """Match the first branch that leads to a whole match."""
    name = term.name

    def settled(tag: str) -> Then:
        def go_on(state: State) -> bool:
            if name is None:
                return then(state)
            key = f"{name}.alt"
            if key in state.names:
                return then(state)
            return compiler.bound(key, tag, state, then)

        return go_on

    branches = [compiler.term(branch, settled(tag)) for tag, branch in term.branches]

    def match(value: Any, state: State) -> bool:
        if name is None:
            return any(branch(value, state) for branch in branches)
        return compiler.bound(name, value, state, lambda inner: any(branch(value, inner) for branch in branches))

    return match


def compile_optional(compiler: PatternCompiler, term: Optional, then: Then) -> Matcher:
    """Match a call, or what would be its first argument."""
    passing = next(iter(term.inner.arguments.values()))
    absent = sorted(optional_names(term))
    present = compiler.term(term.inner, then)
    missing = compiler.term(passing, lambda state: compile_absent(compiler, absent, state, then))

    def match(value: Any, state: State) -> bool:
        def inside(inner: State) -> bool:
            return present(value, inner) or missing(value, inner)

        return compiler.bound(term.name, value, state, inside)

    return match


def compile_absent(compiler: PatternCompiler, names: Sequence[str], state: State, then: Then) -> bool:
    """Bind the variables of a missing call to none."""
    fresh = [name for name in names if name not in state.names]
    state.names.update(dict.fromkeys(fresh))
    if compiler.guards_hold(fresh, state) and then(state):
        return True
    for name in fresh:
        del state.names[name]
    return False


def compile_through(compiler: PatternCompiler, term: Through, then: Then) -> Matcher:
    """Match a term behind any number of calls of the given operators."""
    inner = compiler.term(term.inner, then)
    ops = frozenset(term.ops)

    def match(value: Any, state: State) -> bool:
        passed = 0
        while True:
            if inner(value, state):
                return True
            if not isinstance(value, Node) or value.op != "call_function" or underlying(value.target) not in ops:
                break
            state.nodes.append(value)
            passed += 1
            value = value.all_input_nodes[0] if value.all_input_nodes else None
            if passed > _MAX_THROUGH:
                break
        if passed:
            del state.nodes[-passed:]
        return False

    return match

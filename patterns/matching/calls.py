"""Matching calls and lists: arguments in either order, results, alternatives, what may be missing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from exirkit.ir import EdgeOpOverload, underlying
from exirkit.patterns.forms.catalogue import Forms, Reading
from exirkit.patterns.matching.arguments import (
    compile_argument,
    differs,
    is_kind,
    literals_in_place,
    rest_is_default,
    same_bound,
)
from exirkit.patterns.matching.bodies import compile_applied, compile_parameter, compile_run
from exirkit.patterns.matching.comprehensions import compile_divided_list
from exirkit.patterns.matching.state import Matcher, State, Then
from exirkit.patterns.operators.arguments import (
    Arguments,
    canonical_arguments,
    passing_operators,
    source_of,
)
from exirkit.patterns.operators.control_flow import ControlFlow
from exirkit.patterns.operators.table import name_of, traits_of
from exirkit.patterns.syntax.comprehensions import has_anchor
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Applied,
    Call,
    Item,
    Literal,
    OperatorCall,
    Optional,
    Parameter,
    Splat,
    Term,
    Through,
    Variable,
    optional_names,
)
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.types.scalars import OperatorVariable

if TYPE_CHECKING:
    from exirkit.patterns.matching.matcher import PatternCompiler


def compile_list(compiler: PatternCompiler, term: ListTerm, then: Then) -> Matcher:
    """Match a list, of which one part may be of any length."""
    places = [index for index, item in enumerate(term.items) if isinstance(item, Splat)]
    if not places:
        return compile_fixed_list(compiler, term, then)
    if has_anchor(term.items):
        return compile_divided_list(compiler, term, then)
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
    if isinstance(splat.term, Call):
        return compile_all_results(compiler, splat.term, then)
    if isinstance(splat.term, Applied):
        return compile_applied(compiler, splat.term, then)
    if isinstance(splat.term, Parameter):
        return compile_parameter(compiler, splat.term, then)
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


# Matching calls: arguments in either order where that means the same, results, alternatives, what may be missing


_MAX_THROUGH = 64
Taken = Callable[[Node, Arguments, Sequence[Node], State], bool]


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
    """Match a call of an operator, its arguments in any order that means the same, or another form of the call."""
    if isinstance(term.op, ControlFlow):
        return compile_run(compiler, term, then)
    op, wanted, fixed = term.op, name_of(term.op), literals_in_place(term)
    taken = _compile_taken(compiler, term, then)

    def match(value: Any, state: State) -> bool:
        if type(value) is not Node or value.op != "call_function":
            return state.fail(f"{wanted} is expected", value, term)
        target = value.target
        # Edge programs are full of handles, and this is asked very often.
        target = target._op if type(target) is EdgeOpOverload else underlying(target)
        if (target is op or id(target) in alike) and value not in state.nodes:
            # Most calls that do not match fail here. A trace gets the failures in the order of the pattern instead.
            arguments = canonical_arguments(value)
            if (state.trace is not None or not differs(fixed, arguments)) and taken(value, arguments, (), state):
                return True
        elif target is op:
            return state.fail("this node is matched already", value, term)
        if id(target) in others and otherwise(value, target, state):
            return True
        return target is not op and state.fail(f"{wanted} is expected", value, term)

    forms = None if compiler.forms is None else compiler.forms.get(op)
    alike = frozenset() if forms is None else forms.alike
    otherwise = _compile_otherwise(forms, taken, match)
    # Operators of calls that may be read in another way, or looked through.
    others = passing_operators() if compiler.forms is not None else frozenset()
    others |= forms.met if forms is not None else frozenset()
    return match


def _compile_otherwise(forms: Forms | None, taken: Taken, match: Matcher) -> Callable[[Node, Any, State], bool]:
    """Return a closure that matches other forms of a call, and calls that give the call back as it is."""

    def match_form(value: Node, target: Any, state: State) -> bool:
        readings: Iterable[Reading] = ()
        if forms is not None and id(target) in forms.met and value not in state.nodes:
            is_matched = id(target) in forms.alike
            readings = (forms.of_parts if is_matched else forms.readings)(value, target, state.composites)
        for reading in readings:
            is_free = not any(one in state.nodes for one in reading.inner)
            if is_free and taken(value, reading.arguments, reading.inner, state):
                return True
        # A root is what the program uses, so nothing is looked through there.
        source = source_of(value) if state.sees_through and state.nodes else None
        if source is None:
            return False
        beside = state.beside
        state.nodes.append(value)
        if match(source, state):
            return True
        state.nodes.pop()
        state.beside = beside
        return False

    return match_form


def _compile_taken(compiler: PatternCompiler, term: Call, then: Then) -> Taken:
    """Return a closure that takes a node for a call, with the arguments that it has or is read to have."""
    key, name = id(term), term.name
    ways = list(_orders(term))
    # Compiled when a search first gets there: with each order of each call compiled beforehand, a pattern would be
    # compiled as often as it has orders in all, most of which are never asked for.
    orders: list[Callable[[Any, State], bool]] = []

    def taken(value: Node, arguments: Arguments, inner: Sequence[Node], state: State) -> bool:
        state.nodes.append(value)
        if inner:
            state.nodes.extend(inner)
            state.parts.update(dict.fromkeys(inner, value))
        state.terms[key] = value
        # A named call is bound before its arguments, so that guards on it are asked early.
        if name is not None:
            state.names[name] = value
        if name is None or compiler.guards_hold((name,), state):
            for number, way in enumerate(ways):
                if number == len(orders):
                    orders.append(compile_arguments(compiler, term, way, then))
                if orders[number](arguments, state):
                    return True
        if name is not None:
            del state.names[name]
        del state.terms[key]
        del state.nodes[len(state.nodes) - 1 - len(inner) :]
        for one in inner:
            del state.parts[one]
        return False

    return taken


def compile_arguments(compiler: PatternCompiler, term: Call, order: _Order, then: Then) -> Callable[[Any, State], bool]:
    """Return a closure that matches the arguments of a call, some of them exchanged."""
    items: list[Any] = [(order.renamed.get(name, name), argument) for name, argument in term.arguments.items()]
    # Literals bind nothing, so asking them first changes no result; most calls that do not match fail there.
    items.sort(key=lambda item: not isinstance(item[1], Literal))
    holder: list[Any] = []
    chain: Then = then
    for name, argument in reversed(items):
        chain = compile_argument(compiler, term.op, name, argument, holder, chain)
    required = _required_kinds(compiler, items)

    def match(arguments: Any, state: State) -> bool:
        if order.condition is not None and not order.condition(arguments):
            return False
        # That a value is not constant is known at once; shapes, which are asked in the order of the pattern, are not.
        if required and state.trace is None and _lacks_kind(required, arguments, state):
            return False
        holder.append(arguments)
        try:
            return chain(state)
        finally:
            holder.pop()

    return match


def _required_kinds(
    compiler: PatternCompiler, items: Sequence[tuple[str, Any]]
) -> list[tuple[str, str, Sequence[str]]]:
    """Return arguments that a variable stands for which is of some kind: name, variable, kinds."""
    kinds = [
        (name, argument.name, sorted(getattr(compiler.variables[argument.name], "qualifiers", ())))
        for name, argument in items
        if isinstance(argument, Variable)
    ]
    return [one for one in kinds if one[2]]


def _lacks_kind(required: Sequence[tuple[str, str, Sequence[str]]], arguments: Arguments, state: State) -> bool:
    """Whether an argument is certainly not of its kind; what is bound already was asked then."""
    for name, variable, kinds in required:
        value = arguments[name]
        if isinstance(value, Node) and variable not in state.names:
            for kind in kinds:
                if not is_kind(state.facts, value, kind):
                    return True
    return False


def compile_operator_call(compiler: PatternCompiler, term: OperatorCall, then: Then) -> Matcher:
    """Match a call of any operator of a family."""
    variable = compiler.variables[term.variable]
    assert isinstance(variable, OperatorVariable)

    def bound(state: State) -> bool:
        return then(state)

    elements = compile_elements(compiler, list(term.arguments), bound, are_arguments=True)
    count = len(term.arguments)

    def match(value: Any, state: State) -> bool:
        if not isinstance(value, Node) or value.op != "call_function" or value in state.nodes:
            return state.fail("a call is expected", value, term)
        op = underlying(value.target)
        if not variable.admits_operator(op):
            return state.fail(f"{term.variable} is not `{variable}`", value, term)
        if term.variable in state.names and state.names[term.variable] is not op:
            return state.fail(f"{term.variable} is another operator", value, term)
        values = list(canonical_arguments(value).values())
        if len(values) < count or (len(values) > count and term.rest is None and not rest_is_default(value, count)):
            return state.fail(f"{count} arguments are expected", value, term)
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

    forms = None if index else (compiler.forms or {}).get(term.base.op)
    others = frozenset() if forms is None else forms.operators

    def match_whole(value: Node, state: State) -> bool:
        """One form of the call has this result alone, and no others to choose it from."""
        known = state.terms.get(id(term.base))
        if known is not None:
            is_same = known is value or state.fail("another call is expected", value, term)
            return is_same and compiler.bound(name, value, state, then)
        current.append(value)
        try:
            return base(value, state)
        finally:
            current.pop()

    def match(value: Any, state: State) -> bool:
        if others and _is_single(value) and underlying(value.target) in others:
            return match_whole(value, state)
        if not (isinstance(value, Node) and value.target is operator.getitem and value.args[1] == index):
            return state.fail(f"result {index} of a call is expected", value, term)
        known = state.terms.get(id(term.base))
        if known is not None:
            is_same = known is value.args[0] or state.fail("another call is expected", value, term)
            return is_same and compiler.bound(name, value, state, then)
        current.append(value)
        try:
            return base(value.args[0], state)
        finally:
            current.pop()

    return match


def _is_single(value: Any) -> bool:
    return isinstance(value, Node) and value.op == "call_function" and isinstance(value.meta.get("val"), torch.Tensor)


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

    def among(value: Any, state: State) -> bool:
        beside = state.beside
        for branch in branches:
            state.beside = beside
            if branch(value, state):
                return True
        return False

    def match(value: Any, state: State) -> bool:
        if name is None:
            return among(value, state)
        return compiler.bound(name, value, state, lambda inner: among(value, inner))

    return match


def compile_optional(compiler: PatternCompiler, term: Optional, then: Then) -> Matcher:
    """Match a call, or what would be its first argument."""
    passing = next(iter(term.inner.arguments.values()))
    absent = sorted(optional_names(term))
    present = compiler.term(term.inner, then)
    missing = compiler.term(passing, lambda state: compile_absent(compiler, absent, state, then))

    def match(value: Any, state: State) -> bool:
        beside = state.beside

        def inside(inner: State) -> bool:
            if present(value, inner):
                return True
            inner.beside = beside
            return missing(value, inner)

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
        passed, beside = 0, state.beside
        while True:
            state.beside = beside
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

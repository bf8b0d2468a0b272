"""Matching attributes of calls, and those of a match that a rule says nothing about."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from exirkit.ir import ATTRIBUTE_KEYS
from exirkit.patterns.matching.state import Matcher, State, Then
from exirkit.patterns.syntax.attributes import attributed_terms
from exirkit.patterns.syntax.terms import Attributed, Variable

if TYPE_CHECKING:
    from exirkit.patterns.matching.compiled_rule import CompiledRule
    from exirkit.patterns.matching.matcher import PatternCompiler


def compile_attributed(compiler: PatternCompiler, term: Attributed, then: Then) -> Matcher:
    """Match a call that has an attribute, and the values of its fields."""
    inner = compiler.term(term.inner, then)
    values: list[tuple[Any, Mapping[str, Any]]] = []
    read, name = term.attribute.read, term.attribute.name

    def whole(state: State) -> bool:
        return inner(values[-1][0], state)

    chain: Then = whole
    for key, field in reversed(list(term.fields.items())):
        chain = _field(compiler, key, field, values, chain)
    absent = {key: field.name for key, field in term.fields.items() if isinstance(field, Variable)}

    def match(value: Any, state: State) -> bool:
        fields = read(value)
        if fields is None and not term.is_optional:
            return state.fail(f"attribute {name} is expected", value, term)
        if fields is None:
            return _without(compiler, list(absent.values()), state, lambda after: inner(value, after))
        values.append((value, fields))
        try:
            return chain(state)
        finally:
            values.pop()

    return match


def _field(
    compiler: PatternCompiler, key: str, field: Any, values: list[tuple[Any, Mapping[str, Any]]], then: Then
) -> Then:
    matcher = compiler.term(field, then)
    return lambda state: matcher(values[-1][1][key], state)


def _without(compiler: PatternCompiler, names: list[str], state: State, then: Then) -> bool:
    """Bind the names of a missing attribute to none."""
    if any(state.names.get(name) is not None for name in names):
        return state.fail(f"{names[0]} is another value", None)
    fresh = [name for name in names if name not in state.names]
    state.names.update(dict.fromkeys(fresh))
    if compiler.guards_hold(fresh, state) and then(state):
        return True
    for name in fresh:
        del state.names[name]
    return False


def unsaid_attribute(rule: CompiledRule, state: State) -> tuple[Node, str] | None:
    """Return a matched call with an attribute of which the rule does not say what becomes of it, and its key."""
    known = {attribute.key: name for name, attribute in rule.attributes.items()}
    said: set[tuple[Node | None, str]] | None = None
    for node in state.nodes:
        keys = {*node.meta.get(ATTRIBUTE_KEYS, ()), *(known.keys() & node.meta.keys())} if node.meta else set()
        if not keys:
            continue
        if said is None:
            said = _said(rule, state)
        for key in sorted(keys):
            if known.get(key) not in rule.rule.carried and (node, key) not in said:
                return node, key
    return None


def _said(rule: CompiledRule, state: State) -> set[tuple[Node | None, str]]:
    said: set[tuple[Node | None, str]] = set()
    for term in attributed_terms(rule.pattern.terms):
        said.add((state.terms.get(id(term.inner)), term.attribute.key))
    return said


def carriers(rule: CompiledRule, state: State) -> dict[str, list[Node]]:
    """Return the matched calls that have an attribute which `keep` hands on, in order, by attribute."""
    found = {
        name: sorted(node for node in set(state.nodes) if rule.attributes[name].read(node) is not None)
        for name, which in rule.rule.carried.items()
        if which != "none"
    }
    return {name: nodes for name, nodes in found.items() if nodes}


def depend_on_each_other(nodes: list[Node], state: State) -> bool:
    """Whether of several matched calls each is computed from the one before."""
    return all(_reaches(first, second, set(state.nodes)) for first, second in pairwise(nodes))


def _reaches(first: Node, second: Node, inside: set[Node]) -> bool:
    pending, seen = [second], {second}
    while pending:
        for source in pending.pop().all_input_nodes:
            if source is first:
                return True
            if source in inside and source not in seen:
                seen.add(source)
                pending.append(source)
    return False

"""Trials of what rules say about attributes: which matched calls have one, and what becomes of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from exirkit.patterns.checking.pattern_execution import Shape
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.attributes import Attribute, attributed_terms, guard_against
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Attributed,
    Call,
    Literal,
    OperatorCall,
    Part,
    Variable,
    children,
)
from exirkit.patterns.types.sampling import Sampler

WITHOUT = "without it"


def with_drawn_attributes(rule: CompiledRule, shape: Shape, rng: random.Random, unless: int | None) -> Shape:
    """Return a way through the pattern on which some of its calls have attributes that the pattern does not name.

    Those are what `keep` hands on or drops, on calls of which each is computed from the one before, and what a
    condition `no(y, act)` forbids, if it is the one that is not to hold.

    Args:
        rule: The rule.
        shape: The way.
        rng: Of the choice.
        unless: Number of the condition that is not to hold.
    """
    carried: dict[int, tuple[Any, Mapping[str, Any]]] = {}
    for name in rule.rule.carried:
        if rng.random() < 0.3:
            continue
        way = [call for call in _way(rule, rng) if call not in _attributed(rule)]
        for call in rng.sample(way, rng.randint(0, min(2, len(way)))):
            carried[call] = (rule.attributes[name], _drawn(rule.attributes[name], rng))
    against = guard_against(rule.guards[unless].text) if unless is not None else None
    if against is not None:
        attribute = rule.attributes[against[1]]
        held = (attribute, _drawn(attribute, rng))
        carried |= dict.fromkeys(_calls_behind(rule.pattern.named.get(against[0])), held)
    return replace(shape, carried=carried) if carried else shape


def _calls_behind(term: Any) -> list[int]:
    """Return the identities of a call, or of those of which a pattern has one."""
    if isinstance(term, Alternatives):
        return [call for _, branch in term.branches for call in _calls_behind(branch)]
    return [id(term)] if isinstance(term, Call | OperatorCall) else []


def _attributed(rule: CompiledRule) -> set[int]:
    return {id(term.inner) for term in attributed_terms(rule.pattern.terms)}


def _way(rule: CompiledRule, rng: random.Random) -> list[int]:
    """Return the calls on one way from a root down."""
    way: list[int] = []
    term: Part | None = rng.choice(rule.pattern.roots)
    while term is not None:
        if isinstance(term, Call):
            way.append(id(term))
        below = [child for child in children(term) if any(isinstance(one, Call) for one in _within(child))]
        term = rng.choice(below) if below else None
    return way


def _within(term: Part) -> list[Part]:
    found, pending = [], [term]
    while pending:
        one = pending.pop()
        found.append(one)
        pending += children(one)
    return found


def _drawn(attribute: Attribute, rng: random.Random) -> dict[str, Any]:
    sample = Sampler(attribute.fields, gen=[]).sample(random.Random(rng.random()), "normal")
    return {name: sample.values[name] for name in attribute.fields}


def shown_attributes(rule: CompiledRule, shape: Shape) -> dict[str, str]:
    """Return the attributes that were drawn, as text, by attribute and operator."""
    calls = {id(term): term for term in rule.pattern.calls}
    return {
        f"{attribute.name} of {name_of(calls[key].op)}": ", ".join(f"{name}={one}" for name, one in fields.items())
        for key, (attribute, fields) in shape.carried.items()
    }


def with_carried(rule: CompiledRule, shape: Shape, results: list[Any]) -> list[Any]:
    """Return the results of a replacement after `keep` has handed attributes on.

    Raises:
        ExpressionError: The meaning of an attribute cannot be computed.
    """
    for name, which in rule.rule.carried.items():
        held = [fields for attribute, fields in _in_order(rule, shape) if attribute.name == name]
        if held and which != "none":
            fields = held[0] if which == "first" else held[-1]
            results = [rule.attributes[name].applied(one, fields, TensorBuilder()) for one in results]
    return results


def _in_order(rule: CompiledRule, shape: Shape) -> list[tuple[Any, Mapping[str, Any]]]:
    """Return what calls carry, in the order in which they are computed."""
    found: list[int] = []

    def visit(term: Part) -> None:
        for child in children(term):
            visit(child)
        if id(term) in shape.carried and id(term) not in found:
            found.append(id(term))

    for root in rule.pattern.roots:
        visit(root)
    return [shape.carried[one] for one in found]


def attribute_of(
    rule: CompiledRule, shape: Shape, values: Mapping[str, Any], name: str, attribute: Attribute
) -> dict[str, Any] | None:
    """Return the fields of an attribute that a named call of a pattern has in a trial, or None."""
    term: Any = rule.pattern.named.get(name)
    candidates = [one for one in attributed_terms(rule.pattern.terms) if one.attribute is attribute]
    for one in candidates:
        is_meant = one is term or (isinstance(one.inner, Variable) and one.inner.name == name)
        if not is_meant:
            continue
        fields = {key: _value(field, values) for key, field in one.fields.items()}
        return None if one.is_optional and None in fields.values() else fields
    term = term.inner if isinstance(term, Attributed) else term
    held = next((shape.carried[one] for one in _calls_behind(term) if one in shape.carried), None)
    return dict(held[1]) if held is not None and held[0] is attribute else None


def _value(field: Any, values: Mapping[str, Any]) -> Any:
    return field.value if isinstance(field, Literal) else values.get(getattr(field, "name", ""))

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
from exirkit.patterns.syntax.chains import key_of
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Attributed,
    Call,
    Chain,
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
    carried: dict[int | tuple[int, int], tuple[Any, Mapping[str, Any]]] = {}
    for name in rule.rule.carried:
        if rng.random() < 0.3:
            continue
        way = [call for call in _way(rule, shape, rng) if call not in _attributed(rule)]
        for call in rng.sample(way, rng.randint(0, min(2, len(way)))):
            carried[call] = (rule.attributes[name], _drawn(rule.attributes[name], rng))
    against = guard_against(rule.guards[unless].text) if unless is not None else None
    if against is not None:
        attribute = rule.attributes[against[1]]
        held = (attribute, _drawn(attribute, rng))
        carried |= dict.fromkeys(_calls_behind(rule.pattern.named.get(against[0]), shape), held)
    return replace(shape, carried=carried) if carried else shape


def _calls_behind(term: Any, shape: Shape) -> list[int | tuple[int, int]]:
    """Return the identities of a call, or of those of which a pattern has one; of a chain, that of its last link."""
    if isinstance(term, Alternatives):
        return [call for _, branch in term.branches for call in _calls_behind(branch, shape)]
    if isinstance(term, Chain):
        count = shape.chains.get(id(term), (0, 0))[0]
        return [(id(term), count - 1)] if count else _calls_behind(term.inner, shape)
    return [id(term)] if isinstance(term, Call | OperatorCall) else []


def _attributed(rule: CompiledRule) -> set[int]:
    return {id(term.inner) for term in attributed_terms(rule.pattern.terms)}


def _way(rule: CompiledRule, shape: Shape, rng: random.Random) -> list[int | tuple[int, int]]:
    """Return the calls on one way from a root down; those of a chain by its identity and their numbers."""
    way: list[int | tuple[int, int]] = []
    term: Part | None = rng.choice(rule.pattern.roots)
    while term is not None:
        if isinstance(term, Call):
            way.append(id(term))
        elif isinstance(term, Chain):
            way += [(id(term), number) for number in range(shape.chains.get(id(term), (0, 0))[0])]
        below = [child for child in children(term) if any(isinstance(one, Call | Chain) for one in _within(child))]
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
    found: dict[str, str] = {}
    for key, (attribute, fields) in shape.carried.items():
        of = f"link {key[1] + 1}" if isinstance(key, tuple) else name_of(calls[key].op)
        found[f"{attribute.name} of {of}"] = ", ".join(f"{name}={one}" for name, one in fields.items())
    return found


def with_carried(rule: CompiledRule, shape: Shape, names: Mapping[str, Any], results: list[Any]) -> list[Any]:
    """Return the results of a replacement after `keep` has handed attributes on.

    Args:
        rule: The rule.
        shape: The way through its pattern.
        names: Values of a trial, with the links of chains.
        results: Of the replacement.

    Raises:
        ExpressionError: The meaning of an attribute cannot be computed.
    """
    for name, which in rule.rule.carried.items():
        held = [fields for attribute, fields in _in_order(rule, shape, names) if attribute.name == name]
        if held and which != "none":
            fields = held[0] if which == "first" else held[-1]
            results = [rule.attributes[name].applied(one, fields, TensorBuilder()) for one in results]
    return results


def _in_order(rule: CompiledRule, shape: Shape, names: Mapping[str, Any]) -> list[tuple[Any, Mapping[str, Any]]]:
    """Return what calls carry, in the order in which they are computed."""
    found: list[int | tuple[int, int]] = []

    def visit(term: Part) -> None:
        for child in children(term):
            visit(child)
        made: list[int | tuple[int, int]] = [id(term)]
        if isinstance(term, Chain):
            made = [(id(term), number) for number in range(len(names.get(key_of(term.name or ""), ())))]
        found.extend(one for one in made if one in shape.carried and one not in found)

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
    held = next((shape.carried[one] for one in _calls_behind(term, shape) if one in shape.carried), None)
    return dict(held[1]) if held is not None and held[0] is attribute else None


def _value(field: Any, values: Mapping[str, Any]) -> Any:
    return field.value if isinstance(field, Literal) else values.get(getattr(field, "name", ""))

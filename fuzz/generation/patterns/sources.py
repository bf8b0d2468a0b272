"""What is inserted into programs: instances of a pattern, and what is nearly one."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

import torch

from exirkit.fuzz.generation.method.values import DTYPES, is_float
from exirkit.patterns import (
    CompiledRule,
    PatternInstance,
    TensorVariable,
    attributed_variables,
    near_instances,
    pattern_instance,
    takes_special_values,
)

from .insertion import Instance
from .recorded_calls import changes, recorded, shuffled

Way: TypeAlias = Literal["match", "near", "shared", "dtype", "special"]
"""`match`: the pattern; `shared`: another call uses a value inside it; `special`: with NaN and infinities; `near`: one
part is missing; `dtype`: operands of another dtype."""

WAYS: tuple[Way | None, ...] = ("match", "near", "shared", "match", "dtype", "special", "match", None)
"""The ways that programs take in turn; None: nothing is insertion."""

POSITIVE = frozenset({"match", "shared", "special"})
"""Ways in which the whole pattern is there."""

EXACT_SHARE = 0.7
"""Share of the instances whose inputs are on a grid, so that their roundings and comparisons are exact."""

COARSE, FINE, FINE_SHARE = 6, 12, 0.25
"""Binary places of numbers on a grid, and how often there are more of them than half precision has."""

_TRIES = 12


@dataclass(frozen=True)
class Candidate:
    """Something to candidate.

    Attributes:
        instance: Calls and their values.
        way: In which way it is the pattern.
        what: Which part is missing, or what is changed.
        special: Inputs that take NaN and infinities.
        limited: Inputs are clamped, so that their ranges can be inferred from the program.
        computed: Inputs that are results of calls, which can have attributes.
    """

    instance: Instance
    way: Way
    what: str = ""
    special: frozenset[str] = field(default=frozenset())
    limited: bool = False
    computed: frozenset[str] = field(default=frozenset())


class PatternSource(Protocol):
    """Something that candidates for insertion come from.

    Attributes:
        name: Of the rule, pattern or model.
        ways: The ways that programs take in turn.
    """

    name: str
    ways: Sequence[Way | None]

    def candidates(self, way: Way, number: int) -> Iterator[Candidate]:
        """Yield what may be inserted, always the same for a number; the first that a program can have is taken."""


class RulePatterns:
    """Plants of a rule: its types say which values its variables have.

    Args:
        rule: The rule.
        is_special: Whether the rule promises anything for NaN and infinities.
    """

    def __init__(self, rule: CompiledRule, *, is_special: bool = True) -> None:
        self.name = rule.id
        self.ways: Sequence[Way | None] = WAYS
        self._rule = rule
        self._special = takes_special_values(rule) if is_special else frozenset()
        limited = asks_ranges(rule)
        called = attributed_variables(rule.pattern.terms)
        self._candidate = functools.partial(Candidate, limited=limited, computed=called)

    def candidates(self, way: Way, number: int) -> Iterator[Candidate]:
        """Yield what may be insertion."""
        if way == "near":
            yield from self._near(number)
            return
        if way == "special" and not self._special:
            return
        for attempt in range(_TRIES):
            instance = pattern_instance(self._rule, number * _TRIES + attempt + 1)
            if instance is None:
                continue
            if way == "dtype":
                for dtype, names in cast_others(instance, number):
                    name = str(dtype).removeprefix("torch.")
                    yield self._candidate(replace(instance, names=names), "dtype", name)
                continue
            special = self._special if way == "special" else frozenset()
            rng = random.Random(f"{self.name}:{number}:{attempt}")
            if rng.random() < EXACT_SHARE:
                instance = on_grid(instance, FINE if rng.random() < FINE_SHARE else COARSE)
            yield self._candidate(instance, way, special=special)

    def _near(self, number: int) -> Iterator[Candidate]:
        """Yield candidates that lack a part of the rule, and such with another call in the pattern, in turn first."""
        lacking = ((text, near) for text, near in near_instances(self._rule, number + 1, first=number // 2))
        for text, near in lacking if number % 2 else ():
            yield self._candidate(near, "near", text)
        instance = pattern_instance(self._rule, number + 1)
        whole = None if instance is None else recorded(instance)
        changed = [] if whole is None else list(changes(whole))
        found = shuffled(changed, random.Random(f"{self.name}:{number}"))
        if number % 4 == 0:
            # What a rule leaves out must have its default: nothing in the rule's text says so.
            found.sort(key=lambda one: not one.is_default)
        for one in found:
            if whole is not None:
                yield self._candidate(replace(whole, calls=one.calls), "near", one.text)


def asks_ranges(rule: CompiledRule) -> bool:
    """Whether a rule asks what is known of inputs, which then has to be seen in the program."""
    return any("range(" in guard.text for guard in rule.guards)


def on_grid(instance: PatternInstance, places: int) -> PatternInstance:
    """Return an instance whose inputs are multiples of 2**-places, as far as their types allow that.

    What is computed from others may differ in its last bits, so that nothing can be known of a rounding, a cast to
    integers or a comparison of it.
    """
    variables, steps = instance.rule.variables, 2**places
    names = dict(instance.names)
    for name, kind in instance.kinds.items():
        variable = variables.get(name)
        is_free = isinstance(variable, TensorVariable) and variable.domain is None
        if kind == "input" and is_free and is_float(names[name].dtype):
            rounded = names[name].detach().double().mul(steps).round().div(steps).to(names[name].dtype)
            # Zero is special to many operators; other numbers do not become it.
            names[name] = torch.where(rounded == 0, names[name].sign() / steps, rounded)
    return replace(instance, names=names)


def cast_others(instance: Instance, number: int) -> Iterator[tuple[torch.dtype, dict[str, Any]]]:
    """Yield values in which all tensors of the most common dtype have another one, another first for each number."""
    found = Counter(instance.names[name].dtype for name in instance.kinds)
    if not found:
        return
    usual = found.most_common(1)[0][0]
    others = [dtype for dtype in sorted(DTYPES, key=str) if dtype != usual]
    # Those of the same kind are what a pattern is most easily mistaken about.
    others.sort(key=lambda one: is_float(one) != is_float(usual))
    near = sum(is_float(one) == is_float(usual) for one in others)
    at = number % near
    for dtype in (*others[at:near], *others[:at], *others[near:]):
        yield (
            dtype,
            {
                name: value.to(dtype) if name in instance.kinds and value.dtype == usual else value
                for name, value in instance.names.items()
            },
        )

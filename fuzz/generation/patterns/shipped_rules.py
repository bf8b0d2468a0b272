"""Patterns of shipped rules in generated programs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.patterns import CompiledRule, PatternInstance, load_book, pattern_instance

from .insertion import Insertion
from .sources import COARSE, EXACT_SHARE, FINE, FINE_SHARE, RulePatterns, Way, asks_ranges, on_grid

# Rules that every program meets that is optimized at all.
_BOOKS = ("canonicalize", "algebra", "fold", "copies", "ranges", "finite", "host")
# How many inputs are computed behind the first calls of a pattern.
_LATE = 0.5

_WAYS: tuple[Way, ...] = ("match", "match", "match", "match", "near", "near", "special", "dtype")
"""The pattern, as the rule asks for it most times; and what the rule must leave alone, or says less of."""
_MOST_TRIED = 4
# How many patterns are those that programs shall have much more often.
_FOCUSED = 0.8


def insert_shipped_rule(scope: Scope) -> None:
    """Add the pattern of one of the rules of the usual optimization, or nearly, where programs can have it."""
    rules = shipped_rules()
    place = scope.choices.turn(len(rules))
    focused = [each for each, rule in enumerate(rules) if rule.id in scope.building.plan.policy.focused_rules]
    if focused and scope.choices.chance(_FOCUSED):
        place = scope.choices.pick(focused)
    way = scope.choices.pick(_WAYS)
    if way == "match":
        _insert_whole(scope, rules[place])
        return
    # What an input that is computed or limited is for depends on the rule: see `RulePatterns`.
    found = _source(place).candidates(way, scope.choices.integer(0, 199))
    for candidate in islice(found, _MOST_TRIED):
        insertion = Insertion(
            scope,
            candidate.instance,
            special=candidate.special,
            limited=candidate.limited,
            computed=candidate.computed,
        )
        if insertion.is_possible():
            insertion.insert()
            return


def _insert_whole(scope: Scope, rule: CompiledRule) -> None:
    instance = pattern_instance(rule, scope.choices.integer(0, 999), seed=scope.choices.integer(0, 6))
    if instance is None:
        return
    if scope.choices.chance(EXACT_SHARE):
        instance = on_grid(instance, FINE if scope.choices.chance(FINE_SHARE) else COARSE)
    instance = _repeating(scope, instance)
    # What takes the place of a match reads them too, and has to stand behind them.
    late = [name for name, kind in instance.kinds.items() if kind == "input" and scope.choices.chance(_LATE)]
    insertion = Insertion(scope, instance, exposed=scope.choices.chance(0.1), late=late, limited=asks_ranges(rule))
    if insertion.is_possible():
        insertion.insert()


@cache
def _source(place: int) -> RulePatterns:
    return RulePatterns(shipped_rules()[place])


@cache
def shipped_rules() -> tuple[CompiledRule, ...]:
    """Return the rules whose patterns generated programs have."""
    return tuple(rule for name in _BOOKS for rule in load_book(name).require_valid().rules)


def _repeating(scope: Scope, instance: PatternInstance) -> PatternInstance:
    """Return an instance whose inputs of one form have elements in common, at times.

    Comparisons that are not the same may differ for equal elements only.
    """
    first: dict[tuple[torch.dtype, torch.Size], torch.Tensor] = {}
    names = dict(instance.names)
    for name, kind in instance.kinds.items():
        tensor = names[name]
        if kind != "input" or tensor.numel() == 0:
            continue
        known = first.setdefault((tensor.dtype, tensor.shape), tensor)
        if known is not tensor and scope.choices.chance(0.3):
            names[name] = tensor.detach().clone(memory_format=torch.contiguous_format)
            names[name].view(-1)[::2] = known.detach().reshape(-1)[::2]
    return replace(instance, names=names)

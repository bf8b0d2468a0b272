"""Short rules for long lists of dtypes that go together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exirkit.ir import ALL_DTYPES, word_for

_ORDER = {name: place for place, name in enumerate((*ALL_DTYPES, "none"))}


@dataclass(frozen=True)
class Rule:
    """Combinations in which some places have one dtype of a set in common, and the others any of a set each.

    Attributes:
        places: Places that have the common dtype.
        common: Choices for it.
        others: Choices for each place; empty where the common dtype stands.
    """

    places: frozenset[int]
    common: frozenset[str]
    others: tuple[frozenset[str], ...]

    def combinations(self) -> Iterator[tuple[str, ...]]:
        """Yield what the rule admits."""
        for value in self.common or ("",):
            yield from itertools.product(
                *((value,) if place in self.places else choices for place, choices in enumerate(self.others))
            )

    def text(self, arguments: int) -> str:
        words = [
            "T" if place in self.places else word_for(sorted(choices, key=_ORDER.__getitem__))
            for place, choices in enumerate(self.others)
        ]
        rule = f"{' '.join(words[:arguments])} -> {' '.join(words[arguments:])}".strip()
        return f"{rule}; T: {word_for(sorted(self.common, key=_ORDER.__getitem__))}" if self.places else rule


def rules_for(legal: Sequence[tuple[str, ...]], arguments: int) -> list[str]:
    """Return rules that admit exactly these combinations.

    Args:
        legal: Dtypes of arguments and results.
        arguments: How many of them are of arguments.
    """
    rest = dict.fromkeys(legal)
    rules: list[Rule] = []
    while rest:
        best = _widest(rest)
        if best is None:
            break
        rules.append(best[0])
        for each in best[1]:
            del rest[each]
    rules += [Rule(frozenset(), frozenset(), tuple(frozenset({one}) for one in each)) for each in rest]
    return [rule.text(arguments) for rule in _needed([_widened(rule, set(legal)) for rule in _merged(rules)])]


def _widest(rest: dict[tuple[str, ...], None]) -> tuple[Rule, list[tuple[str, ...]]] | None:
    """Return the rule with a common dtype that covers most of what is left, if it covers at least two."""
    covered: dict[tuple[frozenset[int], tuple[str, ...]], list[tuple[str, ...]]] = {}
    for each in rest:
        for places, others in _skeletons(each):
            covered.setdefault((places, others), []).append(each)
    if not covered:
        return None
    (places, others), found = max(covered.items(), key=lambda item: (len(item[1]), len(item[0][0])))
    if len(found) < 2:
        return None
    first = min(places)
    choices = tuple(frozenset() if at in places else frozenset({one}) for at, one in enumerate(others))
    return Rule(places, frozenset(each[first] for each in found), choices), found


def _skeletons(each: tuple[str, ...]) -> Iterator[tuple[frozenset[int], tuple[str, ...]]]:
    for value in dict.fromkeys(each):
        places = frozenset(at for at, one in enumerate(each) if one == value)
        if value != "none" and len(places) > 1:
            yield places, tuple("" if at in places else one for at, one in enumerate(each))


def _widened(rule: Rule, legal: set[tuple[str, ...]]) -> Rule:
    """Let a rule admit all that it can in addition, which others admit, too: `any T -> T` is easier to read."""
    for place in (*range(len(rule.others)), -1):
        if place in rule.places or (place < 0 and not rule.places):
            continue
        for dtype in _ORDER:
            wider = _with(rule, place, dtype)
            if wider != rule and all(each in legal for each in wider.combinations()):
                rule = wider
    return rule


def _with(rule: Rule, place: int, dtype: str) -> Rule:
    if place < 0:
        return Rule(rule.places, rule.common | {dtype}, rule.others)
    wider = rule.others[place] | {dtype}
    return Rule(rule.places, rule.common, (*rule.others[:place], wider, *rule.others[place + 1 :]))


def _needed(rules: list[Rule]) -> list[Rule]:
    """Leave out rules whose combinations others admit, small ones first."""
    sets = {rule: frozenset(rule.combinations()) for rule in rules}
    kept = sorted(sets, key=lambda rule: -len(sets[rule]))
    for rule in reversed(list(kept)):
        others = set().union(*(sets[one] for one in kept if one is not rule))
        if sets[rule] <= others:
            kept.remove(rule)
    return kept


def _merged(rules: list[Rule]) -> list[Rule]:
    """Join rules that differ in one place only, until none do."""
    width = len(rules[0].others) if rules else 0
    before = -1
    while before != len(rules):
        before = len(rules)
        for place in range(-1, width):
            rules = _joined(rules, place)
    return rules


def _joined(rules: list[Rule], place: int) -> list[Rule]:
    """Join rules that agree in all but one place; -1 is the common dtype."""
    groups: dict[tuple[object, ...], Rule] = {}
    for rule in rules:
        key: tuple[object, ...]
        if place >= 0:
            if place in rule.places:
                groups[(rule, "whole")] = rule
                continue
            key = (rule.places, rule.common, rule.others[:place], rule.others[place + 1 :])
        else:
            key = (rule.places, rule.others) if rule.places else (rule, "whole")
        known = groups.get(key)
        groups[key] = rule if known is None else _union(known, rule, place)
    return list(groups.values())


def _union(first: Rule, second: Rule, place: int) -> Rule:
    if place < 0:
        return Rule(first.places, first.common | second.common, first.others)
    joined = first.others[place] | second.others[place]
    return Rule(first.places, first.common, (*first.others[:place], joined, *first.others[place + 1 :]))

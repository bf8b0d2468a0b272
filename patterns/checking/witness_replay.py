"""Stored witnesses, tried again: they need no search, and show whether they still are what they were."""

from __future__ import annotations

from exirkit.patterns.matching.compiled_rule import CompiledRule

from .near_miss_parts import Part
from .near_misses import NearMiss, NearMisses
from .trials import RuleTrials, shown
from .witnesses import StoredNearMiss, StoredRule


def replay(rule: CompiledRule, stored: StoredRule) -> tuple[list[NearMiss], list[str]]:
    """Try the stored witnesses of a rule.

    Args:
        rule: The rule.
        stored: What is stored of it.

    Returns:
        What is known of its parts; and what is wrong with the store: parts that it does not have, and witnesses that
        show nothing any more.
    """
    search = NearMisses(RuleTrials(rule, seed=stored.seed))
    wanted = [(part.kind, part.text) for part in search.parts]
    if wanted != [(one.what, one.text) for one in stored.near_misses]:
        missing = [text for kind, text in wanted if (kind, text) not in {(o.what, o.text) for o in stored.near_misses}]
        what = ", ".join(f"`{text}`" for text in missing) or "a part that the rule has"
        return [], [f"{what} is not stored, or in another place"]
    found: list[NearMiss] = []
    wrong: list[str] = []
    for part, one in zip(search.parts, stored.near_misses, strict=True):
        again = _again(search, part, one)
        if again is None:
            wrong.append(f"the stored witness {one.seed} of `{one.text}` shows nothing any more")
            continue
        found.append(again)
    return found, wrong


def _again(search: NearMisses, part: Part, stored: StoredNearMiss) -> NearMiss | None:
    is_structural = part.is_structural or part.users_of is not None
    if stored.outcome != "witness":
        return NearMiss(part.kind, part.text, None, None, stored.tried, is_structural, stored.outcome)
    for attempt in search.attempts(part, stored.number):
        if attempt.problem is not None and attempt.instead == stored.instead:
            witness = shown(search.rule, attempt.names)
            return NearMiss(
                part.kind, part.text, witness, attempt.problem, stored.tried, is_structural, "witness", stored.number,
                stored.instead,
            )  # fmt: skip
    return None

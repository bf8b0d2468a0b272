"""Near misses of loops: with one turn less, or the turns in another order, results must differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from exirkit.ir import Diagnostic
from exirkit.patterns.checking.trials.rule_trials import RAISED, RuleTrials, Trial
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.loops import PROBE, Loop


def loops_of(rule: CompiledRule) -> list[tuple[str, Loop]]:
    """Return the loops of a rule's replacements, each with a text that no other one of the rule has."""
    found: list[tuple[str, Loop]] = []
    for case in rule.cases:
        for loop in case.replace.loops:
            before = sum(known.text == loop.text for _, known in found)
            found.append((f"{loop.text} #{before + 1}" if before else loop.text, loop))
    return found


class _Fewer:
    """Leaves out the last turn of a loop that makes two or more; notes whether it did."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.has_cut = False

    def items(self, loop: Loop, items: list[Any]) -> list[Any]:
        """Return the list without its last element."""
        if loop is not self.loop or len(items) < 2:
            return items
        self.has_cut = True
        return items[:-1]


def fewer_turns(trials: RuleTrials, trial: Trial, loop: Loop) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names with which a replacement leaves out the last turn of a loop, and what that is called.

    Nothing is yielded for values with which the loop does not make two turns: they show nothing about what it carries
    from one turn to the next.
    """
    probe = _Fewer(loop)
    names = {**trial.names, PROBE: probe}
    # Without the last turn it may well fail: what counts is that there was one to leave out.
    with suppress(ExpressionError, *RAISED):
        trials.replaced(names)
    if probe.has_cut:
        yield "without the last turn", names


def loop_without_witness(rule: CompiledRule, text: str, *, is_tried: bool) -> Diagnostic:
    """Return the diagnostic about a loop that trials do not show to be needed, EK226.

    Args:
        rule: The rule.
        text: The loop, as `loops_of` names it.
        is_tried: Trials made two turns, and one of them made no difference.
    """
    loop = dict(loops_of(rule))[text]
    place = next(texts[2] for texts, case in zip(rule.texts.cases, rule.cases, strict=True) if _has(case, loop))
    what = "gives the same results with one turn less" if is_tried else "is never tried with two turns"
    hint = (
        "take it out, or let it carry what its turns compute"
        if is_tried
        else "let the types draw longer lists, or write the one turn without a loop"
    )
    return place.diagnostic(
        "EK226",
        f"the loop `{text}` {what}",
        line=loop.line,
        length=len(text.partition(" #")[0]) + 1,
        notes=(f"in rule {rule.id}",),
        hint=hint,
    )


def _has(case: Any, loop: Loop) -> bool:
    return any(one is loop for one in case.replace.loops)

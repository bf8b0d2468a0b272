"""What a rule asks of calls, one demand after the other, and which of them a call does not meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import torch

from exirkit.ir import ModelError, module_paths
from exirkit.passes.config.node_names import agree, full_names
from exirkit.patterns import DTYPES, Condition, SourceText, StandalonePattern, compile_condition, compile_pattern

from .call_facts import CallFacts, dtype_name
from .model import RankRange, TakingRule
from .reading import CONDITION_NAMES

Check = Callable[[CallFacts], str | None]
"""Returns what a call is instead of what is asked, or None if it is that."""


@dataclass(frozen=True)
class Refusal:
    """How near a rule came to a call.

    Attributes:
        place: Place of the rule in the file.
        met: How many demands the call meets before the one that it does not.
        reason: Which one that is, and what the call is.
    """

    place: int
    met: int
    reason: str


class CompiledDemands:
    """A rule, ready to be asked.

    Args:
        place: Its place in the file.
        rule: The rule, of a partitioning in which `check_partitioning` has found nothing wrong.
        title: What messages call it.
    """

    def __init__(self, place: int, rule: TakingRule, title: str) -> None:
        self.place = place
        self.rule = rule
        self._names = full_names(rule.op)
        self._means = cache(lambda name: agree(self._names, [name]))
        self.pattern = _pattern_of(rule, title)
        self._checks = list(_checks_of(rule, title))

    def names_operator(self, name: str) -> bool:
        """Tell whether calls of an operator can be meant; of a rule with a pattern, whether a match starts there."""
        if self.pattern is not None:
            return not self.pattern.anchor_names or name in self.pattern.anchor_names
        return not self._names or self._means(name)

    def speaks_of(self, name: str) -> bool:
        """Tell whether a rule names an operator at all, be it inside a pattern."""
        if self.pattern is not None:
            return name in self.pattern.operators
        return self.names_operator(name)

    def refusal(self, call: CallFacts) -> Refusal | None:
        """Return the first demand that a call does not meet, or None if it meets all; the operator is not asked.

        Raises:
            ModelError: EK223, a condition has no answer for the call.
        """
        for met, check in enumerate(self._checks):
            found = check(call)
            if found is not None:
                return Refusal(self.place, met + 1, found)
        return None


def _pattern_of(rule: TakingRule, title: str) -> StandalonePattern | None:
    if rule.match is None:
        return None
    place = f"{title} of the partitioning"
    return compile_pattern(
        SourceText(rule.match, place),
        {name: SourceText(text, place) for name, text in rule.vars.items()},
        [SourceText(text, place) for text in rule.where],
    )


def _checks_of(rule: TakingRule, title: str) -> Iterator[Check]:
    if rule.module:
        yield lambda call: _module_unlike(rule, call)
    if rule.dtype:
        yield _dtype_check("result", [DTYPES[name] for name in rule.dtype], lambda call: call.results)
    if rule.argument_dtype:
        yield _dtype_check("argument", [DTYPES[name] for name in rule.argument_dtype], lambda call: call.arguments)
    if rule.rank is not None:
        yield _rank_check("result", rule.rank, lambda call: call.results)
    if rule.argument_rank is not None:
        yield _rank_check("argument", rule.argument_rank, lambda call: call.arguments)
    if rule.static is not None:
        otherwise = f"sizes that {'vary' if rule.static else 'are all known'}"
        yield lambda call: None if call.is_static == rule.static else otherwise
    if rule.nbytes is not None:
        yield lambda call: _nbytes_outside(rule, call)
    for text in rule.where if rule.match is None else ():
        yield _condition_check(compile_condition(SourceText(text, f"{title} of the partitioning"), CONDITION_NAMES))


def _module_unlike(rule: TakingRule, call: CallFacts) -> str | None:
    paths = module_paths(call.node)
    if agree(rule.module, paths):
        return None
    return f"it comes from {paths[-1] or 'the model itself' if paths else 'no module'}, not from {_listed(rule.module)}"


def _dtype_check(what: str, wanted: list[torch.dtype], values: Callable[[CallFacts], Iterable[torch.Tensor]]) -> Check:
    names = _listed(map(dtype_name, wanted))

    def check(call: CallFacts) -> str | None:
        found = next((one.dtype for one in values(call) if one.dtype not in wanted), None)
        return None if found is None else f"{what} of {dtype_name(found)}, not {names}"

    return check


def _rank_check(what: str, wanted: RankRange, values: Callable[[CallFacts], Iterable[torch.Tensor]]) -> Check:
    def check(call: CallFacts) -> str | None:
        found = next((one.ndim for one in values(call) if not wanted.admits(one.ndim)), None)
        return None if found is None else f"{what} of {found} dimensions, not {_range_text(wanted)}"

    return check


def _nbytes_outside(rule: TakingRule, call: CallFacts) -> str | None:
    assert rule.nbytes is not None, "the rule asks for it"
    if call.nbytes == float("inf"):
        return "results whose sizes have no bound"
    if rule.nbytes.admits(int(call.nbytes)):
        return None
    return f"results of {int(call.nbytes)} bytes, not {_range_text(rule.nbytes)}"


def _condition_check(condition: Condition) -> Check:
    def check(call: CallFacts) -> str | None:
        names = {name: call.value_of(name) for name in condition.needs}
        try:
            holds = condition.holds(call.facts, **names)
        except ModelError as error:
            note = f"the call is %{call.node.name} of {call.operator}"
            raise ModelError(
                one.model_copy(update={"notes": (*one.notes, note)}) for one in error.diagnostics
            ) from None
        if holds:
            return None
        numbers = ", ".join(f"{name} is {value}" for name, value in sorted(names.items()) if name != "x")
        return f"`{condition.text.value}` does not hold" + (f": {numbers}" if numbers else "")

    return check


def _range_text(found: object) -> str:
    low, high = getattr(found, "at_least", 0), getattr(found, "at_most", None)
    if high is None:
        return f"at least {low}"
    return f"at most {high}" if not low else f"{low} to {high}"


def _listed(names: Iterable[str]) -> str:
    return " or ".join(names)

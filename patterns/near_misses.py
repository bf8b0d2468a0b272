"""Near misses: almost the pattern, and not to be rewritten. Each part of a rule has to show what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .compiled_rule import CompiledRule
from .defined_ops import TensorBuilder
from .numeric_agreement import disagreement
from .pattern_execution import CannotRunError, PatternRun
from .rule_trials import RAISED, RuleTrials, repeated_variables, shown
from .terms import Call, Literal, Term, walk

_TRIALS = 60
_GUARD_TRIALS = 400
_STRUCTURAL = ("users", "is_output", "is_input", "in_module", "module_type", "from_rule", "tag", "consumed_by",
               "produced_by", "target", "option", "op_legal", "shared", "mutable", "param", "buffer", "const", "op",
               "only_index", "pure", "same_graph", "static")  # fmt: skip


@dataclass(frozen=True)
class NearMiss:
    """One part of a rule, and what happens without it.

    Attributes:
        what: `guard`, `literal`, `default` or `repeated`.
        text: The part.
        witness: Values for which the rule would be wrong without it, and how; None if none was found.
        tried: How many values were tried.
        is_structural: It speaks of the graph around the match, which no values can show.
    """

    what: str
    text: str
    witness: dict[str, str] | None
    problem: str | None
    tried: int
    is_structural: bool = False


class NearMisses:
    """Looks for witnesses."""

    def __init__(self, trials: RuleTrials) -> None:
        self.trials = trials
        self.rule: CompiledRule = trials.rule

    def all(self) -> Iterator[NearMiss]:
        """Yield what became of every guard, literal, default and repeated variable."""
        for index, guard in enumerate(self.rule.guards):
            yield self._guard(index, guard.text, guard.kind)
        for name, term in self._literals():
            yield self._literal(name, term)
        for name in repeated_variables(self.rule):
            yield self._repeated(name)

    def _guard(self, index: int, text: str, kind: str) -> NearMiss:
        if any(f"{word}(" in text.replace(" ", "") or f"{word}." in text for word in _STRUCTURAL):
            return NearMiss("guard", text, None, None, 0, is_structural=True)
        tried = 0
        for number in range(1, _GUARD_TRIALS):
            trial, _ = self.trials.trial(number, unless=index)
            if trial is None:
                continue
            tried += 1
            problem = self.trials.judge(trial)
            if problem is not None:
                return NearMiss("guard", text, shown(self.rule, trial.names), problem, tried)
            if tried >= _TRIALS:
                break
        return NearMiss("guard", text, None, None, tried, is_structural=kind == "target")

    def _literals(self) -> Iterator[tuple[str, Literal]]:
        from .operator_table import name_of

        seen: set[int] = set()
        for root in self.rule.pattern.roots:
            for term in walk(root):
                if not isinstance(term, Call):
                    continue
                for name, argument in term.arguments.items():
                    if isinstance(argument, Literal) and id(argument) not in seen:
                        seen.add(id(argument))
                        yield f"{name_of(term.op)}: {name} = {argument.value!r}", argument

    def _literal(self, text: str, term: Literal) -> NearMiss:
        what = "default" if term.is_default else "literal"
        tried = 0
        for number in range(1, _TRIALS):
            trial, _ = self.trials.trial(number)
            if trial is None:
                continue
            for other in others_of(term.value):
                result = self._changed(trial, {id(term): other})
                if result is None:
                    continue
                tried += 1
                problem = self._against_replacement(trial, result)
                if problem is not None:
                    return NearMiss(
                        what, text, {**shown(self.rule, trial.names), "instead": repr(other)}, problem, tried
                    )
        return NearMiss(what, text, None, None, tried)

    def _repeated(self, name: str) -> NearMiss:
        tried = 0
        for number in range(1, _TRIALS):
            trial, _ = self.trials.trial(number)
            if trial is None:
                continue
            value = trial.names.get(name)
            other = _other_value(value)
            if other is None:
                continue
            result = self._changed(trial, {}, split={name: other})
            if result is None:
                continue
            tried += 1
            problem = self._against_replacement(trial, result)
            if problem is not None:
                return NearMiss("repeated", name, shown(self.rule, trial.names), problem, tried)
        return NearMiss("repeated", name, None, None, tried)

    def _changed(self, trial: Any, changed: dict[int, Any], split: dict[str, Any] | None = None) -> list[Any] | None:
        """Run the pattern with something else in it; None if it cannot be run so."""
        names = {key: value for key, value in trial.names.items() if key not in self.rule.pattern.named}
        run = PatternRun(self.rule.pattern, names, trial.shape, TensorBuilder(), changed=changed, split=split)
        try:
            with torch.no_grad():
                return run.run()
        except (CannotRunError, *RAISED):
            return None

    def _against_replacement(self, trial: Any, result: list[Any]) -> str | None:
        try:
            found = self.trials.replaced(trial.names)
        except Exception as error:  # Whatever it raises, it is not what the pattern gives.
            return f"{type(error).__name__}"
        return disagreement(result, found, self.rule.rule.equiv)


def others_of(value: Any) -> list[Any]:
    """Return values that a literal could be taken for."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, -value] if value else [1, -1, 2]
    if isinstance(value, float):
        return [value + 0.5, -value, value * 2] if value else [1.0, -0.5]
    if isinstance(value, str):
        return ["tanh", "none"] if value in ("none", "tanh") else [f"{value}_"]
    if isinstance(value, torch.dtype):
        return [one for one in (torch.float64, torch.int32, torch.float16) if one != value]
    if isinstance(value, list) and value and all(type(one) is int for one in value):
        return [[value[0] + 1, *value[1:]], value[::-1]]
    return []


def _other_value(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bool:
            return ~value
        return value.flip(0).add(1) if value.dim() else value + 1
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return None


def terms_of(rule: CompiledRule) -> Iterator[Term]:
    """Yield all terms of a rule's pattern."""
    for root in rule.pattern.roots:
        yield from walk(root)  # type: ignore[misc]

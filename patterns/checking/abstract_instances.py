"""Rules as examples of themselves: the calls of a pattern and of its replacement, for values of the types.

A replacement computes with sizes, lists and dtypes, so its calls are only known for some values. Instances are made for
several, and a literal that differs between them stands for any literal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from exirkit.patterns.matching.compiled_rule import CompiledCase
from exirkit.patterns.operators.argument_binding import default_of
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.expression_syntax import ExpressionError
from exirkit.patterns.syntax.program_compiler import FACTS
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.syntax.undecided import UndecidedError, truth
from exirkit.patterns.types.lists import PartitionVariable
from exirkit.patterns.types.scalars import OperatorVariable
from exirkit.patterns.types.tensors import TensorListVariable

from .pattern_execution import CannotRunError, PatternRun
from .trials import RAISED, RuleTrials, Trial

_WANTED = 3
_WANTED_OF_LISTS = 12
_MOST_TRIES = 40
_STORED = {"const", "param", "buffer"}


@dataclass(frozen=True, eq=False)
class Leaf:
    """A value from outside: a variable, or a constant that `let` computed."""

    name: str
    is_constant: bool = False


@dataclass(frozen=True)
class Open:
    """A literal that is another one for other values."""


@dataclass(frozen=True, eq=False)
class MadeCall:
    """A call that was made; one that is used twice is one object.

    Attributes:
        op: The operator.
        arguments: By name, defaults included: calls, results of calls, leaves, literals, and tuples of those.
        family: What else the operator could have been, where the rule leaves that to a variable.
    """

    op: Operator
    arguments: Mapping[str, Any]
    family: OperatorVariable | None = None

    def may_be(self, op: Operator) -> bool:
        """Whether this could be a call of an operator."""
        return self.op is op or (self.family is not None and self.family.admits_operator(op))


@dataclass(frozen=True, eq=False)
class MadeItem:
    """One result of a call with several."""

    base: MadeCall
    index: int


@dataclass(frozen=True)
class Instance:
    """One rewrite that a rule makes.

    Attributes:
        trial: The values.
        before: Roots of the pattern.
        after: What takes their place.
        removed: Calls that go, by name of the operator.
        made: Calls that come.
    """

    trial: Trial
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    removed: Counter[str] = field(default_factory=Counter)
    made: Counter[str] = field(default_factory=Counter)


class RecordingBuilder:
    """Runs calls on tensors, and keeps how every tensor was made."""

    def __init__(self, names: Mapping[str, Any], variables: Mapping[str, Any]) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}
        self._families: dict[Any, OperatorVariable] = {}
        for name, value in names.items():
            variable = variables.get(name)
            if isinstance(variable, OperatorVariable):
                self._families[value] = variable
            is_constant = bool(_STORED & set(getattr(variable, "qualifiers", ())))
            for one in value if isinstance(value, list | tuple) else (value,):
                if isinstance(one, torch.Tensor):
                    self._made[id(one)] = (one, Leaf(name, is_constant))

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        result = op(*args, **kwargs)
        made = MadeCall(op, self._arguments(op, args, kwargs), self._families.get(op))
        if isinstance(result, tuple | list):
            return [self._keep(one, MadeItem(made, index)) for index, one in enumerate(result)]
        return self._keep(result, made)

    def made_of(self, value: Any) -> Any:
        """Return how a value was made; numbers and texts stay what they are."""
        if isinstance(value, torch.Tensor):
            known = self._made.get(id(value))
            return known[1] if known is not None else Leaf("", True)
        if isinstance(value, list | tuple | range):
            return tuple(self.made_of(one) for one in value)
        return value

    def _keep(self, result: Any, made: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        # An operator that has nothing to do may return its argument; that stays what it was.
        fresh = result.detach() if id(result) in self._made else result
        self._made[id(fresh)] = (fresh, made)
        return fresh

    def _arguments(self, op: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for index, argument in enumerate(op._schema.arguments):
            if index < len(args):
                found[argument.name] = self.made_of(args[index])
            elif argument.name in kwargs:
                found[argument.name] = self.made_of(kwargs[argument.name])
            elif argument.has_default_value():
                found[argument.name] = self.made_of(default_of(argument))
        return found


def instances_of(trials: RuleTrials) -> tuple[Instance, ...]:
    """Return rewrites that a rule makes, a few for every way through its pattern and every case.

    Instances with the same calls are merged into one; none at all are found where a rule cannot be tried.
    """
    groups: dict[Any, Instance] = {}
    has_lists = any(isinstance(one, TensorListVariable | PartitionVariable) for one in trials.rule.variables.values())
    enough = (_WANTED_OF_LISTS if has_lists else _WANTED) * len(trials.shapes)
    seen = 0
    for number in range(1, _MOST_TRIES * len(trials.shapes)):
        trial, _ = trials.trial(number, profile="normal")
        instance = None if trial is None else _instance(trials, trial)
        if instance is None:
            continue
        key = (_skeleton(instance.before), _skeleton(instance.after))
        known = groups.get(key)
        groups[key] = instance if known is None else _merged(known, instance)
        seen += 1
        if seen >= enough:
            break
    return tuple(groups.values())


def calls_of(value: Any) -> Iterator[MadeCall]:
    """Yield the calls behind a value, each once, those that use a result before those that make it."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, MadeItem):
            one = one.base
        if isinstance(one, tuple):
            pending += one
        elif isinstance(one, MadeCall) and id(one) not in seen:
            seen.add(id(one))
            yield one
            pending += one.arguments.values()


def _instance(trials: RuleTrials, trial: Trial) -> Instance | None:
    rule = trials.rule
    outside = {name: value for name, value in trial.names.items() if name not in rule.pattern.named}
    recorder = RecordingBuilder(outside, rule.variables)
    names = dict(outside)
    try:
        with torch.no_grad():
            before = PatternRun(rule.pattern, names, trial.shape, recorder).run()
            names[FACTS] = trial.names[FACTS]
            after = _replaced(trials, names, recorder)
    except (CannotRunError, ExpressionError, UndecidedError, *RAISED):
        return None
    old = tuple(recorder.made_of(value) for value in before)
    new = tuple(recorder.made_of(value) for value in after)
    kept = {id(call) for name in rule.rule.keep for call in calls_of(recorder.made_of(names.get(name)))}
    removed = Counter(name_of(call.op) for call in calls_of(old) if id(call) not in kept)
    return Instance(trial, old, new, removed, Counter(name_of(call.op) for call in calls_of(new)))


def _replaced(trials: RuleTrials, names: dict[str, Any], recorder: RecordingBuilder) -> list[Any]:
    rule = trials.rule
    if rule.let is not None:
        names.update(rule.let.assigned(names))
    case = chosen_case(rule.cases, names)
    if case.let is not None:
        names.update(case.let.assigned(names))
    return case.replace.run(names, recorder)


def chosen_case(cases: tuple[CompiledCase, ...], names: Mapping[str, Any]) -> CompiledCase:
    """Return the replacement that is taken.

    Raises:
        ExpressionError: None is.
    """
    for case in cases:
        if case.when is None or truth(case.when.compiled(names)) is True:
            return case
    raise ExpressionError("no case applies")


def _skeleton(value: Any) -> Any:
    if isinstance(value, MadeCall):
        return (name_of(value.op), *(_skeleton(one) for one in value.arguments.values()))
    if isinstance(value, MadeItem):
        return (value.index, _skeleton(value.base))
    if isinstance(value, tuple):
        return tuple(_skeleton(one) for one in value)
    return value.name if isinstance(value, Leaf) else type(value).__name__


def _merged(one: Instance, other: Instance) -> Instance:
    """Return an instance in which literals that differ between two of equal calls are open."""
    made: dict[int, Any] = {}

    def merge(left: Any, right: Any) -> Any:
        if isinstance(left, MadeCall):
            if id(left) not in made:
                pairs = zip(left.arguments.items(), right.arguments.values(), strict=True)
                made[id(left)] = MadeCall(left.op, {name: merge(a, b) for (name, a), b in pairs}, left.family)
            return made[id(left)]
        if isinstance(left, MadeItem):
            if id(left) not in made:
                made[id(left)] = MadeItem(merge(left.base, right.base), left.index)
            return made[id(left)]
        if isinstance(left, tuple):
            return tuple(merge(a, b) for a, b in zip(left, right, strict=True))
        if isinstance(left, Leaf | Open) or (type(left) is type(right) and repr(left) == repr(right)):
            return left
        return Open()

    return Instance(one.trial, merge(one.before, other.before), merge(one.after, other.after), one.removed, one.made)

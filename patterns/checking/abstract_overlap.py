"""Rules as examples of themselves, and whether a pattern may match the calls that a rule makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from exirkit.ir import operators_with
from exirkit.patterns.checking.pattern_execution import CannotRunError, PatternRun
from exirkit.patterns.checking.trials.rule_trials import RAISED, RuleTrials, Trial
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.arguments import default_of
from exirkit.patterns.operators.table import name_of, traits_of
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import ExpressionError, UndecidedError, truth
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Anything,
    Call,
    Item,
    Literal,
    Operator,
    OperatorCall,
    Optional,
    Sequence,
    Splat,
    Through,
    Variable,
    walk,
)
from exirkit.patterns.types.lists import PartitionVariable
from exirkit.patterns.types.scalars import OperatorVariable
from exirkit.patterns.types.tensors import TensorListVariable, TensorVariable

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
    numbers: dict[Any, int] = {}
    has_lists = any(isinstance(one, TensorListVariable | PartitionVariable) for one in trials.rule.variables.values())
    enough = (_WANTED_OF_LISTS if has_lists else _WANTED) * len(trials.shapes)
    seen = 0
    for number in range(1, _MOST_TRIES * len(trials.shapes)):
        trial, _ = trials.trial(number, profile="normal")
        instance = None if trial is None else _instance(trials, trial)
        if instance is None:
            continue
        key = _skeleton((instance.before, instance.after), numbers)
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
            after = rule.replaced(names, recorder)
    except (CannotRunError, ExpressionError, UndecidedError, *RAISED):
        return None
    old = tuple(recorder.made_of(value) for value in before)
    new = tuple(recorder.made_of(value) for value in after)
    kept = {id(call) for name in rule.rule.kept for call in calls_of(recorder.made_of(names.get(name)))}
    removed = Counter(name_of(call.op) for call in calls_of(old) if id(call) not in kept)
    return Instance(trial, old, new, removed, Counter(name_of(call.op) for call in calls_of(new)))


def _skeleton(value: Any, numbers: dict[Any, int]) -> Any:
    """Return what two values have in common if they are made by the same calls of the same leaves.

    Calls are numbered, equal ones alike: a result that is used twice, and made of one that is, as in a recurrent layer
    by steps, would double what is compared with each step.

    Args:
        value: Calls, results of calls, leaves, literals, and tuples of those.
        numbers: Of the calls so far; new ones are added.
    """
    known: dict[int, int] = {}

    def number(one: MadeCall | MadeItem) -> int:
        if id(one) not in known:
            if isinstance(one, MadeCall):
                key: tuple[Any, ...] = (name_of(one.op), *map(shown, one.arguments.values()))
            else:
                key = (one.index, number(one.base))
            known[id(one)] = numbers.setdefault(key, len(numbers))
        return known[id(one)]

    def shown(one: Any) -> Any:
        if isinstance(one, MadeCall | MadeItem):
            return number(one)
        if isinstance(one, tuple):
            return tuple(map(shown, one))
        return one.name if isinstance(one, Leaf) else type(one).__name__

    return shown(value)


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


# Whether a pattern might match calls that a rule makes, whatever stands around them: never too strict


def may_match(term: Any, made: Any, variables: Mapping[str, Any]) -> bool:
    """Whether a term might match what was made; leaves may turn out to be anything.

    Args:
        term: Part of a pattern.
        made: A call, a result, a leaf, a literal or a tuple of those.
        variables: Types of the pattern's variables.
    """
    if isinstance(made, Leaf | Open) or isinstance(term, Anything):
        return not (isinstance(made, Leaf) and isinstance(term, Literal) and term.value is None)
    if isinstance(term, Call):
        return isinstance(made, MadeCall) and made.may_be(term.op) and _arguments(term, made, variables)
    if isinstance(term, Item):
        is_item = isinstance(made, MadeItem) and made.index == term.index
        return is_item and may_match(term.base, made.base, variables)
    if isinstance(term, Alternatives):
        return any(may_match(branch, made, variables) for _, branch in term.branches)
    if isinstance(term, Optional):
        passing = next(iter(term.inner.arguments.values()))
        return may_match(term.inner, made, variables) or may_match(passing, made, variables)
    return _of_kind(term, made, variables)


def _of_kind(term: Any, made: Any, variables: Mapping[str, Any]) -> bool:
    match term:
        case Through():
            return _through(term, made, variables)
        case OperatorCall():
            return _operator_call(term, made, variables)
        case Sequence():
            return _sequence(term, made, variables)
        case Literal():
            return _literal(term.value, made)
        case Variable():
            return _variable(variables.get(term.name), made)
    return True


def guards_may_hold(rule: CompiledRule, made: Any) -> bool:
    """Whether no guard about numbers alone is certainly false, where the whole pattern matches what was made."""
    (root, *others) = rule.pattern.roots
    if others or any(isinstance(one, Alternatives | Optional | Through | Splat) for one in walk(root)):
        return True
    names = _bound(root, made)
    for guard in rule.guards:
        if guard.needs and guard.needs <= names.keys():
            try:
                if truth(guard.compiled(names)) is False:
                    return False
            except (ExpressionError, UndecidedError, TypeError, LookupError):
                continue
    return True


def _bound(term: Any, made: Any) -> dict[str, Any]:
    """Return the values of variables that stand at places of literals."""
    if isinstance(term, Variable):
        is_plain = isinstance(made, int | float | bool | str) or made is None
        return {term.name: made} if is_plain else {}
    found: dict[str, Any] = {}
    if isinstance(term, Item) and isinstance(made, MadeItem):
        found.update(_bound(term.base, made.base))
    if isinstance(term, Call) and isinstance(made, MadeCall):
        for name, argument in term.arguments.items():
            if not isinstance(argument, Call) or not traits_of(term.op).commutes:
                found.update(_bound(argument, made.arguments.get(name)))
    return found


def _arguments(term: Call, made: MadeCall, variables: Mapping[str, Any]) -> bool:
    orders: list[Mapping[str, str]] = [{}]
    for left, right, _ in traits_of(term.op).commutes:
        if left in term.arguments and right in term.arguments:
            orders.append({left: right, right: left})
    return any(
        all(
            may_match(argument, made.arguments.get(order.get(name, name), Open()), variables)
            for name, argument in term.arguments.items()
        )
        for order in orders
    )


def _through(term: Through, made: Any, variables: Mapping[str, Any]) -> bool:
    seen = made
    while True:
        if may_match(term.inner, seen, variables):
            return True
        if not isinstance(seen, MadeCall) or seen.op not in term.ops:
            return False
        seen = next(iter(seen.arguments.values()), Open())


def _operator_call(term: OperatorCall, made: Any, variables: Mapping[str, Any]) -> bool:
    family = variables.get(term.variable)
    if not isinstance(made, MadeCall) or not isinstance(family, OperatorVariable):
        return False
    if made.family is None and not family.admits_operator(made.op):
        return False
    pairs = zip(term.arguments, made.arguments.values(), strict=False)
    return all(may_match(argument, value, variables) for argument, value in pairs)


def _sequence(term: Sequence, made: Any, variables: Mapping[str, Any]) -> bool:
    if not isinstance(made, tuple):
        return False
    splats = sum(isinstance(item, Splat) for item in term.items)
    if splats:
        return len(made) >= len(term.items) - splats
    if len(made) != len(term.items):
        return False
    return all(may_match(item, one, variables) for item, one in zip(term.items, made, strict=True))


def _literal(wanted: Any, made: Any) -> bool:
    if isinstance(made, MadeCall):
        # A number may be matched by a constant of no dims.
        return isinstance(wanted, int | float | bool) and made.op in operators_with("creates")
    if isinstance(made, MadeItem):
        return False
    if isinstance(wanted, list | tuple) and isinstance(made, tuple):
        # `[2]` may mean `[2, 2]`.
        return len(wanted) != len(made) or all(map(_literal, wanted, made))
    if type(wanted) is int and type(made) is int and (wanted < 0) != (made < 0):
        # A dim may be counted from either end.
        return True
    return isinstance(made, Open) or (type(wanted) is type(made) and bool(wanted == made or wanted != wanted))


def _variable(variable: Any, made: Any) -> bool:
    is_result = isinstance(made, MadeCall | MadeItem)
    if isinstance(variable, TensorVariable):
        # Any result may be constant in some program, and numbers may stand for tensors.
        return is_result or isinstance(made, int | float | bool) or (made is None and variable.allows_none)
    return not is_result

"""What a pattern asks of the nodes below a call: operators, literals and types by place, for every way to match."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

from torch.fx import Node

from exirkit.patterns.forms.catalogue import Forms, forms_of
from exirkit.patterns.forms.composites import FoundComposites
from exirkit.patterns.forms.readers import Operand, Screen
from exirkit.patterns.matching.state import CompiledGuard
from exirkit.patterns.matching.value_checks import (
    Check,
    ConstantCheck,
    GuardCheck,
    LengthCheck,
    Named,
    constant_check,
    guard_check,
    joint_guards,
    literal_check,
    number_check,
    tensor_check,
)
from exirkit.patterns.operators.arguments import may_pass
from exirkit.patterns.operators.control_flow import ControlFlow
from exirkit.patterns.operators.table import traits_of
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Call,
    Chain,
    Element,
    EveryUser,
    Item,
    Operator,
    OperatorCall,
    Optional,
    Splat,
    Term,
    Variable,
    walk,
)
from exirkit.patterns.syntax.terms import Sequence as ListTerm

Path = tuple[str | int | Operand, ...]
"""Steps from a node to an argument: names of arguments, places in lists, and operands of calls read in another way."""

_MOST_VARIANTS = 64

Question = tuple[frozenset[Any], frozenset[Any]]
"""Operators that a call may have whose arguments are asked about too, and others that it may have."""

Asked = dict[Path, "Question | Check | Named"]
"""What one way of matching asks by place: operators of calls, checks of what the pattern does not call, and names."""


@dataclass(frozen=True)
class Anchored:
    """Where a rule may match.

    Attributes:
        operators: Those that the call behind its first root can have; none: any.
        root: The term that this call must match.
        forms: Other forms of the operators in it.
        variables: Types of its variables.
        guards: Conditions.
        reach: How many calls above a change the rule may match because of it.
    """

    operators: frozenset[Any]
    root: Term
    forms: Mapping[Any, Forms] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    guards: Sequence[CompiledGuard] = ()
    reach: int = 1


@dataclass(frozen=True, eq=False)
class Reading:
    """The condition that a call can be read as one of another operator, with all arguments that are read.

    Attributes:
        forms: Other forms of the operator.
        met: Operator of the call.
        is_composed: The call is the last one of the parts of the operator.
        screen: A quick look, False for calls that cannot be read so.
    """

    forms: Forms
    met: Operator
    is_composed: bool
    screen: Screen | None

    def may_read(self, node: Node, passed: dict[Screen, bool]) -> bool:
        """Whether a quick look does not exclude it.

        Args:
            node: The call.
            passed: Results of quick checks of it so far.
        """
        screen = self.screen
        if screen is None:
            return True
        if screen not in passed:
            passed[screen] = screen(node)
        return passed[screen]

    def arguments(self, node: Node, composites: FoundComposites) -> Iterator[dict[Path, Any]]:
        """Yield the arguments in each reading of a call, by their place."""
        read = self.forms.of_parts if self.is_composed else self.forms.as_read
        for one in read(node, self.met, composites):
            yield {(name,): one.arguments.get(name) for name in self.forms.names}


@cache
def _reading(op: Operator, met: Operator, is_composed: bool) -> Reading:
    """Return the condition that rules about an operator share."""
    forms = forms_of(op)
    assert forms is not None, "it is read in another form"
    return Reading(forms, met, is_composed, None if is_composed else forms.screen(met))


_Start = tuple["Screen | Reading | None", Asked]
"""A condition on a call, and what must be found below it if that holds."""


_LITERALS, _GUARDS, _CONSTANT, _NAME = "$literals", "$guards", "$constant", "$name"
"""Steps from a value to what else is asked of the value itself."""

AT_VALUE = frozenset({_LITERALS, _GUARDS, _CONSTANT})
"""Steps behind which a check is about the value in front of them."""

_STEPS: dict[type, tuple[str, ...]] = {GuardCheck: (_GUARDS,), ConstantCheck: (_CONSTANT,)}


class WaysToMatch:
    """The ways in which the pattern of a rule may match."""

    def __init__(self, rule: Anchored) -> None:
        self.forms = rule.forms
        met = Counter(one.name for one in walk(rule.root) if isinstance(one, Variable))
        self.checks = {
            name: tuple(
                check
                for check in (
                    tensor_check(name, rule.variables),
                    number_check(name, rule.variables),
                    guard_check(name, rule.variables, rule.guards),
                    # What is met a second time was asked the first time.
                    constant_check(name, rule.variables) if met[name] == 1 else None,
                )
                if check is not None
            )
            for name in rule.variables
        }
        self.joint = joint_guards(rule.variables, rule.guards)
        self.named = frozenset(name for guard in self.joint for name in guard.names)
        # In a term about all users of a value, a name stands for it; a match starts at any user that fits.
        self.used = {rule.root.user: rule.root.of} if isinstance(rule.root, EveryUser) else {}

    def starts(self, term: Term, operator: Any) -> Iterator[_Start]:
        """Yield what must hold of calls of an operator for a root to match there, one for every way to match."""
        if isinstance(term, EveryUser):
            yield from self.starts(term.element, operator)
            return
        if isinstance(term, Alternatives):
            for _, branch in term.branches:
                if isinstance(branch, Item):
                    yield None, {}
                else:
                    yield from self.starts(branch, operator)
            return
        call = term.base if isinstance(term, Item) else term
        found = self.forms.get(call.op) if isinstance(call, Call) else None
        if isinstance(call, Call) and found is not None and operator in found.composed:
            yield from self._as_read(call, found, operator, is_composed=True)
        is_read = found is not None and operator in found.readers and operator not in found.same
        if (
            isinstance(call, Call)
            and found is not None
            and is_read
            and not found.kept(operator)
            and not found.operands(operator)
        ):
            # Where the arguments are is known to the reader alone.
            yield from self._as_read(call, found, operator, is_composed=False)
            return
        screen = found.screen(operator) if found is not None and is_read else None
        for asked in self._variants(list(self._of(term, (), operator))):
            yield screen, asked

    def _as_read(self, call: Call, forms: Forms, operator: Any, *, is_composed: bool) -> Iterator[_Start]:
        """Yield what must be found among the arguments that are read from a call of another operator."""
        ways = [
            {path: one for path, one in asked.items() if path != (_LITERALS,)}
            for asked in self._of_arguments(call, (), checks=True)
        ]
        condition = _reading(forms.op, operator, is_composed)
        for asked in self._variants(ways):
            yield condition, asked

    def _variants(self, made: list[Asked]) -> Iterator[Asked]:
        """Yield what must be found below a node for a term to match there, one for every way to match."""
        if len(made) > _MOST_VARIANTS:
            made = [_common(made)]
        seen: set[tuple[Any, ...]] = set()
        for asked in made:
            key = tuple(sorted(((path, _key(one)) for path, one in asked.items()), key=str))
            if key not in seen:
                seen.add(key)
                # Which operator the call itself has is known; what it is given as the value of a program is not.
                yield {path: one for path, one in asked.items() if path or not isinstance(one, tuple)}

    def _of(self, term: Any, path: Path, operator: Any = None) -> Iterator[Asked]:
        match term:
            case Item() if not path:
                yield from self._of(term.base, path, operator)
            case Call():
                yield from self._of_call(term, path, operator)
            case Alternatives():
                yield from self._of_alternatives(term, path, operator)
            case ListTerm() if path:
                yield from self._of_list(term, path)
            case OperatorCall() if not path:
                yield from self._of_family(term, operator)
            case Variable():
                yield self._of_variable(term, path)
            case Element() if path and term.name in self.used:
                yield from self._of(self.used[term.name], path)
            case Chain() if path:
                yield from self._of_chain(term, path)
            case Optional() if path:
                yield from self._of(term.inner, path)
                yield from self._of(next(iter(term.inner.arguments.values())), path)
            case _:
                # Literals behind constants, and what may be looked through: nothing is certain.
                yield {}

    def _of_alternatives(self, term: Alternatives, path: Path, operator: Any) -> Iterator[Asked]:
        for _, branch in term.branches:
            if isinstance(branch, Item):
                yield {}
            else:
                yield from self._of(branch, path, operator)

    def _of_variable(self, term: Variable, path: Path) -> Asked:
        asked: Asked = {(*path, *_STEPS.get(type(check), ())): check for check in self.checks.get(term.name, ())}
        return {**asked, **self._name(term.name, path)}

    def _name(self, name: str | None, path: Path) -> Asked:
        """Return that a name is bound here, if a condition on several names asks for it."""
        return {(*path, _NAME): Named(name)} if name in self.named and name is not None else {}

    def _of_chain(self, term: Chain, path: Path) -> Iterator[Asked]:
        """Yield what is asked of the last call of a chain: it is a link, or what the chain begins at."""
        links = frozenset(term.ops)
        for op in term.ops:
            forms = forms_of(op)
            links |= frozenset() if forms is None else forms.operators
        for asked in self._of(term.inner, path):
            begin = asked.get(path)
            yield {path: (frozenset(), links | begin[0] | begin[1])} if isinstance(begin, tuple) else {}

    def _of_call(self, term: Call, path: Path, operator: Any) -> Iterator[Asked]:
        if isinstance(term.op, ControlFlow):
            # Operands stand in any order.
            yield {path: (frozenset({term.op.target}), frozenset())}
            return
        found = self.forms.get(term.op)
        alike = frozenset({term.op}) if found is None else found.same
        unlike = frozenset() if found is None else found.others
        if found is not None and term.op in found.operators and not _asks_only_of_kept(term, found):
            # Read in its second way a call has its arguments elsewhere.
            unlike |= {term.op}
        if operator is not None and operator not in alike:
            if found is not None and operator in found.readers:
                yield from self._of_reading(term, found, operator)
            return
        # What a call is looked through to has arguments of its own.
        if path and may_pass(term.op):
            yield {path: (alike, unlike)}
            return
        is_read_once = found is None or (term.op not in found.operators and found.composed.isdisjoint(found.same))
        for below in self._of_arguments(term, path, checks=is_read_once):
            yield {path: (alike, unlike), **self._name(term.name if is_read_once else None, path), **below}

    def _of_reading(self, term: Call, forms: Forms, operator: Any) -> Iterator[Asked]:
        """Yield what is asked of a call of another operator that is read as one of the pattern."""
        kept, operands = forms.kept(operator), forms.operands(operator)
        steps: dict[Any, Any] = {**{name: name for name in kept}, **operands}
        for below in self._of_arguments(term, (), checks=True):
            yield {(steps[key[0]], *key[1:]): one for key, one in below.items() if key[0] in steps}

    def _of_arguments(self, term: Call, path: Path, *, checks: bool) -> Iterator[Asked]:
        """Yield what is asked of the arguments of a call; without `checks`, only operators."""
        literals = literal_check(term, self.forms.get(term.op)) if checks else None
        own: list[Asked] = [] if literals is None else [{(*path, _LITERALS): literals}]
        for renamed in _orders(term):
            parts = [
                list(self._of(argument, (*path, renamed.get(name, name)))) for name, argument in term.arguments.items()
            ]
            for asked in _combined([own, *parts] if own else parts):
                yield asked if checks else _without_checks(asked)

    def _of_list(self, term: ListTerm, path: Path) -> Iterator[Asked]:
        places = [index for index, item in enumerate(term.items) if isinstance(item, Splat)]
        limit = places[0] if places else len(term.items)
        length: Asked = {path: LengthCheck(len(term.items) - len(places), is_open=bool(places))}
        for asked in _combined([list(self._of(item, (*path, index))) for index, item in enumerate(term.items[:limit])]):
            yield {**length, **asked}

    def _of_family(self, term: OperatorCall, operator: Any) -> Iterator[Asked]:
        """Yield what is asked of the arguments of a call of one operator of a family."""
        schema = getattr(operator, "_schema", None)
        if schema is None:
            yield {}
            return
        named = zip((one.name for one in schema.arguments), term.arguments, strict=False)
        yield from _combined([list(self._of(argument, (name,))) for name, argument in named])


def _asks_only_of_kept(term: Call, forms: Forms) -> bool:
    """Whether all that may be asked of the arguments of a call is asked of those that its second reading keeps."""
    return term.op not in forms.composed and all(
        name in forms.kept(term.op)
        for name, argument in term.arguments.items()
        if isinstance(argument, Call | Alternatives | ListTerm)
    )


def _key(one: Question | Check | Named) -> Any:
    """Return what tells one question from another."""
    return tuple(sorted(map(str, one[0] | one[1]))) if isinstance(one, tuple) else one


def _without_checks(asked: Asked) -> Asked:
    return {path: one for path, one in asked.items() if isinstance(one, tuple)}


def _combined(parts: Sequence[Sequence[Asked]]) -> Iterator[Asked]:
    """Yield what is asked together, for every choice of one way for each part."""
    parts = list(parts)
    while math.prod(max(1, len(part)) for part in parts) > _MOST_VARIANTS:
        # Of the part with the most ways only what they have in common is asked.
        most = max(range(len(parts)), key=lambda at: len(parts[at]))
        parts[most] = [_common(parts[most])]
    for choice in product(*parts):
        merged: Asked = {}
        for one in choice:
            merged.update(one)
        yield merged


def _common(ways: Sequence[Asked]) -> Asked:
    """Return what holds of every one of some ways to match: at places at which all ask for a call, any of the calls."""
    made: Asked = {}
    for path in ways[0]:
        every = [way.get(path) for way in ways]
        questions = [one for one in every if isinstance(one, tuple)]
        if len(questions) < len(every):
            continue
        unlike = frozenset().union(*(one[1] for one in questions))
        made[path] = frozenset().union(*(one[0] for one in questions)) - unlike, unlike
    return made


def _orders(term: Call) -> Iterator[Mapping[str, str]]:
    yield {}
    for left, right, _ in traits_of(term.op).commutes:
        if left in term.arguments and right in term.arguments:
            yield {left: right, right: left}

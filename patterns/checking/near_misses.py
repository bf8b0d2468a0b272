"""Near misses: almost the pattern, and not to be rewritten. Each part of a rule must be shown to be necessary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import torch

from exirkit.patterns.checking.numeric_agreement import disagreement
from exirkit.patterns.checking.other_users import Demand, against_demand, demands_of, with_another_user
from exirkit.patterns.checking.pattern_execution import raw_name, shapes_of, terms_on_way
from exirkit.patterns.checking.pattern_programs import (
    PatternInstance,
    for_program,
    instance_of,
    second_name,
)
from exirkit.patterns.checking.trials.attributes import WITHOUT
from exirkit.patterns.checking.trials.bodies import Reading, readings_of
from exirkit.patterns.checking.trials.chains import broken_chains, links_of
from exirkit.patterns.checking.trials.loops import fewer_turns, loops_of
from exirkit.patterns.checking.trials.rule_trials import RAISED, RuleTrials, Trial, shown
from exirkit.patterns.checking.trials.tables import Row, exchanged_rows, rows_of
from exirkit.patterns.checking.trials.value_roots import without_uses
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.attributes import attributed_terms
from exirkit.patterns.syntax.comprehensions import comprehensions
from exirkit.patterns.syntax.loops import Loop
from exirkit.patterns.syntax.terms import Attributed, Call, Chain, Variable, walk
from exirkit.patterns.syntax.terms import Literal as LiteralTerm
from exirkit.patterns.types.bodies import DrawnBody
from exirkit.patterns.types.tensors import TensorVariable

Kind = Literal["guard", "literal", "default", "repeated", "loop", "row", "attribute", "uses", "chain", "users", "body"]

_USERS = re.compile(r"\s*users\(\s*(\w+)\s*\)\s*==\s*1\s*")
# Words that ask the program around a match, or the target; no values of a match decide what they say.
_OF_THE_GRAPH = re.compile(
    r"\b(users|is_output|is_input|is_stored|in_module|module_type|from_rule|tag|consumed_by|produced_by|option|op_legal|shared"
    r"|mutable|param|buffer|const|only_index|pure|same_graph|static|distance|no_mutation_between)\s*\(|\b(target|op)\s*[.(]"
)


@dataclass(frozen=True)
class Part:
    """A part of a rule that has to show what it is for.

    That is a guard, a literal, a default that is left out, a repeated variable, a loop, a row of a table, `uses`, the
    operators of a chain, or what a pattern says about who uses a value.

    Attributes:
        kind: Which of them.
        text: How it is named in reports.
        index: Number of the guard.
        term: The literal, written or a default.
        others: What is tried instead of the literal.
        users_of: Name of the value of which a guard demands that nothing else uses it.
        is_structural: It asks for something that no values can show.
        loop: The loop of a replacement.
        row: The row of a table.
        chain: The chain of which a link is another call.
        demand: What the pattern says about who uses a value.
        reading: What a body may not read.
    """

    kind: Kind
    text: str
    index: int = 0
    term: LiteralTerm | Attributed | None = None
    others: tuple[Any, ...] = ()
    users_of: str | None = None
    is_structural: bool = False
    loop: Loop | None = None
    row: Row | None = None
    chain: Chain | None = None
    demand: Demand | None = None
    reading: Reading | None = None


def parts_of(rule: CompiledRule) -> list[Part]:
    """Return the parts of a rule, always in the same order."""
    parts = [_guard(index, guard.text) for index, guard in enumerate(rule.guards)]
    parts += _literals(rule)
    parts += [Part("repeated", name) for name in repeated_variables(rule)]
    parts += _attributes(rule)
    parts += [Part("loop", text, loop=loop) for text, loop in loops_of(rule)]
    parts += [Part("uses", "uses")] if rule.rule.uses is not None else []
    parts += [Part("row", text, row=row) for text, row in rows_of(rule)]
    parts += [Part("chain", text, chain=chain) for text, chain in links_of(rule)]
    parts += [Part("users", one.text, demand=one) for one in demands_of(rule)]
    parts += [Part("body", one[0], reading=one) for one in readings_of(rule)]
    return parts


def _attributes(rule: CompiledRule) -> Iterator[Part]:
    """Yield the attributes that the pattern demands: without one, the call has another value."""
    for term in attributed_terms(rule.pattern.terms):
        if not term.is_optional and term.attribute.meaning is not None:
            name = term.name or getattr(term.inner, "name", None) or name_of(getattr(term.inner, "op", ""))
            yield Part("attribute", f"{name} @ {term.attribute.name}", 0, term, (WITHOUT,))


def _guard(index: int, text: str) -> Part:
    users = _USERS.fullmatch(text)
    if users is not None:
        return Part("guard", text, index, users_of=users.group(1))
    return Part("guard", text, index, is_structural=_OF_THE_GRAPH.search(text) is not None)


def _literals(rule: CompiledRule) -> Iterator[Part]:
    seen: set[int] = set()
    for root in rule.pattern.roots:
        for term in walk(root):
            if not isinstance(term, Call):
                continue
            types = {one.name: str(one.real_type) for one in term.op._schema.arguments}
            for name, argument in term.arguments.items():
                if isinstance(argument, LiteralTerm) and id(argument) not in seen:
                    seen.add(id(argument))
                    others = others_of(argument.value, types.get(name, ""))
                    text = f"{name_of(term.op)}: {name} = {argument.value!r}"
                    yield Part("default" if argument.is_default else "literal", text, 0, argument, tuple(others))


_IN_PLACE_OF_NOTHING: dict[str, list[Any]] = {
    "Optional[ScalarType]": [torch.float64, torch.int32],
    "Optional[number]": [0.5, -1],
    "Optional[float]": [0.5, 2.0],
    "Optional[int]": [1, 2],
    "Optional[bool]": [True],
    "Optional[List[int]]": [[0], [2, 2]],
    "Optional[List[float]]": [[1.0, 1.0]],
    "Optional[MemoryFormat]": [torch.channels_last, torch.contiguous_format],
}


def others_of(value: Any, type_name: str = "") -> list[Any]:
    """Return values that a literal could be taken for.

    Args:
        value: The literal.
        type_name: Type of the argument in the schema, for none.
    """
    if value is None:
        return _IN_PLACE_OF_NOTHING.get(type_name, [])
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


def others_than(value: Any) -> list[Any]:
    """Return values of the same type as one that a variable has, and different."""
    if isinstance(value, DrawnBody):
        return [value.other()]
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bool:
            return [~value]
        return [value.flip(0).add(1) if value.dim() else value + 1]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1]
    if isinstance(value, list) and value and all(type(one) is int for one in value):
        changed = [value[::-1], [value[0] + 1, *value[1:]], [value[0] - 1, *value[1:]]]
        return [one for one in changed if one != value]
    return []


def variants(part: Part, instance: PatternInstance) -> Iterator[tuple[Any, PatternInstance]]:
    """Yield instances in which a literal, or a later occurrence of a variable, is another value, with that value."""
    if part.reading is not None:
        _, applied, hidden = part.reading
        yield "it reads them", replace(instance, changed={id(applied): hidden})
    elif part.term is not None:
        for other in part.others:
            yield other, replace(instance, changed={id(part.term): other})
    else:
        for other in others_than(instance.names.get(part.text)):
            yield other, _split(instance, part.text, other)


def _split(instance: PatternInstance, name: str, other: Any) -> PatternInstance:
    if not isinstance(other, torch.Tensor):
        return replace(instance, split={name: other})
    second = second_name(name)
    kinds = {**instance.kinds, second: instance.kinds.get(name, "input")}
    return replace(instance, split={name: other}, names={**instance.names, second: other}, kinds=kinds)


def repeated_variables(rule: CompiledRule) -> Sequence[str]:
    """Return the variables that some way through the pattern meets more than once."""
    most: Counter[str] = Counter()
    for shape in shapes_of(rule.pattern):
        most |= Counter(one.name for one, _ in terms_on_way(rule.pattern, shape) if isinstance(one, Variable))
    for each in comprehensions(rule.pattern.terms):
        # What all elements have in common is met once in each of them.
        most.update(one.name for one in walk(each.element) if isinstance(one, Variable))
    return [name for name, count in most.items() if count > 1]


# Near misses: almost the pattern, and not to be rewritten. Each part of a rule has to show what it is for


_TRIALS = 60
_GUARD_TRIALS = 400
# Guards that are not about results are tried only to see whether they are rightly called so.
_TRIALS_OF_LABELS = 20
_PROGRAMS = 6

Outcome = Literal["witness", "none", "not_run", "no_other", "structural"]
"""What became of a part: values show what it is for; they show nothing; nothing else can be run instead; there is
nothing else; or it speaks of the graph around the match."""


@dataclass(frozen=True)
class NearMiss:
    """One part of a rule, and what happens without it.

    Attributes:
        what: The kind of the part, such as `guard` or `chain`.
        text: The part.
        witness: Values for which the rule would be wrong without it, and how; None if none was found.
        problem: What differs for them.
        tried: How many values were tried.
        is_structural: It speaks of the graph around the match, which no values can show.
        outcome: What became of it.
        number: Number of the trial that is the witness.
        instead: What replaced the part.
    """

    what: str
    text: str
    witness: dict[str, str] | None
    problem: str | None
    tried: int
    is_structural: bool = False
    outcome: Outcome = "none"
    number: int | None = None
    instead: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One trial without a part.

    Attributes:
        names: Values.
        instead: What replaced the part.
        problem: How the results differ; None if they do not.
    """

    names: Mapping[str, Any]
    instead: str | None
    problem: str | None


class NearMisses:
    """Looks for witnesses.

    Args:
        trials: Of the rule.
    """

    def __init__(self, trials: RuleTrials) -> None:
        self.trials = trials
        self.rule: CompiledRule = trials.rule
        self.parts = parts_of(trials.rule)

    def all(self) -> Iterator[NearMiss]:
        """Yield what became of every part."""
        for part in self.parts:
            yield self.search(part)

    def search(self, part: Part) -> NearMiss:
        """Look for a witness."""
        if part.is_structural:
            return NearMiss("guard", part.text, None, None, 0, is_structural=True, outcome="structural")
        if part.term is not None and not part.others:
            return NearMiss(part.kind, part.text, None, None, 0, outcome="no_other")
        most, numbers = self._limits(part)
        tried = 0
        for number in range(1, numbers):
            for attempt in self.attempts(part, number):
                tried += 1
                if attempt.problem is not None:
                    witness = shown(self.rule, attempt.names)
                    return NearMiss(
                        part.kind, part.text, witness, attempt.problem, tried, outcome="witness", number=number,
                        instead=attempt.instead, is_structural=part.users_of is not None,
                    )  # fmt: skip
            if tried >= most:
                break
        outcome: Outcome = "none" if tried or part.kind == "guard" else "not_run"
        return NearMiss(part.kind, part.text, None, None, tried, part.users_of is not None, outcome)

    def _limits(self, part: Part) -> tuple[int, int]:
        """Return how many attempts to make, and how many trials to make them of."""
        if part.users_of is not None or part.demand is not None:
            return _PROGRAMS, _PROGRAMS * 10
        if part.row is not None:
            return _TRIALS, _GUARD_TRIALS
        if part.kind != "guard":
            return _TRIALS * 3, _TRIALS
        return (_TRIALS if self.rule.guards[part.index].kind == "sound" else _TRIALS_OF_LABELS), _GUARD_TRIALS

    def attempts(self, part: Part, number: int) -> Iterator[Attempt]:
        """Yield what happens without a part in one trial; nothing if it cannot be run so."""
        if part.users_of is not None:
            return self._with_another_user(part, number, part.users_of)
        if part.kind == "guard":
            return self._without_guard(part, number)
        if part.loop is not None:
            return self._with_fewer_turns(part.loop, number)
        if part.kind == "uses":
            return self._without_uses(number)
        if part.row is not None:
            return self._with_exchanged_row(part.row, number)
        if part.chain is not None:
            return self._with_another_link(part.chain, number)
        if part.demand is not None:
            return self._with_another_use(part.demand, number)
        return self._changed_pattern(part, number)

    def _with_another_user(self, part: Part, number: int, name: str) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number, profile="normal")
        if trial is None:
            return
        try:
            problem = with_another_user(self.trials, trial, part.index, name)
        except Exception:  # Whatever torch.export raises: without a program there is nothing to examine.
            return
        yield Attempt(trial.names, None, problem)

    def _without_guard(self, part: Part, number: int) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number, unless=part.index)
        if trial is not None:
            yield Attempt(trial.names, None, self.trials.judge(trial))

    def _with_fewer_turns(self, loop: Loop, number: int) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number)
        if trial is not None:
            for instead, names in fewer_turns(self.trials, trial, loop):
                yield Attempt(trial.names, instead, self._problem_with(trial, names))

    def _without_uses(self, number: int) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number)
        if trial is not None:
            for instead, names in without_uses(trial):
                yield Attempt(trial.names, instead, self._problem_with(trial, names))

    def _with_exchanged_row(self, row: Row, number: int) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number)
        if trial is not None:
            for instead, names in exchanged_rows(self.trials, trial, row):
                problem = "no other row has another value" if names is None else self._problem_with(trial, names)
                yield Attempt(trial.names, instead, problem)

    def _with_another_link(self, chain: Chain, number: int) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number)
        for instead, changed in () if trial is None else broken_chains(self.trials, trial, chain):
            yield Attempt(changed.names, instead, self._against_replacement(changed, list(changed.expected)))

    def _with_another_use(self, demand: Demand, number: int) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number, profile="normal")
        try:
            for instead, problem in () if trial is None else against_demand(self.trials, trial, demand):
                yield Attempt({} if trial is None else trial.names, instead, problem)
        except Exception:  # Whatever torch.export raises: without a program there is nothing to examine.
            return

    def _problem_with(self, trial: Trial, names: Mapping[str, Any]) -> str | None:
        """Return how the replacement over other names differs from the pattern."""
        return self._against_replacement(replace(trial, names=dict(names)), list(trial.expected))

    def _changed_pattern(self, part: Part, number: int) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number)
        if trial is None:
            return
        for other, instance in variants(part, instance_of(self.trials, trial)):
            try:
                with torch.no_grad():
                    result = instance.run(TensorBuilder(), {})
            except RAISED:
                continue
            if result is not None:
                without = replace(trial, names=_without_attribute(part.term, trial.names))
                yield Attempt(without.names, _text(other), self._against_replacement(without, result))

    def _against_replacement(self, trial: Trial, result: list[Any]) -> str | None:
        try:
            found = self.trials.replaced(trial.names)
        except Exception as error:  # Whatever it raises, it is not what the pattern gives.
            return f"{type(error).__name__}"
        return disagreement(result, found, self.rule.rule.equiv)


def _without_attribute(term: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a trial in which a variable that has an attribute is without what that means."""
    found = dict(names)
    if isinstance(term, Attributed) and isinstance(term.inner, Variable) and raw_name(term.inner.name) in names:
        found[term.inner.name] = names[raw_name(term.inner.name)]
    return found


def _text(other: Any) -> str:
    return f"{other.dtype} {list(other.shape)}" if isinstance(other, torch.Tensor) else repr(other)


# Instances for programs that others generate: the pattern itself, and without one of its parts


INSTANCE_ERRORS = RAISED
"""What operators raise for arguments that they do not take."""

_MOST_KEPT = 512
_kept: dict[tuple[int, int], RuleTrials] = {}


def _trials(rule: CompiledRule, seed: int) -> RuleTrials:
    """Return the trials of a rule; what they found out about its types and guards is kept for the next instance."""
    found = _kept.get((id(rule), seed))
    if found is None or found.rule is not rule:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        found = _kept[(id(rule), seed)] = RuleTrials(rule, seed=seed)
    return found


def pattern_instance(rule: CompiledRule, number: int, *, seed: int = 0) -> PatternInstance | None:
    """Return the n-th instance of a rule, for which all its guards hold, or None if that number gives none."""
    trials = _trials(rule, seed)
    trial, _ = trials.trial(number, profile="normal")
    return None if trial is None else for_program(instance_of(trials, trial))


def near_instances(
    rule: CompiledRule, number: int, *, seed: int = 0, first: int = 0
) -> Iterator[tuple[str, PatternInstance]]:
    """Yield instances that lack one part of a rule each, and that part: a guard, a literal, a repeated variable.

    Args:
        rule: The rule.
        number: Of the values.
        seed: Of the values.
        first: With which of the parts to begin.
    """
    trials = _trials(rule, seed)
    whole, _ = trials.trial(number, profile="normal")
    parts = parts_of(rule)
    first = first % len(parts) if parts else 0
    for part in (*parts[first:], *parts[:first]):
        if part.kind == "guard":
            trial = None if part.is_structural else trials.trial(number, unless=part.index, profile="normal")[0]
            if trial is not None:
                yield part.text, for_program(instance_of(trials, trial))
        elif whole is not None and part.kind not in ("uses", "chain", "users"):
            for _, changed in islice(variants(part, instance_of(trials, whole)), 1):
                yield part.text, for_program(changed)


def takes_special_values(rule: CompiledRule) -> frozenset[str]:
    """Return the variables that may be infinite or NaN, as far as the contract of a rule is about such values."""
    if rule.rule.equiv.lhs_nan is not None or _trials(rule, 0).profile != "special":
        return frozenset()
    return frozenset(
        name
        for name, variable in rule.variables.items()
        if isinstance(variable, TensorVariable) and variable.domain is None and not variable.qualifiers
    )

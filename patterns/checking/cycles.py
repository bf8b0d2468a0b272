"""Rules that undo each other: cycles in which no measure decreases, each with a program that shows it.

Which rule can follow which is found from the calls that their replacements make, generously. Rules that make some count
of operators smaller, while no other rule of the cycle makes it larger, cannot be applied for ever and are taken out
until nothing changes. What is left is tried: the engine rewrites programs made from these rules. Only what really goes
round is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from exirkit.ir import ContractError, DiagnosticError, GraphEditor, copy_program
from exirkit.patterns.engine.report import Application
from exirkit.patterns.engine.rewriting import RewriteOptions, RuleEngine
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.syntax.terms import Call, Item, OperatorCall, walk

from .abstract_instances import Instance, Leaf, MadeCall, MadeItem, calls_of
from .abstract_overlap import guards_may_hold, may_match
from .pattern_programs import program_of
from .trials import RAISED, RuleTrials

_MOST_PROGRAMS = 4
_BOUND = 40
_REPEATS = 6
_TAIL = 40


@dataclass(frozen=True)
class Member:
    """A rule with what is known of its rewrites."""

    rule: CompiledRule
    trials: RuleTrials
    instances: tuple[Instance, ...]


@dataclass(frozen=True)
class Cycle:
    """Rules of which each can follow the one before it, for ever.

    Attributes:
        rules: In the order in which they are applied.
        values: Values of a program on which that happens; none if no program was found.
    """

    rules: tuple[CompiledRule, ...]
    values: Mapping[str, Any] | None


def cycles_of(members: Sequence[Member]) -> list[Cycle]:
    """Return the cycles in a set of rules, those without a program that shows them last."""
    followers = {index: _followers(index, members) for index in range(len(members))}
    shown: list[Cycle] = []
    open_: list[Cycle] = []
    for group in _endless(range(len(members)), followers, members):
        found = _tried([members[index] for index in group])
        shown += found
        if not found:
            open_.append(Cycle(tuple(members[index].rule for index in group), None))
    return shown + open_


def _followers(index: int, members: Sequence[Member]) -> frozenset[int]:
    first = members[index]
    return frozenset(
        other
        for other, second in enumerate(members)
        if any(_enables(instance, second.rule) for instance in first.instances)
    )


def _enables(instance: Instance, rule: CompiledRule) -> bool:
    """Whether a rule may match something that a rewrite made, as a whole or as a part of a larger match."""
    variables = rule.variables
    roots = [root.base if isinstance(root, MadeItem) else root for root in instance.after]
    inner = [one for root in rule.pattern.roots for one in walk(root) if isinstance(one, Call | OperatorCall)]
    tops = {id(term) for term in _tops(rule)}
    if any(isinstance(root, Leaf) for root in instance.after) and len(inner) > 1:
        # What used the root now uses something else, which may complete a match.
        return True
    made = [call for root in instance.after for call in calls_of(root)]
    for term in inner:
        places = made if id(term) in tops else [root for root in roots if isinstance(root, MadeCall)]
        is_whole = term in (rule.pattern.roots[0], getattr(rule.pattern.roots[0], "base", None))
        for call in places:
            if may_match(term, call, variables) and (not is_whole or guards_may_hold(rule, _as_root(rule, call))):
                return True
    return False


def _as_root(rule: CompiledRule, call: MadeCall) -> Any:
    root = rule.pattern.roots[0]
    return MadeItem(call, root.index) if isinstance(root, Item) else call


def _tops(rule: CompiledRule) -> Iterable[Any]:
    for root in rule.pattern.roots:
        for term in walk(root):
            if isinstance(term, Call | OperatorCall):
                yield term
                break


# What cannot be applied for ever


def _endless(
    group: Iterable[int], followers: Mapping[int, frozenset[int]], members: Sequence[Member]
) -> list[tuple[int, ...]]:
    """Return the groups of rules that lead to each other and for which no decreasing count was found."""
    left: list[tuple[int, ...]] = []
    pending = [tuple(group)]
    while pending:
        for component in _components(pending.pop(), followers):
            answered = {one for one in component if _is_bounded(members[one].rule)}
            stopping = answered or _decreasing([members[index] for index in component], component)
            if stopping:
                pending.append(tuple(one for one in component if one not in stopping))
            else:
                left.append(component)
    return sorted(left)


def _is_bounded(rule: CompiledRule) -> bool:
    return rule.rule.measure == "once" or getattr(rule.rule.measure, "bound", None) is not None


def _components(group: Sequence[int], followers: Mapping[int, frozenset[int]]) -> list[tuple[int, ...]]:
    """Return the sets of rules that lead to each other, without rules that do not even lead to themselves."""
    inside = set(group)

    def reached(start: int) -> set[int]:
        seen: set[int] = set()
        pending = [one for one in followers[start] if one in inside]
        while pending:
            one = pending.pop()
            if one not in seen:
                seen.add(one)
                pending += [each for each in followers[one] if each in inside]
        return seen

    reach = {one: reached(one) for one in group}
    found: dict[tuple[int, ...], None] = {}
    for one in group:
        if one in reach[one]:
            found[tuple(sorted(other for other in reach[one] if one in reach[other]))] = None
    return list(found)


def _decreasing(members: Sequence[Member], indices: Sequence[int]) -> set[int]:
    """Return rules that make a count smaller which no rule of the group makes larger."""
    operators = sorted({name for one in members for inst in one.instances for name in (*inst.removed, *inst.made)})
    counts: list[frozenset[str]] = [frozenset(operators), *(frozenset((name,)) for name in operators)]
    counts += [frozenset(pair) for pair in combinations(operators, 2)] if len(operators) <= 40 else []
    for counted in counts:
        changes = [[_change(inst, counted) for inst in one.instances] for one in members]
        if any(change > 0 for each in changes for change in each):
            continue
        stopping = {index for index, each in zip(indices, changes, strict=True) if all(one < 0 for one in each)}
        if stopping:
            return stopping
    return set()


def _change(instance: Instance, counted: frozenset[str]) -> int:
    return sum(instance.made[name] - instance.removed[name] for name in counted)


# Programs that show it


def _tried(members: Sequence[Member]) -> list[Cycle]:
    """Let the engine rewrite programs made from the rules; return every cycle that it really goes."""
    rules = [one.rule for one in members]
    found: list[Cycle] = []
    for member in members:
        if member.rule not in rules:
            continue
        for instance in member.instances[:_MOST_PROGRAMS]:
            names = endless_rules(rules, member.trials, instance)
            if names:
                cycle = tuple(next(rule for rule in rules if rule.id == name) for name in names)
                starts_here = cycle[0] is member.rule
                found.append(Cycle(cycle, instance.trial.names if starts_here else {}))
                # Others that go round without these are found with the rules that remain.
                rules = [rule for rule in rules if rule not in cycle]
                break
    return found


def endless_rules(rules: Sequence[CompiledRule], trials: RuleTrials, instance: Instance) -> tuple[str, ...]:
    """Return the ids of the rules that rewrite a program made from one of them for ever, or nothing."""
    applied: list[str] = []

    def note(one: Application) -> None:
        applied.append(one.rule)

    try:
        program, _ = program_of(trials, instance.trial)
        RuleEngine(rules).run(GraphEditor(copy_program(program)), RewriteOptions(bound=_BOUND, on_application=note))
    except ContractError:
        return tuple(_from_least(_period(applied)))
    except (DiagnosticError, *RAISED):
        return ()
    return ()


def _period(rules: Sequence[str]) -> Sequence[str]:
    """Return what the last applications repeat, several times over; without such a piece all that occur in them."""
    for length in range(1, len(rules) // _REPEATS + 1):
        tail = rules[-_REPEATS * length :]
        if all(one == tail[index % length] for index, one in enumerate(tail)):
            return tail[:length]
    return list(dict.fromkeys(rules[-_TAIL:]))


def _from_least(rules: Sequence[str]) -> Sequence[str]:
    """Return a cycle from the rule on whose id comes first, so that it reads alike wherever it was entered."""
    at = min(range(len(rules)), key=rules.__getitem__, default=0)
    return [*rules[at:], *rules[:at]]

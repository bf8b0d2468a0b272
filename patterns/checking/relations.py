"""Relations between rules: one that never fires, choices by order, endless cycles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import networkx as nx
from torch.fx import Node

from exirkit.ir import ContractError, Diagnostic, DiagnosticError, GraphEditor, copy_program
from exirkit.patterns.books.loading import LoadedBook
from exirkit.patterns.books.model import BROKEN, Bound
from exirkit.patterns.checking.abstract_overlap import (
    Instance,
    Leaf,
    MadeCall,
    MadeItem,
    calls_of,
    guards_may_hold,
    instances_of,
    may_match,
)
from exirkit.patterns.checking.pattern_programs import program_of
from exirkit.patterns.checking.trials.rule_trials import RAISED, RuleTrials, shown
from exirkit.patterns.engine.application import RuleApplication
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.engine.report import Application
from exirkit.patterns.engine.rewriting import RewriteOptions, RuleEngine
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.table import traits_of
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Anything,
    Call,
    Item,
    Literal,
    OperatorCall,
    Optional,
    Splat,
    Through,
    Variable,
    walk,
)
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.types.quantized import ParameterTensor
from exirkit.patterns.types.scalars import OperatorVariable
from exirkit.patterns.types.sizes import AnyDim, SequenceDim, SizeDim
from exirkit.patterns.types.tensors import TensorVariable
from exirkit.patterns.types.variable import admit


def covers(one: CompiledRule, other: CompiledRule) -> bool:
    """Whether a rule without conditions matches at every root at which another one does.

    Types of variables that stand for calls of the other pattern are not compared; trials have to show that.
    """
    is_plain = not one.guards and not one.rule.unless and one.cases[-1].when is None and not other.rule.keep
    is_single = len(one.pattern.roots) == len(other.pattern.roots) == 1
    is_alike = one.pattern.is_variadic == other.pattern.is_variadic and one.rule.dialect == other.rule.dialect
    if not (is_plain and is_single and is_alike):
        return False
    return _Cover(one, other).covers(one.pattern.roots[0], other.pattern.roots[0])


@dataclass
class _Cover:
    one: CompiledRule
    other: CompiledRule
    bound: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)

    def covers(self, general: Any, special: Any) -> bool:
        """Whether the first term matches whatever the second one matches."""
        if isinstance(special, Alternatives) and not isinstance(general, Variable | Anything):
            return all(self._tried(general, branch) for _, branch in special.branches)
        if isinstance(general, Alternatives):
            return any(self._tried(branch, special) for _, branch in general.branches)
        if isinstance(general, Optional):
            passing = next(iter(general.inner.arguments.values()))
            return self._tried(general.inner, special) or self._tried(passing, special)
        if isinstance(general, Through):
            return self._tried(general.inner, special)
        return isinstance(general, Anything) or self._of_kind(general, special)

    def _of_kind(self, general: Any, special: Any) -> bool:
        match general:
            case Variable():
                return self._variable(general, special)
            case Literal():
                return isinstance(special, Literal) and _same(general.value, special.value)
            case Call():
                return isinstance(special, Call) and special.op is general.op and self._arguments(general, special)
            case Item():
                is_item = isinstance(special, Item) and special.index == general.index
                return is_item and self.covers(general.base, special.base)
            case ListTerm():
                return self._sequence(general, special)
            case OperatorCall():
                return self._operator_call(general, special)
        return False

    def _tried(self, general: Any, special: Any) -> bool:
        bound, sizes = dict(self.bound), dict(self.sizes)
        if self.covers(general, special):
            return True
        self.bound, self.sizes = bound, sizes
        return False

    def _arguments(self, general: Call, special: Call) -> bool:
        if general.is_open:
            return all(
                name in special.arguments and self.covers(argument, special.arguments[name])
                for name, argument in general.arguments.items()
            )
        if special.is_open or general.arguments.keys() != special.arguments.keys():
            return False
        orders: list[dict[str, str]] = [{}]
        orders += [{a: b, b: a} for a, b, condition in traits_of(general.op).commutes if condition is None]
        for order in orders:
            bound, sizes = dict(self.bound), dict(self.sizes)
            pairs = ((term, special.arguments[order.get(name, name)]) for name, term in general.arguments.items())
            if all(self.covers(left, right) for left, right in pairs):
                return True
            self.bound, self.sizes = bound, sizes
        return False

    def _sequence(self, general: ListTerm, special: Any) -> bool:
        if not isinstance(special, ListTerm) or any(isinstance(item, Splat) for item in special.items):
            return False
        if len(general.items) != len(special.items) or any(isinstance(item, Splat) for item in general.items):
            return False
        return all(self.covers(left, right) for left, right in zip(general.items, special.items, strict=True))

    def _operator_call(self, general: OperatorCall, special: Any) -> bool:
        family = self.one.variables[general.variable]
        assert isinstance(family, OperatorVariable)
        if general.rest is not None or general.variable in self.bound:
            return False
        if isinstance(special, OperatorCall) and special.rest is None:
            theirs = self.other.variables[special.variable]
            is_inside = all(family.admits_operator(op) for op in theirs.operators())
            arguments = special.arguments
        elif isinstance(special, Call):
            is_inside = family.admits_operator(special.op)
            values = tuple(special.arguments.values())
            is_inside &= all(isinstance(one, Literal) and one.is_default for one in values[len(general.arguments) :])
            arguments = values[: len(general.arguments)]
        else:
            return False
        self.bound[general.variable] = special
        is_long = len(arguments) == len(general.arguments)
        return is_inside and is_long and all(map(self.covers, general.arguments, arguments))

    def _variable(self, general: Variable, special: Any) -> bool:
        if general.name in self.bound:
            return bool(self.bound[general.name] == special)
        self.bound[general.name] = special
        mine = self.one.variables[general.name]
        if isinstance(special, Variable):
            return self._type_covers(mine, self.other.variables[special.name])
        if isinstance(special, Literal):
            return not mine.depends_on and any(True for _ in admit(mine, special.value, {}))
        if isinstance(mine, TensorVariable):
            is_result = isinstance(special, Call | Item | OperatorCall | Optional | Through | Alternatives)
            return is_result and not mine.qualifiers and mine.domain is None and self._is_free(mine)
        return False

    def _type_covers(self, mine: Any, theirs: Any) -> bool:
        if type(mine) is not type(theirs) or (theirs.allows_none and not mine.allows_none):
            return False
        if not isinstance(mine, TensorVariable) or isinstance(mine, ParameterTensor):
            plain = str(mine).removesuffix(" | none")
            return not mine.depends_on and (plain == str(theirs).removesuffix(" | none") or plain in _WHOLE)
        if mine.dtypes.same_as is not None or theirs.dtypes.same_as is not None:
            return False
        is_wide = theirs.dtypes.member_set <= mine.dtypes.member_set
        is_unqualified = set(mine.qualifiers) <= set(theirs.qualifiers)
        has_values = mine.domain is None or mine.domain == theirs.domain
        return is_wide and is_unqualified and has_values and (self._is_free(mine) or self._dims_cover(mine, theirs))

    def _is_free(self, mine: TensorVariable) -> bool:
        """Whether a type takes every shape: its one sequence of sizes is named nowhere else."""
        if mine.dims is None:
            return True
        (dim, *others) = mine.dims or (None,)
        if others or not isinstance(dim, SequenceDim):
            return False
        mentioned = [one for one in self.one.variables.values() if set(mine.binds) & {*one.binds, *one.depends_on}]
        return len(mentioned) == 1

    def _dims_cover(self, mine: TensorVariable, theirs: TensorVariable) -> bool:
        """Whether dims agree one by one, and names of sizes stand for names of sizes throughout."""
        if theirs.dims is None or len(mine.dims or ()) != len(theirs.dims):
            return False
        for left, right in zip(mine.dims or (), theirs.dims, strict=True):
            if isinstance(left, AnyDim) and isinstance(right, AnyDim | SizeDim):
                continue
            if type(left) is not type(right) or not isinstance(left, SizeDim | SequenceDim):
                return False
            if self.sizes.setdefault(str(left), str(right)) != str(right):
                return False
            if str(left).isdigit() and str(left) != str(right):
                return False
        return True


_WHOLE = {"int", "float", "scalar", "bool", "str", "shape", "dtype", "ints"}
"""Types that take every value of their kind."""


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


# Rules that undo each other: cycles in which no measure decreases, each with a program that shows it


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
    graph = nx.DiGraph((one, other) for one in group for other in followers[one] if other in group)
    found = (tuple(sorted(each)) for each in nx.strongly_connected_components(graph))
    return [each for each in found if len(each) > 1 or graph.has_edge(*each, *each)]


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


# What the rules of a set do to each other: one that never comes to its turn, choices by order, cycles without end


_MOST_TRIED = 4
_NOTES = ("EK244", "EK246")
"""Codes of what is worth knowing, and not wrong."""


@dataclass
class Relations:
    """What was found.

    Attributes:
        found: Rules in the way of each other: EK243, one never fires; EK245, a cycle; EK248, a measure that does not
            decrease.
        notes: Worth knowing: EK244, the order of two rules matters; EK246, no measure was found.
    """

    found: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)


def relations_of_book(book: LoadedBook) -> Relations:
    """Return what the rules of a book do to each other; if it names sets, those of each set."""
    if book.book is None or not book.book.sets:
        return relations_of(book.rules)
    merged = Relations()
    for chosen in book.book.sets.values():
        rules = [rule for rule in book.rules if _is_in(rule, chosen.rules) and not _is_in(rule, chosen.exclude)]
        one = relations_of(rules)
        merged.found += [each for each in one.found if each not in merged.found]
        merged.notes += [each for each in one.notes if each not in merged.notes]
    return merged


def relations_of(rules: Sequence[CompiledRule], *, seed: int = 0) -> Relations:
    """Return what rules that are applied together do to each other.

    Args:
        rules: Compiled rules, of one book or of several.
        seed: Of the samples that show it.
    """
    ordered = RuleEngine(rules).rules
    members = [Member(rule, trials := RuleTrials(rule, seed=seed), instances_of(trials)) for rule in ordered]
    relations = Relations()
    for first, second in _meeting(members):
        if covers(first.rule, second.rule) and _never_fires(first, second):
            relations.found.append(_shadowed(first.rule, second.rule))
        elif first.rule.rule.priority == second.rule.rule.priority and _meet(first, second):
            relations.notes.append(_order_matters(first.rule, second.rule))
    relations.found += [_unkept(member.rule, problem) for member in members if (problem := _broken_word(member))]
    for cycle in cycles_of(members):
        if cycle.values is not None:
            relations.found.append(_endless_diagnostic(cycle))
        else:
            relations.notes.append(_unmeasured(cycle))
    return relations


def relations_between(books: Sequence[LoadedBook]) -> Relations:
    """Return what rules of different books do to each other when all of them are applied together.

    Args:
        books: Loaded books. What the rules of one book do to each other is left out.
    """
    together = relations_of([rule for book in books for rule in book.rules])
    alone = [relations_of(book.rules) for book in books]
    known = {(one.code, one.message) for each in alone for one in (*each.found, *each.notes)}
    return Relations(
        [one for one in together.found if (one.code, one.message) not in known],
        [one for one in together.notes if (one.code, one.message) not in known],
    )


def _is_in(rule: CompiledRule, patterns: Sequence[str]) -> bool:
    return rule.is_named_in(patterns) or any(one.endswith("*") and rule.id.startswith(one[:-1]) for one in patterns)


def _meeting(members: Sequence[Member]) -> Iterator[tuple[Member, Member]]:
    """Yield pairs of rules that might match at one call, in the order in which they are asked."""
    for index, first in enumerate(members):
        for second in members[index + 1 :]:
            if first.rule.anchors and second.rule.anchors and not first.rule.anchors & second.rule.anchors:
                continue
            if _may_meet(first.rule, second) or _may_meet(second.rule, first):
                yield first, second


def _may_meet(rule: CompiledRule, member: Member) -> bool:
    root = rule.pattern.roots[0]
    return any(may_match(root, instance.before[0], rule.variables) for instance in member.instances if instance.before)


def _never_fires(first: Member, second: Member) -> bool:
    """Whether the first rule is applied, and the second one never, to programs made from the second one."""
    tried = 0
    for instance in second.instances[:_MOST_TRIED]:
        try:
            program, _ = program_of(second.trials, instance.trial)
            options = RewriteOptions(limit=1)
            report = RuleEngine([first.rule, second.rule]).run(GraphEditor(copy_program(program)), options)
        except (DiagnosticError, *RAISED):
            return False
        if report.statistics[first.rule.id].applied != 1 or report.statistics[second.rule.id].matched:
            return False
        tried += 1
    return tried > 0


def _meet(first: Member, second: Member) -> bool:
    """Whether both rules match at one call of a program made from one of them, and give something else."""
    if _says(first.rule) == _says(second.rule):
        return False
    return any(_both_match(one, first.rule, second.rule) for member in (second, first) for one in _programs(member))


def _says(rule: CompiledRule) -> tuple[object, ...]:
    return tuple((case.when, case.let, case.replace) for case in rule.rule.cases)


def _programs(member: Member) -> Iterator[GraphEditor]:
    for instance in member.instances[:2]:
        try:
            yield GraphEditor(copy_program(program_of(member.trials, instance.trial)[0]))
        except (DiagnosticError, *RAISED):
            continue


def _both_match(editor: GraphEditor, first: CompiledRule, second: CompiledRule) -> bool:
    application = RuleApplication(editor, ProgramFacts(editor, {}, None))
    calls: list[Node] = [node for node in editor.graph.nodes if node.op == "call_function"]
    return any(
        application.match(first, node) is not None and application.match(second, node) is not None for node in calls
    )


def _broken_word(member: Member) -> str | None:
    """Return how a rule violates its measure on a program made from itself, or None."""
    if member.rule.rule.measure in (None, "once", "none") or isinstance(member.rule.rule.measure, Bound):
        return None
    for editor in _programs(member):
        report = RuleEngine([member.rule]).run(editor, RewriteOptions(limit=1, is_strict=False))
        for rejection in report.rejections:
            if rejection.reason.startswith(BROKEN):
                return rejection.reason
    return None


# Diagnostics


def _about(
    rule: CompiledRule, code: str, message: str, *, notes: Iterable[str] = (), hint: str | None = None
) -> Diagnostic:
    made = rule.texts.rule.diagnostic(code, message, length=len(rule.id), notes=tuple(notes), hint=hint)
    return made.model_copy(update={"severity": "note"}) if code in _NOTES else made


def _shadowed(first: CompiledRule, second: CompiledRule) -> Diagnostic:
    why = "has a higher priority" if first.rule.priority > second.rule.priority else "is asked first"
    message = f"rule {second.id} never fires: {first.id} {why} and matches wherever it does"
    hint = f"give {second.id} a higher priority, or {first.id} a guard"
    return _about(second, "EK243", message, notes=[_place(first)], hint=hint)


def _order_matters(first: CompiledRule, second: CompiledRule) -> Diagnostic:
    message = f"rules {first.id} and {second.id} can match at one call; {first.id} is asked first"
    hint = "say by `priority` which one is meant to go first"
    return _about(second, "EK244", message, notes=[_place(first)], hint=hint)


def _endless_diagnostic(cycle: Cycle) -> Diagnostic:
    first, *others = cycle.rules
    values = shown(first, cycle.values or {})
    notes = [*map(_place, others), *(f"for example with {name}: {value}" for name, value in list(values.items())[:4])]
    if not others:
        message = f"rule {first.id} matches its own result for ever"
        return _about(first, "EK245", message, notes=notes, hint="give it a guard that its own result does not satisfy")
    message = f"rules undo each other: {' -> '.join([*(rule.id for rule in cycle.rules), first.id])}"
    hint = "give one a guard that the result of the other does not satisfy, or put them into different `sets`"
    return _about(first, "EK245", message, notes=notes, hint=hint)


def _unkept(rule: CompiledRule, problem: str) -> Diagnostic:
    hint = "leave `measure` out: whether rewriting ends is found out anyway"
    return _about(rule, "EK248", f"rule {rule.id} is never applied: {problem}", hint=hint)


def _unmeasured(cycle: Cycle) -> Diagnostic:
    message = f"no count of operators shows that rewriting ends: {', '.join(rule.id for rule in cycle.rules)}"
    return _about(
        cycle.rules[0], "EK246", message, notes=["programs made from these rules were rewritten to their end"]
    )


def _place(rule: CompiledRule) -> str:
    place = rule.texts.rule.location()
    return f"{rule.id} stands in {place.file}:{place.line}:{place.column}"

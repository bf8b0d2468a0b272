"""What the rules of a set do to each other: one that never comes to its turn, choices by order, cycles without end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch.fx import Node

from exirkit.ir import Diagnostic, DiagnosticError, GraphEditor, copy_program
from exirkit.patterns.books.loading import LoadedBook
from exirkit.patterns.books.model import Bound
from exirkit.patterns.engine.application import RuleApplication
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.engine.rewriting import RewriteOptions, RuleEngine
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.syntax.measures import BROKEN

from .abstract_instances import instances_of
from .abstract_overlap import may_match
from .cover import covers
from .cycles import Cycle, Member, cycles_of
from .pattern_programs import program_of
from .trials import RAISED, RuleTrials, shown

_MOST_PROGRAMS = 4


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
        rules = [rule for rule in book.rules if _is_in(rule.id, chosen.rules) and not _is_in(rule.id, chosen.exclude)]
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
            relations.found.append(_endless(cycle))
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


def _is_in(rule_id: str, patterns: Sequence[str]) -> bool:
    return any(rule_id == one or (one.endswith("*") and rule_id.startswith(one[:-1])) for one in patterns)


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
    for instance in second.instances[:_MOST_PROGRAMS]:
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


def _shadowed(first: CompiledRule, second: CompiledRule) -> Diagnostic:
    why = "has a higher priority" if first.rule.priority > second.rule.priority else "is asked first"
    return second.texts.rule.diagnostic(
        "EK243",
        f"rule {second.id} never fires: {first.id} {why} and matches wherever it does",
        length=len(second.id),
        notes=(f"{first.id} stands in {_place(first)}",),
        hint=f"give {second.id} a higher priority, or {first.id} a guard",
    )


def _order_matters(first: CompiledRule, second: CompiledRule) -> Diagnostic:
    return second.texts.rule.diagnostic(
        "EK244",
        f"rules {first.id} and {second.id} can match at one call; {first.id} is asked first",
        length=len(second.id),
        notes=(f"{first.id} stands in {_place(first)}",),
        hint="say by `priority` which one is meant to go first",
    ).model_copy(update={"severity": "note"})


def _endless(cycle: Cycle) -> Diagnostic:
    first, *others = cycle.rules
    values = shown(first, cycle.values or {})
    names = " -> ".join([*(rule.id for rule in cycle.rules), first.id])
    said = f"rule {first.id} matches its own result for ever" if not others else f"rules undo each other: {names}"
    return first.texts.rule.diagnostic(
        "EK245",
        said,
        length=len(first.id),
        notes=(
            *(f"{rule.id} stands in {_place(rule)}" for rule in others),
            *(f"for example with {name}: {value}" for name, value in list(values.items())[:4]),
        ),
        hint="give one a guard that the result of the other does not satisfy, or put them into different `sets`"
        if others
        else "give it a guard that its own result does not satisfy",
    )


def _unkept(rule: CompiledRule, problem: str) -> Diagnostic:
    return rule.texts.rule.diagnostic(
        "EK248",
        f"rule {rule.id} is never applied: {problem}",
        length=len(rule.id),
        hint="leave `measure` out: whether rewriting ends is found out anyway",
    )


def _unmeasured(cycle: Cycle) -> Diagnostic:
    first = cycle.rules[0]
    names = ", ".join(rule.id for rule in cycle.rules)
    return first.texts.rule.diagnostic(
        "EK246",
        f"no count of operators shows that rewriting ends: {names}",
        length=len(first.id),
        notes=("programs made from these rules were rewritten to their end",),
    ).model_copy(update={"severity": "note"})


def _place(rule: CompiledRule) -> str:
    place = rule.texts.rule.location()
    return f"{place.file}:{place.line}:{place.column}"

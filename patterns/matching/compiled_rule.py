"""A rule ready to be matched: its strings parsed, its names checked, its closures made."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch.fx import Node

from exirkit.ir import SourceText, YamlPath
from exirkit.patterns.books.model import Guard, Rule
from exirkit.patterns.forms.catalogue import Forms, forms_of
from exirkit.patterns.matching.matcher import PatternCompiler, UnconnectedError, anchors
from exirkit.patterns.matching.state import CompiledGuard, MatchedNames, State
from exirkit.patterns.matching.value_checks import asks_graph
from exirkit.patterns.matching.value_roots import value_matcher
from exirkit.patterns.matching.varying_sizes import check_varying
from exirkit.patterns.operators.control_flow import ControlFlow
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.attributes import Attribute, attributed_terms, guard_against
from exirkit.patterns.syntax.chains import chains_of, key_of, unnamed_chains
from exirkit.patterns.syntax.constant_names import FACTS, ConstantNames
from exirkit.patterns.syntax.every_user import for_all_users
from exirkit.patterns.syntax.expressions import ExpressionError, NameView, truth
from exirkit.patterns.syntax.pattern_parser import PatternParser
from exirkit.patterns.syntax.programs import Builder, Program, Scope, compile_guard, compile_program
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Attributed,
    Call,
    Chain,
    Each,
    EveryUser,
    Operator,
    OperatorCall,
    Pattern,
    Splat,
    Symbol,
    Term,
    Through,
    Variable,
    children,
)
from exirkit.patterns.syntax.value_roots import (
    INTERFACE,
    NEW,
    check_calls,
    check_stored,
    check_uses,
    check_value_replacement,
    for_value,
    root_name,
)
from exirkit.patterns.types.parser import link_variables, parse_variable
from exirkit.patterns.types.scanner import VariableSyntaxError


def with_let(guard: CompiledGuard, let: Program) -> CompiledGuard:
    """Return a condition that can be asked before `let` has run.

    Args:
        guard: A condition, perhaps over names that `let` assigns.
        let: The program.
    """
    assigned = frozenset(let.assigns)
    if not guard.needs & assigned:
        return guard
    compiled = guard.compiled

    def ask(names: Mapping[str, Any]) -> Any:
        return compiled(_WithLet(names, let))

    return replace(guard, compiled=ask, needs=(guard.needs - assigned) | (let.uses - {FACTS}))


class _WithLet(NameView):
    """Names of a match, and what `let` makes of them."""

    def __init__(self, names: Mapping[str, Any], let: Program) -> None:
        super().__init__(names)
        self.let = let

    @cached_property
    def assigned(self) -> dict[str, Any]:
        if isinstance(self.names, MatchedNames):
            return self.names.state.assigned(self.let)
        return self.let.assigned(ConstantNames(self.names))

    def __getitem__(self, key: str) -> Any:
        return self.assigned[key] if key in self.let.assigns else self.names[key]


# A rule ready to be matched: its texts parsed, its names checked, its closures made


CaseTexts = tuple[SourceText | None, SourceText | None, SourceText]
"""Condition, let and replacement of one case."""


@dataclass(frozen=True)
class RuleTexts:
    """The texts of a rule with their places; a rule that comes from no file makes its own.

    Attributes:
        rule: Place of the whole rule.
        match: Pattern.
        vars: Types of variables.
        where: Conditions.
        unless: Patterns that must not match.
        let: Program, if there is one.
        gen: Constraints of trials.
        uses: Program around what replaces a stored tensor.
        cases: For every case: condition, let, replacement.
    """

    rule: SourceText
    match: SourceText
    vars: Mapping[str, SourceText]
    where: tuple[SourceText, ...]
    unless: tuple[SourceText, ...]
    let: SourceText | None
    gen: SourceText | None
    cases: tuple[CaseTexts, ...]
    uses: SourceText | None = None


TextAt = Callable[[YamlPath, str], SourceText]
"""From the path of a key in a rule and its value to a text with its place."""


def texts_of(rule: Rule, text_at: TextAt | None = None) -> RuleTexts:
    """Return the texts of a rule.

    Args:
        rule: The rule.
        text_at: Gives each text its place, by a path such as `("where", 0)`; without it, the rule was not read from a
            file.
    """
    text = text_at or (lambda path, value: SourceText(value, file=f"<rule {rule.id}>"))

    def optional(path: YamlPath, value: str | None) -> SourceText | None:
        return None if value is None else text(path, value)

    if isinstance(rule.replace, str):
        cases: list[CaseTexts] = [(None, None, text(("replace",), rule.replace))]
    else:
        paths: list[YamlPath] = [("replace", at) for at in range(len(rule.replace))]
        cases = [
            (
                optional((*path, "when"), case.when),
                optional((*path, "let"), case.let),
                text((*path, "replace"), case.replace),
            )
            for path, case in zip(paths, rule.replace, strict=True)
        ]
    return RuleTexts(
        rule=text(("id",), rule.id),
        match=text(("match",), rule.match),
        vars={name: text(("vars", name), value) for name, value in rule.vars.items()},
        where=tuple(text(("where", at), guard.expr) for at, guard in enumerate(rule.where)),
        unless=tuple(text(("unless", at), pattern) for at, pattern in enumerate(rule.unless)),
        let=optional(("let",), rule.let),
        gen=optional(("gen",), rule.gen),
        cases=tuple(cases),
        uses=optional(("uses",), rule.uses),
    )


@dataclass(frozen=True)
class CompiledCase:
    """One replacement."""

    when: CompiledGuard | None
    let: Program | None
    replace: Program


@dataclass(frozen=True)
class CompiledRule:
    """A rule and what it was compiled to.

    Attributes:
        rule: As it was written.
        texts: Its texts and their places.
        pattern: Terms of the pattern.
        variables: Types of its variables.
        guards: Conditions.
        let: Program that computes constants.
        cases: Replacements.
        match: Matches the call behind the first root.
        unless: Patterns that must not match.
        anchors: Operators of that call; none means any.
        forms: Other forms of the operators of the pattern that are matched as well.
        height: Calls on the longest way from a root down.
        reach: How many calls above a change the rule may match because of it; None if that cannot be told.
        specificity: How much the pattern asks for: of two rules of one priority the higher one goes first.
        tables: Those of its book that it names.
        attributes: Attributes that its book declares, by name.
    """

    rule: Rule
    texts: RuleTexts
    pattern: Pattern
    variables: Mapping[str, Any]
    guards: tuple[CompiledGuard, ...]
    let: Program | None
    cases: tuple[CompiledCase, ...]
    match: Callable[[Node, State], bool] = field(compare=False)
    unless: tuple[Callable[[Node, State], bool], ...] = field(compare=False, default=())
    anchors: frozenset[Any] = frozenset()
    forms: Mapping[Operator, Forms] | None = field(default=None, compare=False)
    height: int = 1
    reach: int | None = None
    specificity: int = 0
    tables: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict, compare=False)
    attributes: Mapping[str, Attribute] = field(default_factory=dict, compare=False)

    @cached_property
    def id(self) -> str:
        """Its id."""
        return self.rule.id

    def is_named_in(self, ids: Iterable[str]) -> bool:
        """Whether ids name the rule, or the rule of its book that it was made of."""
        return self.id in ids or self.rule.origin in ids

    def case_for(self, names: Mapping[str, Any]) -> CompiledCase:
        """Return the replacement that is taken: the first whose condition holds.

        Raises:
            ExpressionError: None is.
        """
        for case in self.cases:
            if case.when is None or truth(case.when.compiled(names)) is True:
                return case
        raise ExpressionError("no case applies")

    def replaced(self, names: dict[str, Any], builder: Builder) -> list[Any]:
        """Return the results of the replacement; the names that `let` assigns are added.

        Raises:
            ExpressionError: They cannot be computed.
        """
        if self.let is not None:
            names.update(self.let.assigned(names))
        case = self.case_for(names)
        if case.let is not None:
            names.update(case.let.assigned(names))
        return case.replace.run(names, builder)

    @property
    def operators(self) -> list[Operator]:
        """The operators that pattern and replacements call."""
        return [one.op for one in self.pattern.calls] + [op for case in self.cases for op in case.replace.operators]

    @property
    def opaque(self) -> tuple[str, ...]:
        """Registered predicates and builders that it uses, of which nothing is known but what trials show."""
        programs = [self.let, *(one for case in self.cases for one in (case.let, case.replace))]
        guards = [*self.guards, *(case.when for case in self.cases)]
        parts: list[Program | CompiledGuard | None] = [*guards, *programs]
        without = {f"@ {name}" for name in self.uses_attributes if self.attributes[name].meaning is None}
        return tuple(sorted({name for part in parts if part is not None for name in part.opaque} | without))

    @property
    def uses_attributes(self) -> tuple[str, ...]:
        """Attributes that the rule matches, asks for, writes or keeps."""
        names = {one.attribute.name for one in attributed_terms(self.pattern.terms)} | set(self.rule.carried)
        names |= {name for case in self.cases for name in case.replace.writes}
        names |= {found[1] for one in self.guards if (found := guard_against(one.text)) is not None}
        return tuple(sorted(names))

    @property
    def names_writing(self) -> bool:
        """Whether the pattern names an operator that writes to its arguments, and means it."""
        return any(term.op._schema.is_mutable for term in self.pattern.calls if hasattr(term.op, "_schema"))

    @property
    def runs_bodies(self) -> bool:
        """Whether it is about calls of control flow."""
        return any(isinstance(op, ControlFlow) for op in self.operators)

    @property
    def asks_for_stored(self) -> bool:
        """Whether a variable has to be a stored tensor, or one computed from such."""
        return self.pattern.kind == "stored" or any(
            getattr(variable, "qualifiers", ()) for variable in self.variables.values()
        )

    @property
    def tunings(self) -> tuple[dict[str, int], ...]:
        """All that `tune` allows; the first one is the default."""
        values = self.rule.tune
        return tuple(dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values()))

    @property
    def anchor_names(self) -> frozenset[str]:
        """Names of the operators at which a match starts; none means any."""
        return frozenset(name_of(op) for op in self.anchors if hasattr(op, "_schema"))


def compile_rule(rule: Rule, texts: RuleTexts, scope: Scope) -> CompiledRule | None:
    """Compile a rule.

    Args:
        rule: As it was written.
        texts: Its texts with their places.
        scope: Operators and macros of its book; diagnostics go there.

    Returns:
        The rule, or None: then there are diagnostics.
    """
    before = len(scope.found)
    variables, symbols = variables_of(rule.vars, texts.vars, texts.rule, scope)
    scope = replace(scope, variables=variables, symbols=symbols)
    pattern = PatternParser(texts.match, scope, reads_in_place=rule.dialect.source == "any").parse()
    if pattern is None:
        return None
    given = given_names(pattern, variables) | symbols
    let = compile_program(texts.let, scope, is_let=True) if texts.let else None
    if let is None and texts.let is not None:
        # What it would have given is not known, and not to be complained about.
        return None
    if let is not None and texts.let is not None:
        _check_known(let.uses, given | set(rule.tune), texts.let, scope)
    assigned = set(let.assigns) if let is not None else set()
    guards = guards_of(rule.where, texts.where, scope, given | assigned)
    guards = [guard if let is None else with_let(guard, let) for guard in guards]
    given |= set(rule.tune) | assigned
    cases = _cases(rule, texts, scope, given)
    around = _around_uses(rule, texts, scope, given, pattern)
    if pattern.kind != "calls":
        cases = [replace(case, replace=for_value(case.replace, around)) for case in cases]
    if isinstance(pattern.roots[0], EveryUser):
        cases = [replace(case, replace=for_all_users(case.replace)) for case in cases]
    _check_used(rule, texts, scope, pattern)
    _check_keep(rule, texts, scope, pattern)
    check_attributes(rule, texts, scope, pattern, cases)
    for chain in unnamed_chains(pattern.terms):
        scope.complain(
            texts.match, "EK289", "a chain without a name", chain.place, "write v = chain(...), and along(v, e)"
        )
    check_varying(rule, texts.rule, scope)
    unless = [_unless(text, scope, variables) for text in texts.unless]
    if len(scope.found) > before:
        return None
    forms = usable_forms(rule, pattern, variables, cases)
    try:
        match = PatternCompiler(pattern, variables, guards, forms).compile()
    except UnconnectedError:
        scope.complain(
            texts.match, "EK215", "the roots share no value, so that one cannot be found from the other", None,
            hint="let them use one variable or one call in common",
        )  # fmt: skip
        return None
    return CompiledRule(
        rule=rule,
        texts=texts,
        pattern=pattern,
        variables=variables,
        guards=tuple(guards),
        let=let,
        cases=tuple(cases),
        match=match
        if pattern.kind == "calls"
        else value_matcher(pattern.kind, match, shares=rule.shared == "all" or rule.graphs == "bodies"),
        unless=tuple(one for one in unless if one is not None),
        anchors=anchors(pattern.roots[0], variables, forms) if pattern.kind == "calls" else frozenset({pattern.kind}),
        forms=forms,
        height=max(_height(root) for root in pattern.roots),
        reach=_reach(rule, pattern, variables, forms),
        specificity=_specificity(pattern) + len(guards),
        tables=_named_tables(rule, scope.tables),
        attributes=scope.attributes,
    )


def _named_tables(rule: Rule, tables: Mapping[str, Mapping[Any, Any]]) -> dict[str, Mapping[Any, Any]]:
    written = [rule.let, *(guard.expr for guard in rule.where)]
    written += [text for case in rule.cases for text in (case.when, case.let, case.replace)]
    words = set(re.findall(r"\w+", " ".join(text for text in written if text)))
    return {name: rows for name, rows in tables.items() if name in words}


def usable_forms(
    rule: Rule, pattern: Pattern, variables: Mapping[str, Any], cases: Sequence[CompiledCase]
) -> dict[Operator, Forms] | None:
    """Return the forms in which the operators of a rule may be met.

    A rule of `dialect: any` is about what calls mean, so that one text does for all dialects. One that leads from one
    form of an operator to another is about the form: it would apply to its own results. None means that the pattern
    is matched as it is written.
    """
    if rule.dialect.source != "any":
        return None
    called = [term.op for term in pattern.calls]
    every = {op: forms for op in dict.fromkeys(called) if (forms := forms_of(op)) is not None}
    made = {op for case in cases for op in case.replace.operators}
    starts = anchors(pattern.roots[0], variables, every)
    if len(pattern.roots) == 1 and starts and not (starts | _chosen_from(every)) & made:
        # Each application leaves one call less at which another may start.
        return every
    return {op: usable for op, forms in every.items() if (usable := forms.without(made)) is not None}


def _chosen_from(every: Mapping[Operator, Forms]) -> frozenset[Operator]:
    """Return operators one of whose results is read as a call: what a rule makes of them it would find again."""
    return frozenset().union(*(forms.chosen_from for forms in every.values()))


def variables_of(
    written_types: Mapping[str, str], texts: Mapping[str, SourceText], whole: SourceText, scope: Scope
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the types of variables and the names of the sizes that they bind; diagnostics go to the scope.

    Args:
        written_types: Types by variable, as they are written.
        texts: Their texts with places.
        whole: What diagnostics about all of them point at.
        scope: Operators and macros.
    """
    variables: dict[str, Any] = {}
    symbols: set[str] = set()
    for name, written in written_types.items():
        text = texts[name]
        try:
            variables[name] = parse_variable(name, written)
        except VariableSyntaxError as error:
            place = text.diagnostic("EK216", error.message, offset=error.offset, hint=error.hint)
            scope.found.append(place)
            # Uses of the name should not be reported as unknown.
            variables[name] = parse_variable(name, "any")
        symbols.update(variables[name].binds)
    try:
        variables = dict(link_variables(variables, written_types))
    except VariableSyntaxError as error:
        at = whole if error.name is None else texts[error.name]
        scope.found.append(at.diagnostic("EK216", error.message, offset=error.offset, hint=error.hint))
    return variables, frozenset(symbols - variables.keys())


def given_names(pattern: Pattern, variables: Mapping[str, Any]) -> set[str]:
    """Return the names that a match of a pattern binds, but for sizes."""
    names = set(pattern.named)
    for term in pattern.terms:
        if isinstance(term, Variable | Splat) and term.name is not None:
            names.add(term.name)
        elif isinstance(term, Each | EveryUser):
            names |= set(term.lists)
        elif isinstance(term, OperatorCall):
            names |= {term.variable} | ({term.rest} if term.rest else set())
    names |= {key_of(one.name) for one in chains_of(pattern.terms) if one.name is not None}
    names |= {f"{name}.alt" for name, term in pattern.named.items() if isinstance(term, Alternatives)}
    # A shape that only types mention is a word for the generator, and known wherever those types are.
    return names


def chosen_by_cost(rule: CompiledRule) -> CompiledRule:
    """Return a rule that is applied only where that is cheaper on the target, whatever it says itself."""
    return replace(rule, rule=rule.rule.model_copy(update={"choose": "cost"}))


def guards_of(
    guards: Sequence[Guard], texts: Sequence[SourceText], scope: Scope, given: set[str]
) -> list[CompiledGuard]:
    """Return compiled conditions over given names; diagnostics go to the scope."""
    made: list[CompiledGuard] = []
    for guard, text in zip(guards, texts, strict=True):
        compiled = compile_guard(text, scope)
        if compiled is not None:
            closure, needs, opaque = compiled
            _check_known(needs, given, text, scope)
            made.append(CompiledGuard(guard.expr, closure, needs - {FACTS}, guard.kind, guard.assume, opaque))
    return made


def _cases(rule: Rule, texts: RuleTexts, scope: Scope, given: set[str]) -> list[CompiledCase]:
    made: list[CompiledCase] = []
    for index, (when_text, let_text, text) in enumerate(texts.cases):
        when, let, known = None, None, set(given)
        if when_text is not None:
            compiled = compile_guard(when_text, scope)
            if compiled is not None:
                _check_known(compiled[1], known, when_text, scope)
                when = CompiledGuard(when_text.value, compiled[0], compiled[1], opaque=compiled[2])
        elif index + 1 < len(texts.cases):
            scope.complain(texts.cases[index + 1][2], "EK217", "this case is never reached", None)
        if let_text is not None:
            let = compile_program(let_text, scope, is_let=True)
            if let is not None:
                _check_known(let.uses, known, let_text, scope)
                known |= set(let.assigns)
        program = compile_program(text, scope)
        if program is not None:
            _check_known(program.uses, known, text, scope)
            made.append(CompiledCase(when, let, program))
    return made


def _around_uses(rule: Rule, texts: RuleTexts, scope: Scope, given: set[str], pattern: Pattern) -> Program | None:
    """Return the program around what replaces a value of the program; what cannot be is EK234."""
    is_about_calls = pattern.kind == "calls"
    for _, _, text in texts.cases:
        check_stored(text, None if is_about_calls else root_name(pattern), scope)
    _check_keys_of_values(rule, texts, scope, pattern)
    if is_about_calls:
        return None
    for _, _, text in texts.cases:
        if rule.graphs == "bodies":
            check_calls(text, root_name(pattern), scope)
        else:
            check_value_replacement(text, pattern.kind, scope)
    if texts.uses is None:
        return None
    around = compile_program(texts.uses, scope)
    if around is not None:
        _check_known(around.uses, given | {NEW}, texts.uses, scope)
        check_uses(texts.uses, around, root_name(pattern), scope)
    return around


def _check_keys_of_values(rule: Rule, texts: RuleTexts, scope: Scope, pattern: Pattern) -> None:
    """Reject keys that rules about values of the program cannot have, or only such rules, EK234."""
    given = [key for key in ("uses", "shared", "graphs") if key in rule.model_fields_set]
    wrong: list[tuple[str, str]] = []
    if pattern.kind == "calls":
        wrong = [(f"`{key}` is for rules about values of the program", "take it out") for key in given]
    elif rule.choose != "always" or rule.unless:
        wrong = [(f"a rule about {pattern.kind} values has neither `choose: cost` nor `unless`", "take it out")]
    elif pattern.kind in INTERFACE:
        wrong = [(f"`{key}` is for rules about stored tensors", "take it out") for key in given if key != "uses"]
    elif rule.graphs == "bodies" and len(given) > 1:
        hint = "write calls that make its values under `replace`"
        wrong = [("in bodies calls replace a stored tensor, without `uses` and `shared`", hint)]
    for message, hint in wrong:
        scope.complain(texts.rule, "EK234", message, None, hint)


def _check_known(uses: Iterable[str], given: set[str], text: SourceText, scope: Scope) -> None:
    for name in sorted(uses):
        if name in given:
            continue
        line, offset = _find(text.value, name.partition(".")[0])
        base = name.partition(".")[0]
        if name.endswith(".links") and base in given:
            message, hint = f"{base} is not a chain", f"{base} = chain(l, [ops]) has links"
        elif name.endswith(".alt") and base in given:
            message, hint = f"{base} is not an alternative", f"{base} = alt(tag=...) has a tag"
        elif name in scope.variables:
            message, hint = f"{name!r} is declared, but the pattern does not bind it", "use it in `match`"
        else:
            close = difflib.get_close_matches(name, sorted(given), n=1)
            message = f"{name!r} is bound by nothing"
            hint = f"did you mean {close[0]}?" if close else f"the pattern binds {', '.join(sorted(given))}"
        scope.found.append(text.diagnostic("EK212", message, line=line, offset=offset, length=len(base), hint=hint))


def _find(text: str, name: str) -> tuple[int, int]:
    for number, line in enumerate(text.splitlines(), 1):
        found = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", line)
        if found:
            return number, found.start()
    return 1, 0


def _check_used(rule: Rule, texts: RuleTexts, scope: Scope, pattern: Pattern) -> None:
    """A variable that nothing mentions is a mistake; one that only types mention is a shape for them."""
    mentioned = given_names(pattern, scope.variables)
    for variable in scope.variables.values():
        mentioned |= set(variable.depends_on)
    for name, text in texts.vars.items():
        if name not in mentioned:
            scope.found.append(
                text.diagnostic(
                    "EK218", f"variable {name!r} is used nowhere in the pattern", hint="use it, or take it out"
                )
            )
    for name, term in pattern.named.items():
        if not _is_reachable(name, term, pattern):
            line, offset = _find(texts.match.value, name)
            scope.found.append(
                texts.match.diagnostic(
                    "EK218", f"{name!r} is assigned, but does not lead to a root", line=line, offset=offset,
                    length=len(name), hint="use it, or take it out",
                )
            )  # fmt: skip


def _is_reachable(name: str, term: Term, pattern: Pattern) -> bool:
    named = getattr(term, "name", None)
    return any(one is term or (named is not None and getattr(one, "name", None) == named) for one in pattern.terms)


def _check_keep(rule: Rule, texts: RuleTexts, scope: Scope, pattern: Pattern) -> None:
    for name in rule.kept:
        if name not in pattern.named:
            scope.complain(
                texts.match, "EK212", f"`keep` names {name!r}, which the pattern does not assign", None,
                hint=f"it assigns {', '.join(pattern.named) or 'nothing'}",
            )  # fmt: skip


def check_attributes(
    rule: Rule, texts: RuleTexts, scope: Scope, pattern: Pattern, cases: Sequence[CompiledCase]
) -> None:
    """Reject rules that lose an attribute of a matched call without saying so, EK299."""
    for name in rule.carried:
        if name not in scope.attributes:
            scope.complain(texts.rule, "EK299", f"`keep` names attribute {name!r}, which is not declared", None)
    if len(pattern.roots) != 1 and any(which != "none" for which in rule.carried.values()):
        scope.complain(
            texts.rule, "EK299", "`keep` says where an attribute goes, but the pattern has several results", None,
            hint="write it with `@` on the call that gets it",
        )  # fmt: skip
    for term in attributed_terms(pattern.terms):
        name = term.attribute.name
        if isinstance(term.inner, Variable) or name in rule.carried:
            continue
        for case, (_, _, text) in zip(cases, texts.cases, strict=False):
            if name not in case.replace.writes:
                scope.complain(
                    text, "EK299", f"attribute {name} of a matched call is lost", None,
                    hint=f"write it on a new call, `@ {name}(...)`, or say `keep: {{{name}: none}}`",
                )  # fmt: skip


def _unless(text: SourceText, scope: Scope, variables: Mapping[str, Any]) -> Callable[[Node, State], bool] | None:
    pattern = PatternParser(text, scope, reads_in_place=True).parse()
    if pattern is None:
        return None
    try:
        return PatternCompiler(pattern, variables, ()).compile()
    except UnconnectedError:
        scope.complain(text, "EK215", "the roots share no value", None)
        return None


_CHAIN = 4
"""How many links of a chain a change may be away for a match to be sought again."""


def _height(term: Any, seen: int = 0) -> int:
    below = [_height(child) for child in children(term)]
    own = isinstance(term, Call | OperatorCall) + _CHAIN * isinstance(term, Chain)
    # What is looked through may be long; matches are sought again that far after a change.
    return own + max(below, default=0)


_NEAR_WORDS = frozenset(
    {"users", "value", "is_input", "is_output", "is_stored", "param", "buffer", "mutable"}
    | {"target_has", "option", "op_legal"}
)
"""Functions that take the facts of the graph, and ask only of the matched values themselves."""


def _reach(
    rule: Rule, pattern: Pattern, variables: Mapping[str, Any], forms: Mapping[Operator, Forms] | None
) -> int | None:
    """Return how many calls above a change a rule may match because of it, or None if its pattern does not say so."""
    asks_further = any(
        asks_graph(text, _NEAR_WORDS) for text in [*(guard.expr for guard in rule.where), rule.let or ""]
    )
    is_open = any(isinstance(term, Chain | Through | EveryUser | Attributed) for term in pattern.terms)
    is_of_parts = any(one.composites for one in (forms or {}).values())
    is_stored = any(getattr(variable, "qualifiers", ()) for variable in variables.values())
    if pattern.kind != "calls" or is_open or is_of_parts or is_stored or asks_further or rule.unless:
        return None
    # A guard may count the users of what a leaf stands for, which is one call further away; and what is read as one
    # call of the pattern may be two.
    height = max(_height(root) for root in pattern.roots) + 1
    return 2 * height if forms else height


def _specificity(pattern: Pattern) -> int:
    return sum(4 * isinstance(term, Call) + (not isinstance(term, Variable | Symbol)) for term in pattern.terms)

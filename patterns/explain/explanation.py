"""Why a rule fires at a node or does not: how far the match gets, what is expected there, and what is found."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import Diagnostic, GraphEditor, Location, SourceText, UsageError, locate, underlying
from exirkit.patterns.engine.application import RejectedError, RuleApplication
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.engine.rewriting import RewriteOptions, RuleEngine
from exirkit.patterns.explain.value_descriptions import described, shape_text, shown
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.state import CompiledGuard, Failure, FailureTrace, MatchedNames, Progress, State
from exirkit.patterns.matching.value_roots import is_of_kind
from exirkit.patterns.operators.in_place import is_functional, make_functional
from exirkit.patterns.operators.table import OperatorTable, name_of
from exirkit.patterns.syntax.expressions import (
    ExpressionCompiler,
    ExpressionError,
    UndecidedError,
    parse_expression,
    truth,
)
from exirkit.patterns.syntax.programs import ProgramCalls, Scope
from exirkit.patterns.syntax.terms import Call, Item, Literal, OperatorCall, Place, Symbol, Variable, walk
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.types.sizes import dims_text
from exirkit.patterns.types.tensors import TensorVariable


@dataclass(frozen=True)
class Mismatch:
    """What stops a match.

    Attributes:
        kind: `operator`, `literal`, `default`, `dtype`, `shape`, `elements`, `qualifier`, `type`, `repeated`, `size`,
            `list`, `result`, `argument`, `guard`, `users`, `unless` or `replacement`.
        message: What is wrong, in a few words.
        expected: What the rule asks for.
        found: What is there.
        values: Values of what the condition, or the type, speaks of.
        also: Further conditions that do not hold either.
        text: The text of the rule that asks.
        place: Where in that text.
        used_by: Lines of the model that use a value inside the match.
    """

    kind: str
    message: str
    expected: str
    found: str
    text: SourceText = field(compare=False)
    place: Place = field(default=Place(), compare=False)
    values: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()

    def diagnostic(self, message: str, notes: Sequence[str], hint: str | None) -> Diagnostic:
        """Return a note that points into the rule."""
        own = [f"found: {self.found}", *(f"{name} is {text}" for name, text in self.values.items())]
        return self.text.diagnostic(
            "EK260",
            message,
            line=self.place.line,
            offset=self.place.offset,
            length=self.place.length,
            expected=self.expected,
            notes=(*own, *self._further(), *notes),
            hint=hint,
        ).model_copy(update={"severity": "note"})

    def _further(self) -> list[str]:
        also = [f"`{text}` does not hold either" for text in self.also]
        return [*also, *(f"used by {one}" for one in self.used_by)]


def mismatch_of(rule: CompiledRule, stops: Sequence[Failure], facts: ProgramFacts) -> Mismatch:
    """Return what stopped the ways that got furthest; where several operators would do, all of them are expected."""
    found = [_mismatch(rule, stop, facts) for stop in stops]
    first = found[0]
    alike = [one for one in found if (one.kind, one.found) == (first.kind, first.found)]
    expected = list(dict.fromkeys(one.expected for one in alike))
    if first.kind != "operator" or len(expected) == 1:
        return first
    return Mismatch(first.kind, first.message, " or ".join(expected), first.found, first.text, first.place)


def rejected(rule: CompiledRule, error: RejectedError) -> Mismatch:
    """Return why a match is not replaced."""
    text = rule.texts.cases[0][2]
    message = "the pattern matches, but the result does not fit" if error.is_fault else "it cannot be replaced"
    return Mismatch("replacement", message, "a replacement that can stand there", error.reason, text, _whole(text))


def _mismatch(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    if stop.progress[0]:
        return _around(rule, stop, facts)
    if stop.guard is not None:
        return _guard(rule, stop, facts)
    match stop.term:
        case Literal():
            return _literal(rule, stop, facts)
        case Variable():
            return _variable(rule, stop, facts)
        case Call() | OperatorCall():
            return _call(rule, stop, facts)
        case Symbol():
            return _plain(rule, stop, facts, "size", f"{_argument(rule, stop)} is another size")
        case ListTerm():
            return _plain(rule, stop, facts, "list", f"{_argument(rule, stop)} is another list")
        case Item():
            return _plain(rule, stop, facts, "result", f"{_argument(rule, stop)} is another result")
    return _plain(rule, stop, facts, "argument", f"{_argument(rule, stop)} does not fit")


def _plain(rule: CompiledRule, stop: Failure, facts: ProgramFacts, kind: str, message: str) -> Mismatch:
    text = rule.texts.match
    return Mismatch(kind, message, stop.reason, described(stop.value, facts), text, _place(stop, text))


# Terms


def _literal(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    term = stop.term
    kind = "default" if term.is_default else "literal"
    expected = shown(term.value)
    if term.is_default:
        expected += ", the default of an argument that the pattern leaves out"
    message = f"{_argument(rule, stop)} is not {shown(term.value)}"
    text = rule.texts.match
    return Mismatch(kind, message, expected, described(stop.value, facts), text, _place(stop, text))


def _call(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    text, term = rule.texts.match, stop.term
    found = described(stop.value, facts)
    if stop.reason.endswith("is another value"):
        return _repeated(rule, stop, facts, term.name)
    if "matched already" in stop.reason:
        found += ", which stands for another call of the pattern"
    wanted = name_of(term.op) if isinstance(term, Call) else stop.reason
    argument = _argument(rule, stop)
    message = "this is another call" if argument == "the value" else f"{argument} is another call"
    return Mismatch("operator", message, wanted, found, text, _place(stop, text))


def _variable(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    name = stop.term.name
    if stop.reason.endswith("is another value"):
        return _repeated(rule, stop, facts, name)
    variable = rule.variables[name]
    text = rule.texts.vars[name]
    value = stop.value.meta.get("val") if isinstance(stop.value, Node) else stop.value
    found = described(stop.value, facts)
    kind, expected = "type", f"{name}: {variable}"
    values: dict[str, str] = {}
    if stop.reason != f"{name} is not `{variable}`":
        wanted = stop.reason.removeprefix(f"{name} is not ")
        message = f"{_argument(rule, stop)} is not {wanted}"
        return Mismatch("qualifier", message, f"{name}: {variable}", found, text, _whole(text))
    if isinstance(variable, TensorVariable) and isinstance(value, torch.Tensor):
        kind, expected, values = _tensor_mismatch(variable, value, stop.names)
    message = f"{_argument(rule, stop)} has another {kind} than {name}"
    return Mismatch(kind, message, expected, found, text, _whole(text), values)


def _tensor_mismatch(
    variable: TensorVariable, value: torch.Tensor, names: Mapping[str, Any]
) -> tuple[str, str, dict[str, str]]:
    same_as = variable.dtypes.same_as
    if same_as is not None:
        other = names.get(same_as)
        other = other.meta.get("val") if isinstance(other, Node) else other
        if isinstance(other, torch.Tensor) and value.dtype != other.dtype:
            return "dtype", f"{shown(other.dtype)}, the dtype of {same_as}", {same_as: shown(other)}
    elif value.dtype not in variable.dtypes.member_set:
        return "dtype", f"{variable.name}: {variable}", {}
    if variable.dims is None or variable.domain is not None:
        return "elements", f"{variable.name}: {variable}", {}
    known = {
        name: shape_text(names[name]) if isinstance(names[name], list | tuple) else shown(names[name])
        for name in sorted({*variable.binds, *variable.depends_on} & names.keys())
    }
    return "shape", f"{variable.name}: {dims_text(variable.dims)}", known


def _repeated(rule: CompiledRule, stop: Failure, facts: ProgramFacts, name: str) -> Mismatch:
    text = rule.texts.match
    expected = f"{name} again, which is {described(stop.names.get(name), facts)}"
    message = f"{_argument(rule, stop)} is not {name}"
    return Mismatch("repeated", message, expected, described(stop.value, facts), text, _place(stop, text))


def _argument(rule: CompiledRule, stop: Failure) -> str:
    """Return the name of the argument that is compared, or what to call it."""
    calls = (one for root in rule.pattern.roots for one in walk(root) if isinstance(one, Call))
    for call in calls:
        for name, argument in call.arguments.items():
            if argument is stop.term:
                return f"{name!r} of {name_of(call.op)}"
    return "the value"


def _place(stop: Failure, text: SourceText) -> Place:
    return getattr(stop.term, "place", None) or _whole(text)


def _whole(text: SourceText) -> Place:
    return Place(1, 0, max(1, len(text.value.split("\n")[0])))


# Conditions


def _guard(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    guard = stop.guard
    assert guard is not None, "a condition was asked"
    at = next((index for index, one in enumerate(rule.guards) if one is guard), None)
    if at is None:
        # A value in the pattern that follows from others.
        return _plain(rule, stop, facts, "computed", f"this is not {guard.text}")
    text, written = rule.texts.where[at], rule.rule.where[at]
    found, message = "it does not hold", "a condition does not hold"
    if "do not decide" in stop.reason:
        found, message = "the sizes, which vary, do not decide it", "a condition cannot be decided"
    elif "cannot be computed" in stop.reason:
        found = stop.reason.partition("` ")[2]
    also = tuple(one.text for one in rule.guards if one is not guard and _fails(one, stop, facts))
    expected = guard.text if written.why is None else f"{guard.text} ({written.why})"
    values = {name: described(stop.names[name], facts) for name in sorted(guard.needs & stop.names.keys())}
    values.update(_parts(rule, guard.text, stop, facts))
    return Mismatch("guard", message, expected, found, text, _whole(text), values, also)


def _fails(guard: CompiledGuard, stop: Failure, facts: ProgramFacts) -> bool:
    """Whether another condition, which was not asked, is known to be false."""
    if not guard.needs <= stop.names.keys():
        return False
    try:
        return truth(guard.compiled(MatchedNames(State(facts, dict(stop.names))))) is False
    except (ExpressionError, UndecidedError, TypeError):
        return False


def _parts(rule: CompiledRule, text: str, stop: Failure, facts: ProgramFacts) -> dict[str, str]:
    """Return the values of what a condition compares, as far as they can be computed."""
    symbols = frozenset(name for variable in rule.variables.values() for name in variable.binds)
    compiler = ExpressionCompiler(ProgramCalls(Scope(OperatorTable(), rule.variables, symbols), allows_operators=False))
    names = MatchedNames(State(facts, dict(stop.names)))
    found: dict[str, str] = {}
    for node in ast.walk(parse_expression(text)):
        for side in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
            if isinstance(side, ast.Name) or not any(isinstance(one, ast.Name) for one in ast.walk(side)):
                continue
            try:
                found[ast.unparse(side)] = shown(compiler.compile(side)(names))
            except (ExpressionError, UndecidedError, TypeError):
                continue
    return found


def _around(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    """What is around a match stops it: users of values inside it, or a pattern that must not match."""
    if "`unless`" in stop.reason:
        state = [State(facts, dict(stop.names)) for _ in rule.unless]
        matching = [unwanted(stop.value, one) for unwanted, one in zip(rule.unless, state, strict=True)]
        text = rule.texts.unless[matching.index(True)]
        return Mismatch(
            "unless", "a pattern under `unless` matches", "no match of it", described(stop.value, facts), text,
            _whole(text),
        )  # fmt: skip
    text, node = rule.texts.match, stop.value
    assert isinstance(node, Node), "what is used elsewhere is a node"
    others = [user for user in node.users if user not in stop.nodes]
    name = next((key for key, value in stop.names.items() if value is node), None)
    term = rule.pattern.named.get(name or "") or next(iter(_inner_calls(rule, node)), None)
    return Mismatch(
        "users",
        "a value inside the match is used elsewhere too",
        "all users of it inside the match, or the value under `keep`",
        f"{described(node, facts)}, with {len(node.users)} users",
        text,
        getattr(term, "place", None) or _whole(text),
        used_by=tuple(_user(user) for user in others),
    )


def _inner_calls(rule: CompiledRule, node: Node) -> list[Call]:
    """Return the calls inside a pattern that a node can stand for."""
    terms = [one for root in rule.pattern.roots for one in walk(root) if one is not root]
    return [one for one in terms if isinstance(one, Call) and one.op is underlying(node.target)]


def _user(node: Node) -> str:
    line = locate(node).origin()
    return f"%{node.name}" + (f", {line}" if line else "")


# Why a rule fires at a node, or what stops it: how far the match gets, what is expected there, and what is found


@dataclass(frozen=True)
class NodeExplanation:
    """What becomes of a rule at one node.

    Attributes:
        rule: Id of the rule.
        node: Name of the node, at which the first root of the pattern is looked for.
        fires: Whether the rule rewrites there, if it is asked.
        place: The node in the program, and the line of the model that it comes from.
        progress: How far the match gets; the higher of two tuples is further.
        mismatch: What stops it.
        bindings: What the names of the pattern stand for, as far as the match gets.
        matched: Names of the matched calls.
        made: Operators that the rule puts there.
        earlier: Rules that match there too and are asked before this one.
        starts: Names of nodes near by at which a match could start, if none can start here.
    """

    rule: str
    node: str
    fires: bool
    place: Location
    progress: Progress = (0, 0, 0)
    mismatch: Mismatch | None = None
    bindings: Mapping[str, str] = field(default_factory=dict)
    matched: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()

    def diagnostic(self) -> Diagnostic:
        """Return all of this as a note that points into the rule, or at the node if the rule fires."""
        notes = [f"the node: {self.place.text}"] if self.place.text else []
        origin = self.place.origin()
        notes += [f"it comes from {origin}"] if origin else []
        if self.bindings:
            notes.append("bound: " + ", ".join(f"{name} = {text}" for name, text in self.bindings.items()))
        notes += [f"rule {one} matches there too, and is asked before" for one in self.earlier]
        if self.mismatch is None:
            notes += [f"matched: {', '.join(f'%{name}' for name in self.matched)}"]
            notes += [f"makes: {', '.join(self.made) or 'nothing new'}"]
            message = f"{self.rule} fires at %{self.node}"
            place = Location(node=f"%{self.node}")
            return Diagnostic(code="EK261", severity="note", message=message, location=place, notes=tuple(notes))
        return self.mismatch.diagnostic(
            f"{self.rule} does not fire at %{self.node}: {self.mismatch.message}", notes, _hint(self.starts)
        )


@dataclass(frozen=True)
class RuleExplanation:
    """What becomes of a rule in a program.

    Attributes:
        rule: Id of the rule.
        operators: Names of the operators at which a match starts; none means any.
        tried: How many calls have such an operator.
        firing: At how many of them the rule fires.
        nodes: Explanations, where the rule fires first, then where it gets furthest.
    """

    rule: str
    operators: tuple[str, ...]
    tried: int
    firing: int
    nodes: tuple[NodeExplanation, ...]


def explain_rule(
    rule: CompiledRule,
    editor: GraphEditor,
    node: str | None = None,
    *,
    rules: Sequence[CompiledRule] = (),
    options: RewriteOptions | None = None,
    most: int = 5,
) -> RuleExplanation:
    """Say why a rule does or does not fire; the program is the same afterwards.

    Args:
        rule: The rule.
        editor: Editor of a copy that the caller owns; replacements are tried in it and undone.
        node: Name of a node, with or without `%`; otherwise all calls at which a match can start are tried.
        rules: Rules that are applied together with it: of those that match at a node one is asked first.
        options: Options and target that conditions may ask for.
        most: Without `node`: at most so many explanations of nodes where the rule fires, and of the others.

    Raises:
        UsageError: EK262, there is no such node.
    """
    if rule.names_writing or is_functional(editor.graph):
        return _explained(rule, editor, node, rules, options, most)
    # Rules are applied to programs in which calls return new tensors, where that makes no difference.
    found: list[RuleExplanation] = []
    with contextlib.suppress(_UndoError), editor.transaction("explain"):
        make_functional(editor)
        found.append(_explained(rule, editor, node, rules, options, most))
        raise _UndoError
    return found[0]


def _explained(
    rule: CompiledRule,
    editor: GraphEditor,
    node: str | None,
    rules: Sequence[CompiledRule],
    options: RewriteOptions | None,
    most: int,
) -> RuleExplanation:
    explainer = _Explainer(rule, editor, rules, options or RewriteOptions())
    operators = tuple(sorted(rule.anchor_names))
    if node is not None:
        one = explainer.explain(_node_of(editor, node, explainer.can_start, rule.pattern.kind))
        return RuleExplanation(rule.id, operators, 1, int(one.fires), (one,))
    starts = [one for one in editor.graph.nodes if explainer.can_start(one)]
    found = [explainer.explain(one) for one in starts]
    firing = [one for one in found if one.fires]
    others = sorted((one for one in found if not one.fires), key=lambda one: one.progress, reverse=True)
    best = [one for one in others if one.progress == others[0].progress]
    return RuleExplanation(rule.id, operators, len(starts), len(firing), (*firing[:most], *best[:most]))


class _UndoError(Exception):
    """Ends a transaction that was only a try."""


class _Explainer:
    """Explains one rule in one program."""

    def __init__(
        self, rule: CompiledRule, editor: GraphEditor, rules: Sequence[CompiledRule], options: RewriteOptions
    ) -> None:
        self.rule = rule
        self.editor = editor
        self.facts = ProgramFacts(editor, options.options, options.target)
        self.application = RuleApplication(editor, self.facts)
        ordered = RuleEngine([rule, *(one for one in rules if one is not rule)]).rules
        at = next(index for index, one in enumerate(ordered) if one is rule)
        self.before = ordered[:at]

    def can_start(self, node: Node) -> bool:
        """Whether the operator of a node is one at which a match starts."""
        if self.rule.pattern.kind != "calls":
            return is_of_kind(self.facts, node, self.rule.pattern.kind)
        anchors = self.rule.anchors
        return node.op == "call_function" and (not anchors or underlying(node.target) in anchors)

    def explain(self, node: Node) -> NodeExplanation:
        """Explain one node."""
        trace = FailureTrace()
        state = self.application.match(self.rule, node, trace)
        base = NodeExplanation(self.rule.id, node.name, False, locate(node))
        if state is None:
            deepest = trace.failures[0]
            return dataclasses.replace(
                base,
                progress=trace.progress,
                mismatch=mismatch_of(self.rule, trace.failures, self.facts),
                bindings=_bindings(deepest.names, self.facts),
                matched=tuple(one.name for one in deepest.nodes),
                starts=() if self.can_start(node) else tuple(self._starts(node)),
            )
        bound = dataclasses.replace(
            base,
            progress=(2, 0, 0),
            bindings=_bindings(state.names, self.facts),
            matched=tuple(one.name for one in state.nodes),
            earlier=tuple(one.id for one in self.before if self.application.match(one, node) is not None),
        )
        try:
            return dataclasses.replace(bound, fires=True, made=self._made(state))
        except RejectedError as error:
            return dataclasses.replace(bound, mismatch=rejected(self.rule, error))

    def _made(self, state: State) -> tuple[str, ...]:
        """Apply the rule, note what it made, and undo it."""
        made: list[str] = []
        with contextlib.suppress(_UndoError), self.editor.transaction("explain"):
            made += [self.facts.operator_name(one) for one in self.application.apply(self.rule, state).made]
            raise _UndoError
        return tuple(made)

    def _starts(self, node: Node) -> Iterator[str]:
        """Yield the nodes of which this one can be an inner part."""
        reached: dict[Node, None] = {node: None}
        for _ in range(self.rule.height):
            reached = dict.fromkeys(user for one in reached for user in one.users)
            yield from (one.name for one in reached if self.can_start(one))


def _bindings(names: Mapping[str, Any], facts: ProgramFacts) -> dict[str, str]:
    """Return what names stand for; names of the machinery do not begin with a letter."""
    return {
        name: name_of(value) if hasattr(value, "_schema") else described(value, facts)
        for name, value in names.items()
        if name.replace(".", "_").isidentifier()
    }


def _hint(starts: Sequence[str]) -> str | None:
    if not starts:
        return None
    return f"a match starts at the call that is replaced: see {', '.join(f'%{one}' for one in starts[:3])}"


_PLACES = {"calls": "calls", "stored": "tensors that the program stores", "input": "inputs", "output": "outputs"}


def _node_of(editor: GraphEditor, name: str, can_start: Callable[[Node], bool], kind: str) -> Node:
    name = name.removeprefix("%")
    names: dict[str, Node] = {node.name: node for node in editor.graph.nodes}
    if name in names and (names[name].op == "call_function" if kind == "calls" else can_start(names[name])):
        return names[name]
    calls = [key for key, node in names.items() if node.op == "call_function"]
    close = [key for key in calls if name and name in key] or difflib.get_close_matches(name, calls, n=1)
    if name in names:
        message = f"%{name} is not where the rule starts to match: that is at {_PLACES[kind]}"
        close = [user.name for user in names[name].users if user.op == "call_function"][:3]
        hint = f"it is used by {', '.join(f'%{one}' for one in close)}" if close else None
    else:
        message = f"the program has no node %{name}"
        hint = f"did you mean %{close[0]}?" if close else f"it has {', '.join(f'%{one}' for one in calls[:5])}"
    raise UsageError(Diagnostic(code="EK262", message=message, hint=hint))

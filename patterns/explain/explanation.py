"""Why a rule fires at a node or does not: how far the match gets, what is expected there, and what is found."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from exirkit.ir import (
    Diagnostic,
    GraphEditor,
    Location,
    SubgraphEditor,
    UsageError,
    locate,
    subgraph_editors,
    underlying,
)
from exirkit.patterns.engine.application import RejectedError, RuleApplication
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.engine.rewriting import RewriteOptions, RuleEngine
from exirkit.patterns.explain.mismatches import Mismatch, mismatch_of, rejected, unexplained
from exirkit.patterns.explain.value_descriptions import described
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.state import FailureTrace, Progress, State
from exirkit.patterns.matching.value_roots import is_of_kind
from exirkit.patterns.operators.in_place import is_functional, make_functional
from exirkit.patterns.operators.links import Link
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.value_roots import INTERFACE


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
        graph: The body of control flow that the node is in; empty in the graph of the program.
        remark: What else decides whether the rule is applied there.
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
    graph: str = ""
    remark: str | None = None

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
            notes += [self.remark] if self.remark else []
            message = f"{self.rule} fires at {self._at()}"
            place = Location(node=f"%{self.node}")
            return Diagnostic(code="EK261", severity="note", message=message, location=place, notes=tuple(notes))
        return self.mismatch.diagnostic(
            f"{self.rule} does not fire at {self._at()}: {self.mismatch.message}", notes, _hint(self.starts)
        )

    def _at(self) -> str:
        return f"%{self.node} of {self.graph}" if self.graph else f"%{self.node}"


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
        node: Name of a node, with or without `%`, which may be in a body of control flow; otherwise all calls at which
            a match can start are tried.
        rules: Rules that are applied together with it: of those that match at a node one is asked first.
        options: Options and target that conditions may ask for.
        most: Without `node`: at most so many explanations of nodes where the rule fires, and of the others.

    Raises:
        UsageError: EK262, there is no such node.
    """
    chosen = options or RewriteOptions()
    search = _Search(rule, tuple(rules), chosen, node)
    with contextlib.suppress(_UndoError), editor.transaction("explain"):
        search.walk(editor, None)
        raise _UndoError
    operators = tuple(sorted(rule.anchor_names))
    if node is not None:
        if not search.found:
            raise _no_such_node(search, node)
        return RuleExplanation(rule.id, operators, 1, int(search.found[0].fires), tuple(search.found[:1]))
    firing = [one for one in search.found if one.fires]
    others = sorted((one for one in search.found if not one.fires), key=lambda one: one.progress, reverse=True)
    best = [one for one in others if one.progress == others[0].progress]
    return RuleExplanation(rule.id, operators, len(search.found), len(firing), (*firing[:most], *best[:most]))


@dataclass
class _Search:
    """Explains a rule in the graph of a program, and in the bodies of its control flow.

    Attributes:
        rule: The rule.
        rules: Rules that are applied together with it.
        options: Options and target that conditions may ask for.
        wanted: Name of the node; None: all at which a match can start.
        found: Explanations so far.
        names: Names of all nodes, with whether it is a call and its first users.
    """

    rule: CompiledRule
    rules: tuple[CompiledRule, ...]
    options: RewriteOptions
    wanted: str | None
    found: list[NodeExplanation] = field(default_factory=list)
    names: dict[str, tuple[bool, list[str]]] = field(default_factory=dict)

    def walk(self, editor: GraphEditor, outer: ProgramFacts | None) -> None:
        """Explain in a graph and in the bodies that its calls run."""
        if self.rule.names_writing or is_functional(editor.graph):
            facts = self._explain(editor, outer)
        else:
            # Rules are applied to programs in which calls return new tensors, where that makes no difference.
            with contextlib.suppress(_UndoError), editor.transaction("explain"):
                make_functional(editor)
                facts = self._explain(editor, outer)
                raise _UndoError
        for body in subgraph_editors(editor):
            self.walk(body, facts)

    def _explain(self, editor: GraphEditor, outer: ProgramFacts | None) -> ProgramFacts:
        explainer = _Explainer(self.rule, editor, self.rules, self.options, outer)
        for one in list(editor.graph.nodes):
            if self.wanted is not None:
                users = [user.name for user in one.users if user.op == "call_function"]
                self.names.setdefault(one.name, (one.op == "call_function", users[:3]))
                is_asked = one.op == "call_function" if self.rule.pattern.kind == "calls" else explainer.can_start(one)
                if one.name == self.wanted.removeprefix("%") and is_asked:
                    self.found.append(explainer.explain(one))
            elif explainer.can_start(one):
                self.found.append(explainer.explain(one))
        return explainer.facts


class _UndoError(Exception):
    """Ends a transaction that was only a try."""


class _Explainer:
    """Explains one rule in one program."""

    def __init__(
        self,
        rule: CompiledRule,
        editor: GraphEditor,
        rules: Sequence[CompiledRule],
        options: RewriteOptions,
        outer: ProgramFacts | None,
    ) -> None:
        self.rule = rule
        self.editor = editor
        self.graph = editor.path if isinstance(editor, SubgraphEditor) else ""
        self.facts = ProgramFacts(editor, options.options, options.target, outer)
        self.application = RuleApplication(editor, self.facts)
        ordered = RuleEngine([rule, *(one for one in rules if one is not rule)]).rules
        at = next(index for index, one in enumerate(ordered) if one is rule)
        self.before = ordered[:at]

    def can_start(self, node: Node) -> bool:
        """Whether the operator of a node is one at which a match starts."""
        kind = self.rule.pattern.kind
        if kind != "calls":
            # What a program takes and gives it does once, and stored tensors are replaced where the rule says.
            is_meant = not self.graph if kind in INTERFACE else (self.rule.rule.graphs == "bodies") == bool(self.graph)
            return is_meant and is_of_kind(self.facts, node, kind)
        anchors = self.rule.anchors
        return node.op == "call_function" and (not anchors or underlying(node.target) in anchors)

    def explain(self, node: Node) -> NodeExplanation:
        """Explain one node."""
        trace = FailureTrace()
        state = self.application.match(self.rule, node, trace)
        remark = _INTERFACE if self.rule.pattern.kind in INTERFACE else None
        base = NodeExplanation(self.rule.id, node.name, False, locate(node), graph=self.graph, remark=remark)
        if state is None:
            if not trace.failures:
                return dataclasses.replace(base, mismatch=unexplained(self.rule))
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


_INTERFACE = "only `ChangeInterface` applies it, since callers have to give or take another value"


def _bindings(names: Mapping[str, Any], facts: ProgramFacts) -> dict[str, str]:
    """Return what names stand for; names of the machinery do not begin with a letter."""
    found: dict[str, str] = {}
    for name, value in names.items():
        chain, _, what = name.partition(".links")
        if chain and name.endswith(".links") and not what:
            calls = (f"{name_of(one.op)}({', '.join(map(str, one.args))})" for one in value if isinstance(one, Link))
            found[f"links of {chain}"] = ", ".join(calls) or "none"
        elif name.replace(".", "_").isidentifier():
            found[name] = name_of(value) if hasattr(value, "_schema") else described(value, facts)
    return found


def _hint(starts: Sequence[str]) -> str | None:
    if not starts:
        return None
    return f"a match starts at the call that is replaced: see {', '.join(f'%{one}' for one in starts[:3])}"


_PLACES = {"calls": "calls", "stored": "tensors that the program stores", "input": "inputs", "output": "outputs"}


def _no_such_node(search: _Search, name: str) -> UsageError:
    name, kind = name.removeprefix("%"), search.rule.pattern.kind
    calls = [key for key, (is_call, _) in search.names.items() if is_call]
    close = [key for key in calls if name and name in key] or difflib.get_close_matches(name, calls, n=1)
    if name in search.names:
        message = f"%{name} is not where the rule starts to match: that is at {_PLACES[kind]}"
        users = search.names[name][1]
        hint = f"it is used by {', '.join(f'%{one}' for one in users)}" if users else None
    else:
        message = f"the program has no node %{name}"
        hint = f"did you mean %{close[0]}?" if close else f"it has {', '.join(f'%{one}' for one in calls[:5])}"
    return UsageError(Diagnostic(code="EK262", message=message, hint=hint))

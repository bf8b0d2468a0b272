"""Why a rule fires at a node, or what stops it: how far the match gets, what is expected there, and what is found."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from exirkit.ir import Diagnostic, GraphEditor, Location, UsageError, locate, underlying
from exirkit.patterns.engine.application import RejectedError, RuleApplication
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.engine.rewriting import RewriteOptions, RuleEngine
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.state import FailureTrace, Progress, State
from exirkit.patterns.operators.table import name_of

from .mismatches import Mismatch, mismatch_of, rejected
from .value_descriptions import described


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
    explainer = _Explainer(rule, editor, rules, options or RewriteOptions())
    operators = tuple(sorted(rule.anchor_names))
    if node is not None:
        one = explainer.explain(_node_of(editor, node))
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


def _node_of(editor: GraphEditor, name: str) -> Node:
    name = name.removeprefix("%")
    names: dict[str, Node] = {node.name: node for node in editor.graph.nodes}
    if name in names and names[name].op == "call_function":
        return names[name]
    calls = [key for key, node in names.items() if node.op == "call_function"]
    close = [key for key in calls if name and name in key] or difflib.get_close_matches(name, calls, n=1)
    if name in names:
        message = f"%{name} is no call: rules match at calls"
        close = [user.name for user in names[name].users if user.op == "call_function"][:3]
        hint = f"it is used by {', '.join(f'%{one}' for one in close)}" if close else None
    else:
        message = f"the program has no node %{name}"
        hint = f"did you mean %{close[0]}?" if close else f"it has {', '.join(f'%{one}' for one in calls[:5])}"
    raise UsageError(Diagnostic(code="EK262", message=message, hint=hint))


__all__ = ["Mismatch", "NodeExplanation", "RuleExplanation", "explain_rule"]

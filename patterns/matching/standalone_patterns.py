"""Patterns of the rule language for what rewrites nothing: a policy that looks for calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from exirkit.ir import ModelError, SourceText
from exirkit.patterns.books.model import Guard
from exirkit.patterns.functions.graph import GraphFacts
from exirkit.patterns.matching.compiled_rule import given_names, guards_of, variables_of
from exirkit.patterns.matching.matcher import UnconnectedError, anchors
from exirkit.patterns.operators.table import OperatorTable, name_of
from exirkit.patterns.syntax.pattern_parser import PatternParser
from exirkit.patterns.syntax.programs import Scope
from exirkit.patterns.syntax.terms import Call, OperatorCall, walk

from .matcher import PatternCompiler
from .state import FailureTrace, State


@dataclass(frozen=True)
class PatternMatch:
    """A place where a pattern matches.

    Attributes:
        calls: The calls, those behind roots first.
        root: The call behind the first root.
        names: What the names of the pattern stand for: nodes, lists of nodes, numbers.
    """

    calls: tuple[Node, ...]
    root: Node
    names: Mapping[str, Any]


@dataclass(frozen=True)
class StandalonePattern:
    """A compiled pattern.

    Attributes:
        text: As it was written, with its place.
        compute: Matches the call behind the first root.
        anchors: Operators of that call; none means any.
        operators: Names of all operators that it names.
    """

    text: SourceText
    compute: Callable[[Node, State], bool] = field(compare=False)
    anchors: frozenset[Any] = frozenset()
    operators: frozenset[str] = frozenset()

    @property
    def anchor_names(self) -> frozenset[str]:
        """Names of the operators at which a match starts; none means any."""
        if not all(hasattr(op, "_schema") for op in self.anchors):
            return frozenset()
        return frozenset(map(name_of, self.anchors))

    def match(self, node: Node, facts: GraphFacts, trace: FailureTrace | None = None) -> tuple[Node, ...]:
        """Return the calls of a match whose first root is a call, roots first; none if there is no match.

        Args:
            node: The call.
            facts: What conditions may ask about the graph.
            trace: Remembers the deepest failures.
        """
        found = self.find(node, facts, trace)
        return () if found is None else found.calls

    def find(self, node: Node, facts: GraphFacts, trace: FailureTrace | None = None) -> PatternMatch | None:
        """Return the match whose first root is a call, or None; the arguments are those of `match`."""
        state = State(facts, {}, trace=trace)
        if not self.compute(node, state):
            return None
        roots = [root for root in state.roots if root is not None]
        return PatternMatch(tuple(dict.fromkeys([*roots, *state.nodes])), node, state.names)


def compile_pattern(
    text: SourceText, variables: Mapping[str, SourceText], where: Sequence[SourceText] = ()
) -> StandalonePattern:
    """Compile a pattern.

    Args:
        text: The pattern: a program that ends in `return`.
        variables: Types of its variables.
        where: Conditions over its names.

    Raises:
        ModelError: All that is wrong, as in a rule: EK210 and following.
    """
    scope = Scope(OperatorTable())
    written = {name: one.value for name, one in variables.items()}
    types, symbols = variables_of(written, variables, text, scope)
    scope = Scope(scope.table, types, symbols, scope.macros, scope.found)
    pattern = PatternParser(text, scope).parse()
    if pattern is None or scope.found:
        raise ModelError(scope.found)
    known = given_names(pattern, types) | symbols
    guards = guards_of([Guard(expr=one.value) for one in where], where, scope, known)
    for name, one in variables.items():
        if name not in known and not any(name in other.depends_on for other in types.values()):
            scope.found.append(one.diagnostic("EK218", f"variable {name!r} is used nowhere in the pattern"))
    if scope.found:
        raise ModelError(scope.found)
    try:
        match = PatternCompiler(pattern, types, guards).compile()
    except UnconnectedError:
        scope.complain(text, "EK215", "the roots share no value, so that one cannot be found from the other", None)
        raise ModelError(scope.found) from None
    terms = [term for root in pattern.roots for term in walk(root)]
    named = {op for term in terms if isinstance(term, Call | OperatorCall) for op in anchors(term, types)}
    names = frozenset(name_of(op) for op in named if hasattr(op, "_schema"))
    return StandalonePattern(text, match, anchors(pattern.roots[0], types), names)

"""Matching values of the program that are not results of calls."""

from __future__ import annotations

from collections.abc import Callable

from torch.fx import Node

from exirkit.patterns.functions.graph import GraphFacts
from exirkit.patterns.matching.state import State

_KINDS = {"stored": "stored", "input": "input", "output": "returned"}
_SAID = {
    "stored": "a tensor that the program stores",
    "input": "an input of the program",
    "output": "an output of the program",
}
RootMatcher = Callable[[Node, State], bool]


def is_of_kind(facts: GraphFacts, node: Node, kind: str) -> bool:
    """Whether a node is a value of the program of a kind: `stored`, `input` or `output`."""
    return facts.is_kind(node, _KINDS[kind])


def value_matcher(kind: str, match: RootMatcher, *, shares: bool) -> RootMatcher:
    """Return a closure that matches a value of the program.

    Args:
        kind: `stored`: a parameter, buffer or constant; `input`: what the program takes; `output`: what it gives. The
            program must not write to it.
        match: Matches the variable that the value is.
        shares: A stored tensor may be one that several calls use, or that shares memory with another one.
    """

    def match_value(node: Node, state: State) -> bool:
        facts = state.facts
        state.nodes = [node]
        if not is_of_kind(facts, node, kind):
            return state.fail(f"it is not {_SAID[kind]}", node)
        if facts.is_kind(node, "mutable"):
            return state.fail("the program writes to it", node)
        if kind == "stored" and not shares and facts.is_kind(node, "shared"):
            return state.fail("several calls use it, or it shares memory; the rule does not say `shared: all`", node)
        return match(node, state)

    return match_value

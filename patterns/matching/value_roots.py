"""Matching values of the program that are no results of calls."""

from __future__ import annotations

from collections.abc import Callable

from torch.fx import Node

from exirkit.patterns.matching.state import State

RootMatcher = Callable[[Node, State], bool]


def value_matcher(kind: str, match: RootMatcher, *, shares: bool) -> RootMatcher:
    """Return a closure that matches a value of the program.

    Args:
        kind: `stored`: a parameter, buffer or constant that the program does not write to.
        match: Matches the variable that the value is.
        shares: A stored tensor may be one that several calls use, or that shares memory with another one.
    """

    def match_value(node: Node, state: State) -> bool:
        facts = state.facts
        state.nodes = [node]
        if node.op != "placeholder" or not facts.is_kind(node, kind):
            return state.fail("it is not a tensor that the program stores", node)
        if facts.is_kind(node, "mutable"):
            return state.fail("the program writes to it", node)
        if not shares and facts.is_kind(node, "shared"):
            return state.fail("several calls use it, or it shares memory; the rule does not say `shared: all`", node)
        return match(node, state)

    return match_value

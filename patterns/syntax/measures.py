"""What a rule says that every application makes smaller, counted when it has been applied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from .undecided import compare, truth

LEXICOGRAPHIC = r"^lex\[\s*(node_count|weight)(\s*,\s*(node_count|weight))*\s*\]$"
"""How an order by several measures is written: the first that changes decides."""

BROKEN = "it declares that "


def broken_measure(measure: Any, matched: Sequence[Node], made: Sequence[Node]) -> str | None:
    """Return how an application breaks the word of its rule that something decreases, or None.

    Args:
        measure: As the rule declares it: `node_count`, the number of calls; `weight`, the number of elements that they
            compute; or an order by both. Others say nothing about one application.
        matched: Calls that the pattern matched.
        made: Calls that took their place.
    """
    names = re.findall(r"node_count|weight", measure) if isinstance(measure, str) else []
    gone = [node for node in matched if node._erased]
    for name in names:
        before, after = (sum(map(_MEASURES[name], nodes)) for nodes in (gone, made))
        smaller = truth(compare("<", after, before))
        if smaller is True or (smaller is not False and name == "weight"):
            return None
        if truth(compare("==", after, before)) is not True or name == names[-1]:
            return f"{BROKEN}{name} decreases, but it goes from {before} to {after}"
    return None


def _elements(node: Node) -> Any:
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else [value]
    return sum(one.numel() for one in values if isinstance(one, torch.Tensor))


_MEASURES: dict[str, Any] = {"node_count": lambda node: 1, "weight": _elements}

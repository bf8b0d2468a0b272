"""Values in a match: when a literal is there, when two names stand for one value, what number is behind a constant."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import same_argument, underlying
from exirkit.patterns.functions.graph import GraphFacts
from exirkit.patterns.operators.arguments import canonical_arguments
from exirkit.patterns.syntax.undecided import compare


def is_kind(facts: GraphFacts, node: Node, kind: str) -> bool:
    """Return whether a node is what a qualifier says."""
    if kind == "const":
        return facts.is_constant(node)
    return facts.is_kind(node, kind)


def constant_behind(node: Node, facts: GraphFacts) -> torch.Tensor | None:
    """Return a constant of no dimension, or None if the node is something else."""
    recorded = node.meta.get("val")
    if isinstance(recorded, torch.Tensor) and recorded.dim() == 0 and facts.is_constant(node):
        return facts.value(node)
    return None


def scalar_behind(value: Any, facts: GraphFacts) -> Any:
    """Return the number in a constant of no dimension; the recorded size of a symbolic number; else the node itself."""
    if not isinstance(value, Node):
        return value
    recorded = value.meta.get("val")
    if not isinstance(recorded, torch.Tensor):
        return recorded
    known = constant_behind(value, facts)
    return value if known is None else known.item()


def same_literal(wanted: Any, found: Any) -> bool:
    """Whether a value is a literal, in type and value; lists element by element."""
    if isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        return len(wanted) == len(found) and all(map(same_literal, wanted, found))
    if type(wanted) is not type(found):
        return False
    if isinstance(wanted, float):
        return repr(wanted) == repr(found)
    return bool(wanted == found)


def same_bound(known: Any, value: Any) -> bool:
    """Whether a name that is met again stands for the same value."""
    if isinstance(known, Node) or isinstance(value, Node):
        return known is value
    if isinstance(known, list | tuple) and isinstance(value, list | tuple):
        return len(known) == len(value) and all(map(same_bound, known, value))
    if isinstance(known, torch.SymInt) or isinstance(value, torch.SymInt):
        return compare("==", known, value) is True
    return same_argument(known, value)


def from_front(value: Any, rank: int | None) -> Any:
    """Return dims counted from the front."""
    if rank is None:
        return value
    if isinstance(value, list | tuple):
        return [from_front(one, rank) for one in value]
    return value + max(1, rank) if type(value) is int and value < 0 else value


def rest_is_default(node: Node, count: int) -> bool:
    """Return whether the arguments of a call from a place on have their defaults."""
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return False
    arguments = canonical_arguments(node)
    return all(
        argument.has_default_value() and same_argument(arguments[argument.name], argument.default_value)
        for argument in schema.arguments[count:]
    )

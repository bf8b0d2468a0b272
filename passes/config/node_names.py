"""The names under which policies know nodes: of operators, as rule books write them, and of modules."""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Iterable
from functools import cache
from typing import Any

from torch.fx import Node

from exirkit.ir import find_out_variant, underlying, view
from exirkit.patterns import OperatorTable, name_of


def has_wildcard(name: str) -> bool:
    """Whether a name stands for many."""
    return any(each in name for each in "*?[")


def full_names(names: Iterable[str]) -> list[str]:
    """Return names of operators with their overloads: `aten.mm` is `aten.mm.default`."""
    table = OperatorTable()
    return [name if has_wildcard(name) else name_of(table.find(name)) for name in names]


def agree(patterns: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of some names is meant by one of some patterns."""
    all_names = list(names)
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in all_names)


def operator_names(node: Node) -> tuple[str, ...]:
    """Return the names of the operator of a call: as rule books write it, and that of the out variant.

    The results of a call have the operator of the call; what is not a call has none.
    """
    while node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    if node.op != "call_function":
        return ()
    if node.target is view:
        return ("aten.view_copy.default",)
    op = underlying(node.target)
    if not hasattr(op, "_schema"):
        return (str(getattr(node.target, "_name", getattr(node.target, "__name__", node.target))),)
    return _names_behind(op)


@cache
def _names_behind(op: Any) -> tuple[str, ...]:
    packet = getattr(op, "overloadpacket", None)
    if not any(argument.is_out for argument in op._schema.arguments):
        return (name_of(op),)
    if packet is None:
        return (f"{op._schema.name.replace('::', '.')}.default", name_of(op))
    overloads = (getattr(packet, name) for name in packet.overloads())
    functional = [
        one for one in overloads if not any(argument.is_out for argument in one._schema.arguments)
        and not one._schema.is_mutable and find_out_variant(one) is op
    ]  # fmt: skip
    return (*(name_of(one) for one in functional), name_of(op))

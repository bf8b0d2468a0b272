"""Calls that give back what they were given: copies, casts to the same dtype, views of the same sizes.

One dialect has them where another has none: the official exporter expands every operand of a product to the sizes that
it has already. A pattern looks through them wherever it names a call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import underlying
from exirkit.patterns.operators.arguments import canonical_arguments
from exirkit.patterns.operators.table import OperatorTable
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.syntax.undecided import compare

_COPIES = (
    "aten.alias.default", "aten.alias_copy.default", "aten.clone.default", "aten.contiguous.default",
    "aten.detach.default", "aten.detach_copy.default", "aten.lift_fresh_copy.default", "aten.view.default",
    "aten.view_copy.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.expand.default",
    "aten.expand_copy.default", "aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout",
    "dim_order_ops._clone_dim_order.default", "dim_order_ops._to_dim_order_copy.default",
)  # fmt: skip
_WITHOUT_TRAINING = ("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default")
_ASSERTS = frozenset({"aten::_assert_tensor_metadata"})


def source_of(node: Node) -> Node | None:
    """Return the value that a call gives back as it is, or None if it may change something."""
    check = _checks().get(id(underlying(node.target))) if node.op == "call_function" else None
    source = node.args[0] if check is not None and node.args else None
    if check is None or not isinstance(source, Node) or not check(node):
        return None
    old, new = source.meta.get("val"), node.meta.get("val")
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor) or old.dtype != new.dtype:
        return None
    is_same = old.dim() == new.dim() and compare("==", list(old.shape), list(new.shape)) is True
    return source if is_same else None


def behind(node: Node) -> Node:
    """Return the value behind all calls that give back what they were given."""
    while True:
        source = source_of(node)
        if source is None:
            return node
        node = source


def may_pass(op: Operator) -> bool:
    """Whether calls of an operator may give back what they were given."""
    return id(op) in _checks()


def is_remark(node: Node) -> bool:
    """Whether a call only states what is known of a value: it uses the value, and computes nothing with it."""
    schema = getattr(underlying(node.target), "_schema", None) if node.op == "call_function" else None
    return schema is not None and schema.name in _ASSERTS and not node.users


@cache
def _checks() -> dict[int, Callable[[Node], bool]]:
    """Return by identity of the operator what else must hold; torch keeps its operators alive."""
    find = OperatorTable().find
    known: dict[int, Callable[[Node], bool]] = {id(find(name)): _always for name in _COPIES}
    known.update({id(find(name)): _is_evaluating for name in _WITHOUT_TRAINING})
    return known


def _always(node: Node) -> bool:
    return True


def _is_evaluating(node: Node) -> bool:
    arguments: Any = canonical_arguments(node)
    return arguments.get("train") is False

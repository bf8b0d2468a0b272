"""Sizes of tensors as text: numbers and expressions over symbols such as `2 * s0 + 1`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import torch

from .model import Dim

LONGEST = 200
"""Characters of the longest expression that is read."""

# An operation is its sign and two operands.
SizeTree: TypeAlias = "int | str | tuple[str, SizeTree, SizeTree]"

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "max": torch.sym_max,
    "min": torch.sym_min,
}
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_FUNCTIONS = ("max", "min")
_MOST_POWER = 3
_KINDS = "+, -, *, //, %, **, max and min"


@lru_cache(maxsize=4096)
def size_tree(dim: Dim) -> SizeTree:
    """Return the structure of a size.

    Raises:
        ValueError: It is not an expression of names and whole numbers with `+`, `-`, `*`, `//` and `%` by a positive
            number, `**` by a small one, and `max` and `min` of two.
    """
    if isinstance(dim, int):
        return dim
    if len(dim) > LONGEST:
        raise ValueError(f"a size of more than {LONGEST} characters")
    try:
        return _tree(ast.parse(dim, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"`{dim}` is not an expression") from None


def _tree(node: ast.expr) -> SizeTree:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < 2**63:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        left, right = _tree(node.left), _tree(node.right)
        if isinstance(node.op, ast.FloorDiv | ast.Mod) and not (isinstance(right, int) and right > 0):
            raise ValueError("a size is divided by positive numbers only")
        if isinstance(node.op, ast.Pow) and not (isinstance(right, int) and 0 < right <= _MOST_POWER):
            raise ValueError(f"a power of a size is one of 1 to {_MOST_POWER}")
        return (_SIGNS[type(node.op)], left, right)
    if isinstance(node, ast.Call) and is_function_of_sizes(node):
        assert isinstance(node.func, ast.Name)
        if len(node.args) != 2 or node.keywords:
            raise ValueError(f"{node.func.id} is of two sizes")
        return (node.func.id, _tree(node.args[0]), _tree(node.args[1]))
    raise ValueError(f"a size is made of symbols, whole numbers, {_KINDS}, not of `{ast.unparse(node)}`")


def is_function_of_sizes(node: ast.expr) -> bool:
    """Return whether an expression is the greater or the lesser of sizes."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS


@lru_cache(maxsize=4096)
def size_text(dim: Dim) -> str:
    """Return the printed form of a size, the same for all ways to write its structure."""
    size_tree(dim)
    return str(dim) if isinstance(dim, int) else ast.unparse(ast.parse(dim, mode="eval"))


def size_value(dim: Dim, values: Mapping[str, Any]) -> Any:
    """Return the value of a size.

    Args:
        dim: The size.
        values: A number, or a symbolic one, for each symbol.
    """
    return dim if isinstance(dim, int) else _value(size_tree(dim), values)


def _value(tree: SizeTree, values: Mapping[str, Any]) -> Any:
    if isinstance(tree, tuple):
        return OPERATIONS[tree[0]](_value(tree[1], values), _value(tree[2], values))
    return values[tree] if isinstance(tree, str) else tree


def symbols_of(dim: Dim) -> tuple[str, ...]:
    """Return the symbols in a size, each once, in the order of their first use."""
    return tuple(dict.fromkeys(_symbols(size_tree(dim))))


def _symbols(tree: SizeTree) -> tuple[str, ...]:
    if isinstance(tree, tuple):
        return _symbols(tree[1]) + _symbols(tree[2])
    return (tree,) if isinstance(tree, str) else ()

"""Operators that a variable `f: "op in unary_pointwise"` stands for, from the catalogue of traits."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Any

FAMILIES = ("unary_pointwise", "pointwise", "copy_like", "views", "reductions", "quantize", "dequantize")
"""Families that rules may name."""


def similar_family(name: str) -> str | None:
    """Return the family that was probably meant."""
    close = difflib.get_close_matches(name, FAMILIES, n=1)
    return close[0] if close else None


@lru_cache(maxsize=256)
def family_members(names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the operators of families and of names `aten.relu.default`, each once, in the order of the catalogue.

    Raises:
        LookupError: A name is neither.
    """
    from exirkit.patterns.operators.facts import operators_with

    found: dict[Any, None] = {}
    for name in names:
        if name in FAMILIES:
            found.update(dict.fromkeys(operators_with(name)))
        else:
            found[_named(name)] = None
    return tuple(found)


@lru_cache(maxsize=256)
def _member_set(names: tuple[str, ...]) -> frozenset[Any]:
    return frozenset(family_members(names))


def families_contain(names: tuple[str, ...], op: object) -> bool:
    """Whether an operator, without its edge handle, is in one of the families."""
    return op in _member_set(names)


def _named(dotted: str) -> Any:
    from exirkit.patterns.operators.table import OperatorTable, UnknownNameError

    try:
        return OperatorTable().find(dotted)
    except UnknownNameError as error:
        raise LookupError(error.message) from None

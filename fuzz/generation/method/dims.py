"""Dims among the arguments of calls, counted from the end instead of the start."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from exirkit.fuzz.generation.choices import Choices
from exirkit.fuzz.programs.inference import operator_named

from .values import Value

_DIMS = frozenset({"dim", "dims", "axis", "dim0", "dim1", "dim2", "start_dim", "end_dim", "dimension"})
# Their dims are those of the result, which has one more.
_INSERTING = frozenset({"unsqueeze", "unsqueeze_copy", "stack"})
_SHARE = 0.6


def from_either_end(
    choices: Choices, op: str, args: Sequence[Any], named: Sequence[tuple[str, Any]]
) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Return the arguments of a call, some of the dims among them counted from the end.

    Args:
        choices: Decide which.
        op: Name of the operator.
        args: Values, sizes, numbers and lists of them.
        named: By name.
    """
    rank = _rank(op, args)
    names = parameter_names(op)
    places = [name in _DIMS for name in names]
    if not rank or not any(places):
        return list(args), list(named)

    def written(is_dim: bool, given: Any) -> Any:
        if not is_dim:
            return given
        if isinstance(given, list | tuple):
            return [written(True, one) for one in given]
        is_plain = type(given) is int and 0 <= given < rank
        return given - rank if is_plain and choices.chance(_SHARE) else given

    changed = [written(at < len(places) and places[at], given) for at, given in enumerate(args)]
    return changed, [(name, written(name in _DIMS, given)) for name, given in named]


def has_dim_from_the_end(op: str, args: Sequence[Any], named: Sequence[tuple[str, Any]]) -> bool:
    """Return whether a call is given a dim that is counted from the end."""
    pairs = [*zip(parameter_names(op), args, strict=False), *named]
    given = [one for name, one in pairs if name in _DIMS]
    leaves = [leaf for one in given for leaf in (one if isinstance(one, list | tuple) else (one,))]
    return any(type(leaf) is int and leaf < 0 for leaf in leaves)


@cache
def parameter_names(op: str) -> tuple[str, ...]:
    """Return the names of the parameters of an operator, in their order."""
    found = operator_named(op)
    return () if found is None else tuple(one.name for one in found._schema.arguments)


def _rank(op: str, args: Sequence[Any]) -> int:
    """Return the number of dims among which a call counts; 0 where it takes no tensor first."""
    first = args[0] if args else None
    given = first if isinstance(first, list | tuple) else (first,)
    ranks = [one.rank for one in given if isinstance(one, Value)]
    if not ranks:
        return 0
    return max(ranks) + (op.split(".")[1] in _INSERTING)

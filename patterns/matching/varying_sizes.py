"""Sizes that a rule declares to vary: which dims of which variables have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from exirkit.ir import SourceText
from exirkit.patterns.books.model import Rule
from exirkit.patterns.syntax.programs import Scope
from exirkit.patterns.types.sizes import BroadcastDim, Dim, Dims, Name, SequenceDim, SizeDim, mentioned_names
from exirkit.patterns.types.tensors import TensorVariable


def placed_dims(dims: Dims, rank: int) -> Iterator[tuple[Dim, slice]]:
    """Yield the dims of a type, each with the dims of a tensor of that rank that it stands for."""
    rest = rank - sum(not isinstance(dim, SequenceDim | BroadcastDim) for dim in dims)
    at = 0
    for dim in dims:
        length = rest if isinstance(dim, SequenceDim | BroadcastDim) else 1
        yield dim, slice(at, at + length)
        at += length


def sizes_read_from(dims: Dims, sizes: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the values of names that stand alone in a type: of `N` in `[N, 2*K]`, of `B` in `[*B, K]`."""
    found: dict[str, Any] = {}
    for dim, place in placed_dims(dims, len(sizes)):
        if isinstance(dim, SizeDim) and isinstance(dim.size, Name) and dim.size.name in names:
            found[dim.size.name] = sizes[place.start]
        elif isinstance(dim, SequenceDim) and dim.name in names:
            found[str(dim.name)] = list(sizes[place])
    return found


def check_varying(rule: Rule, text: SourceText, scope: Scope) -> None:
    """Note an error for each declared name that cannot vary, EK227."""
    for name in rule.varying:
        problem = _problem(name, scope)
        if problem is not None:
            scope.complain(text, "EK227", f"rule {rule.id}: {name!r} cannot vary: {problem[0]}", None, problem[1])


def _problem(name: str, scope: Scope) -> tuple[str, str] | None:
    tensors = [one for one in scope.variables.values() if isinstance(one, TensorVariable)]
    mentioning = [one for one in tensors if name in mentioned_names(one.signature)]
    if not mentioning:
        known = sorted({one for tensor in tensors for one in mentioned_names(tensor.signature)})
        return "it is not a size of a tensor", f"the sizes are {', '.join(known) or 'none'}"
    stored = [one.name for one in mentioning if one.qualifiers]
    if stored:
        return f"{stored[0]} is a stored tensor, whose sizes are fixed", "name sizes of inputs only"
    if not any(_stands_alone(dim, name) for one in mentioning for dim in one.signature):
        return "no tensor has a dim of this size alone", f"give one the type `f32 [{name}, ...]`"
    return None


def _stands_alone(dim: Dim, name: str) -> bool:
    if isinstance(dim, SequenceDim):
        return dim.name == name
    return isinstance(dim, SizeDim) and isinstance(dim.size, Name) and dim.size.name == name

"""One view of the arguments of a call, however they were written; the graph stays as it is.

Arguments have the names of the schema, defaults are there, dims count from the front, `-1` in the sizes of a view is
what is meant. Rules are matched against this view only.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import underlying

from .argument_binding import default_of, normalised_literal
from .operator_facts import Traits, traits_of

_SIZES = {"view", "view_copy", "reshape", "expand", "expand_copy"}


class Arguments(Mapping[str, Any]):
    """Arguments of a call by name, in the order of the schema."""

    __slots__ = ("_ranks", "_values")

    def __init__(self, values: dict[str, Any], ranks: dict[str, int]) -> None:
        self._values = values
        self._ranks = ranks

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def rank_of(self, name: str) -> int | None:
        """Return how many dims an argument counts, or None if it counts none."""
        return self._ranks.get(name)


# Keyed by node; a view is good as long as target, args and kwargs are the same objects, since FX replaces them.
_CACHE: weakref.WeakKeyDictionary[Node, tuple[Any, Any, Any, Arguments]] = weakref.WeakKeyDictionary()


def canonical_arguments(node: Node) -> Arguments:
    """Return the view of a call."""
    known = _CACHE.get(node)
    if known is not None and known[0] is node.target and known[1] is node.args and known[2] is node.kwargs:
        return known[3]
    made = _view(node)
    _CACHE[node] = (node.target, node.args, node.kwargs, made)
    return made


def _view(node: Node) -> Arguments:
    op = underlying(node.target)
    schema = getattr(op, "_schema", None)
    if schema is None:
        named = {str(index): value for index, value in enumerate(node.args)}
        return Arguments({**named, **node.kwargs}, {})
    traits = traits_of(op)
    values: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    rank = _rank(node, traits) if traits.dims else None
    for index, argument in enumerate(schema.arguments):
        name = argument.name
        if index < len(node.args) and not argument.kwarg_only:
            value = normalised_literal(argument.type, node.args[index])
        elif name in node.kwargs:
            value = normalised_literal(argument.type, node.kwargs[name])
        else:
            value = default_of(argument) if argument.has_default_value() else None
        if rank is not None and name in traits.dims:
            ranks[name] = rank
            value = _from_front(value, rank)
        elif name in traits.pairs and isinstance(value, list | tuple) and len(value) == 1:
            value = [value[0], value[0]]
        values[name] = list(value) if isinstance(value, tuple) else value
    if schema.name.partition("::")[2] in _SIZES:
        _resolve_sizes(node, values)
    return Arguments(values, ranks)


def _rank(node: Node, traits: Traits) -> int | None:
    source: Any = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    if isinstance(source, list | tuple):
        source = source[0] if source else None
    value = source.meta.get("val") if isinstance(source, Node) else None
    return value.dim() + traits.new_dims if isinstance(value, torch.Tensor) else None


def _from_front(value: Any, rank: int) -> Any:
    if isinstance(value, list | tuple):
        return [_from_front(one, rank) for one in value]
    return value + max(1, rank) if type(value) is int and value < 0 else value


def _resolve_sizes(node: Node, values: dict[str, Any]) -> None:
    result = node.meta.get("val")
    if not isinstance(result, torch.Tensor):
        return
    for name in ("size", "shape"):
        sizes = values.get(name)
        if (
            isinstance(sizes, list)
            and len(sizes) == result.dim()
            and any(type(one) is int and one == -1 for one in sizes)
        ):
            values[name] = [
                result.shape[dim] if type(one) is int and one == -1 else one for dim, one in enumerate(sizes)
            ]

"""One view of the arguments of a call, however they were written; the graph stays as it is.

Arguments have the names of the schema, defaults are there, dims count from the front, `-1` in the sizes of a view is
what is meant, and so is a stride of nothing. Rules are matched against this view only.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import underlying

from .argument_binding import default_of, normaliser
from .facts import Traits, traits_of

_SIZES = {"view", "view_copy", "reshape", "expand", "expand_copy"}


class Arguments(dict[str, Any]):
    """Arguments of a call by name, in the order of the schema; shared, so they must not be changed."""

    __slots__ = ("_ranks",)

    def __init__(self, values: Mapping[str, Any], ranks: dict[str, int]) -> None:
        super().__init__(values)
        self._ranks = ranks

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


def normalized_arguments(node: Node) -> dict[str, Any]:
    """Return the arguments of a call by the names of the schema, however they were written.

    Args:
        node: A call of an operator, ATen or Edge; of other functions, arguments by position are named `0`, `1` ...

    Returns:
        All arguments, those that are not given as their defaults; dims count from the front, `-1` among the sizes of a
        view is what is meant, and one number for both dims of a window is two. The caller may change it.
    """
    return {
        name: list(value) if isinstance(value, list) else value for name, value in canonical_arguments(node).items()
    }


def argument_of(node: Node, name: str) -> Any:
    """Return one argument of a call as in its view; what is a node is found without making the view."""
    op = underlying(node.target)
    plan = _PLANS.get(id(op))
    if plan is not None:
        index, args = plan.places.get(name), node.args
        value = args[index] if index is not None and index < len(args) else None
        if type(value) is Node:
            return value
    return canonical_arguments(node).get(name)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """What is to know of one argument of an operator; asking the schema for it each time is slow."""

    name: str
    index: int | None
    normalise: Callable[[Any], Any] | None
    default: Any
    is_dim: bool
    is_pair: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the calls of one operator are viewed."""

    op: Any
    traits: Traits
    parameters: tuple[_Parameter, ...]
    places: Mapping[str, int]
    has_sizes: bool
    like: tuple[tuple[str, str], ...]


# Keyed by identity, since torch computes the hash of an operator in Python; the plan keeps its operator alive.
_PLANS: dict[int, _Plan] = {}


def _plan_of(op: Any, schema: Any) -> _Plan:
    plan = _PLANS.get(id(op))
    if plan is None:
        traits = traits_of(op)
        parameters = tuple(_parameter(index, argument, traits) for index, argument in enumerate(schema.arguments))
        places = {one.name: one.index for one in parameters if one.index is not None}
        like = tuple(
            (name, other) for name, other in traits.defaults.items() if any(other == one.name for one in parameters)
        )
        plan = _Plan(op, traits, parameters, places, schema.name.partition("::")[2] in _SIZES, like)
        _PLANS[id(op)] = plan
    return plan


def _parameter(index: int, argument: Any, traits: Traits) -> _Parameter:
    return _Parameter(
        name=argument.name,
        index=None if argument.kwarg_only else index,
        normalise=normaliser(argument.type),
        default=default_of(argument) if argument.has_default_value() else None,
        is_dim=argument.name in traits.dims,
        is_pair=argument.name in traits.pairs,
    )


def _view(node: Node) -> Arguments:
    op = underlying(node.target)
    schema = getattr(op, "_schema", None)
    args, kwargs = node.args, node.kwargs
    if schema is None:
        named = {str(index): value for index, value in enumerate(args)}
        return Arguments({**named, **kwargs}, {})
    plan = _plan_of(op, schema)
    values: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    count = len(args)
    rank = _rank(node, plan.traits) if plan.traits.dims else None
    for parameter in plan.parameters:
        name, index = parameter.name, parameter.index
        value = args[index] if index is not None and index < count else kwargs.get(name, parameter.default)
        if type(value) is not Node:
            value = _normalised(value, parameter, rank)
        if rank is not None and parameter.is_dim:
            ranks[name] = rank
        values[name] = value
    if plan.has_sizes:
        _resolve_sizes(node, values)
    for name, other in plan.like:
        if values[name] == []:
            values[name] = values[other]
    return Arguments(values, ranks)


def _normalised(value: Any, parameter: _Parameter, rank: int | None) -> Any:
    if parameter.normalise is not None:
        value = parameter.normalise(value)
    if rank is not None and parameter.is_dim:
        value = _from_front(value, rank)
    elif parameter.is_pair and isinstance(value, list | tuple) and len(value) == 1:
        value = [value[0], value[0]]
    # Lists are copied: a default belongs to the plan.
    return list(value) if isinstance(value, list | tuple) else value


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

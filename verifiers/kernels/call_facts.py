"""What a call hands to its kernel: dtypes, sizes and orders of dims of tensors, and plain values."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

import torch
from torch.fx import Node

from exirkit.ir import TensorShapeDynamism, TensorSpec, dim_order_from_stride, underlying


class Unknown:
    """Stands for what is known only when the program runs."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor as a kernel sees it.

    Attributes:
        dtype: `float32`.
        sizes: Of its dims; `UNKNOWN` for one that varies.
        order: Its dims from the outermost to the innermost in memory, or `UNKNOWN`.
    """

    dtype: str
    sizes: tuple[int | Unknown, ...]
    order: tuple[int, ...] | Unknown


Fact: TypeAlias = TensorFacts | int | float | bool | str | Unknown | tuple["Fact", ...] | None
CallFacts: TypeAlias = Mapping[str, Fact]


class CallReader:
    """Reads calls of one operator.

    Args:
        op: The operator.
        only: Names of arguments that are asked for; all when absent.
    """

    def __init__(self, op: Any, only: Container[str] | None = None) -> None:
        arguments = [one for one in op._schema.arguments if only is None or one.name in only]
        self._defaults = {one.name: _of_value(one.default_value) for one in arguments if one.has_default_value()}
        places = enumerate(one.name for one in op._schema.arguments if not one.kwarg_only)
        self._places = [(place, name) for place, name in places if only is None or name in only]
        self._names = [one.name for one in arguments]

    def facts(self, node: Node, known: dict[Node, Fact]) -> dict[str, Fact]:
        """Return what a call hands to its kernel, by names of arguments; defaults are filled in.

        Args:
            node: The call.
            known: What nodes are, as far as it was found out before; it is added to.
        """
        found: dict[str, Fact] = self._defaults.copy()
        args, kwargs = node.args, node.kwargs
        for place, name in self._places:
            if place >= len(args):
                break
            found[name] = _fact_of(args[place], known)
        for name in self._names if kwargs else ():
            if name in kwargs:
                found[name] = _fact_of(kwargs[name], known)
        return found


def facts_of_call(node: Node) -> dict[str, Fact]:
    """Return what a call in a graph hands to its kernel, by names of arguments; defaults are filled in."""
    return CallReader(underlying(node.target)).facts(node, {})


_PLAIN: Final = frozenset({int, float, bool, str, type(None)})


def _fact_of(argument: Any, known: dict[Node, Fact]) -> Fact:
    if type(argument) in _PLAIN:
        return argument  # type: ignore[no-any-return]
    if isinstance(argument, Node):
        fact = known.get(argument)
        if fact is None:
            spec = argument.meta.get("spec")
            fact = _of_value(spec if isinstance(spec, TensorSpec) else argument.meta.get("val", UNKNOWN))
            known[argument] = fact
        return fact
    if isinstance(argument, list | tuple):
        return tuple([_fact_of(one, known) for one in argument])
    return _of_value(argument)


def _of_value(value: Any) -> Fact:
    if isinstance(value, TensorSpec):
        if value.shape_dynamism == TensorShapeDynamism.STATIC:
            sizes = tuple([one if isinstance(one, int) else UNKNOWN for one in value.shape])
            return TensorFacts(_plain_name(value.dtype), sizes, tuple(value.dim_order))
        return TensorFacts(_plain_name(value.dtype), (UNKNOWN,) * len(value.shape), tuple(value.dim_order))
    if isinstance(value, torch.Tensor):
        return _of_tensor(value)
    if isinstance(value, list | tuple):
        return tuple(map(_of_value, value))
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return _plain_name(value)
    return value if value is None or isinstance(value, bool | int | float | str) else UNKNOWN


def _of_tensor(value: torch.Tensor) -> TensorFacts:
    sizes = tuple(size if type(size) is int else UNKNOWN for size in value.shape)
    try:
        order: tuple[int, ...] | Unknown = tuple(dim_order_from_stride(value.stride(), value.shape))
    except (RuntimeError, ValueError, TypeError):
        order = UNKNOWN
    return TensorFacts(_plain_name(value.dtype), sizes, order)


@cache
def _plain_name(value: Any) -> str:
    return str(value).removeprefix("torch.")


def shown_fact(fact: Fact) -> str:
    """Return an argument as messages show it: `float32[2, 3] order [1, 0]`, `[-1, -1]`."""
    if isinstance(fact, TensorFacts):
        sizes = ", ".join(map(str, fact.sizes))
        is_plain = fact.order == tuple(range(len(fact.sizes)))
        return f"{fact.dtype}[{sizes}]" + ("" if is_plain else f" in the order {fact.order}")
    if isinstance(fact, tuple):
        return f"[{', '.join(map(shown_fact, fact))}]"
    return str(fact)

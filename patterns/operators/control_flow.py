"""Operators of control flow as rules write them, and what their bodies are: functions over tensors, or over nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch

from exirkit.patterns.syntax.terms import Operator

NAMESPACE = "higher_order"


class BodyBuilder(Protocol):
    """What makes the calls of a body."""

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        ...


@runtime_checkable
class Body(Protocol):
    """A body of control flow: a graph of a program, a program of a rule, or a function that trials draw."""

    def results(self, builder: BodyBuilder, args: Sequence[Any]) -> list[Any]:
        """Return what the body gives for arguments."""
        ...


@dataclass(frozen=True)
class Argument:
    """One argument, as schemas of torch describe theirs."""

    name: str
    type: str
    kwarg_only: bool = False
    is_out: bool = False
    alias_info: Any = None

    @property
    def real_type(self) -> str:
        """The type."""
        return self.type

    def has_default_value(self) -> bool:
        """Return False: all are written."""
        return False


@dataclass(frozen=True)
class Schema:
    """What rules ask of a schema."""

    name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...] = (Argument("", "List[Tensor]"),)
    overload_name: str = "default"
    is_mutable: bool = False

    def __str__(self) -> str:
        shown = ", ".join(f"{one.type} {one.name}" for one in self.arguments)
        return f"{self.name}({shown}) -> Tensor[]"


@dataclass(frozen=True, eq=False)
class ControlFlow:
    """An operator that runs bodies.

    Attributes:
        kind: Name that torch gives it.
        bodies: Names of its bodies, in the order of its arguments.
        lists: Names of the lists of operands that the bodies are given, one after another.
        carried: How many of the lists are carried: results of a body stand for their operands, in their order.
        single: Body of which the result is one value, and no list.
    """

    kind: str
    bodies: tuple[str, ...]
    lists: tuple[str, ...]
    carried: int = 0
    single: str | None = None

    @property
    def target(self) -> Callable[..., Any]:
        """The operator of torch."""
        found: Callable[..., Any] = getattr(torch.ops.higher_order, self.kind)
        return found

    @cached_property
    def _schema(self) -> Schema:
        first = () if self.kind != "cond" else (Argument("pred", "Tensor"),)
        bodies = tuple(Argument(name, "Body") for name in self.bodies)
        lists = tuple(Argument(name, "List[Tensor]") for name in self.lists)
        # A scan has its lists behind its body, as all have.
        return Schema(f"{NAMESPACE}::{self.kind}", (*first, *bodies, *lists))

    def __str__(self) -> str:
        return f"{NAMESPACE}.{self.kind}"

    def __call__(self, *args: Any) -> Any:
        """Run it on tensors, or let torch trace it."""
        from exirkit.patterns.operators.defined import TensorBuilder

        given: list[Any] = []
        for argument, value in zip(self._schema.arguments, args, strict=True):
            if argument.name in self.bodies:
                given.append(_function(value, TensorBuilder(), is_single=argument.name == self.single))
            else:
                given.append(tuple(value) if isinstance(value, list | tuple) else value)
        return self.target(*given)


def _function(body: Body, builder: BodyBuilder, *, is_single: bool) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        results = body.results(builder, args)
        if is_single:
            return results[0]
        # A body gives nothing that it was given, and nothing twice.
        kept: list[Any] = []
        for one in results:
            is_known = any(one is other for other in (*args, *kept))
            kept.append(torch.clone(one) if is_known and isinstance(one, torch.Tensor) else one)
        return tuple(kept)

    return run


CONTROL_FLOW: dict[str, ControlFlow] = {
    f"{NAMESPACE}.{one.kind}": one
    for one in (
        ControlFlow("cond", ("then", "orelse"), ("operands",)),
        ControlFlow("while_loop", ("condition", "body"), ("carried", "shared"), 1, "condition"),
        ControlFlow("map_impl", ("body",), ("sliced", "shared")),
        ControlFlow("scan", ("body",), ("carried", "sliced", "shared"), 1),
    )
}
"""The operators of control flow by the names that rules have for them."""


def control_flow_named(dotted: str) -> ControlFlow | None:
    """Return an operator of control flow by the name that rules write."""
    return CONTROL_FLOW.get(dotted.removesuffix(".default"))


def distributed(count: int, first: Sequence[str], rest: str | None, last: Sequence[str]) -> Iterator[Any] | None:
    """Return the positions of arguments by parameter: first ones, the rest as a list if there is one, last ones.

    Args:
        count: How many arguments there are.
        first: Parameters in front of `*rest`.
        rest: Parameter of all in between.
        last: Parameters behind it.
    """
    named = len(first) + len(last)
    if count < named or (rest is None and count != named):
        return None
    middle = list(range(len(first), count - len(last)))
    return iter([*range(len(first)), *([middle] if rest is not None else []), *range(count - len(last), count)])

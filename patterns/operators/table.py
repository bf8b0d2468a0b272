"""From the names that rules write to operators, with a suggestion where there is none."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from exirkit.ir import (
    UnknownOperatorError,
    facts_of,
    operator_name,
    ops,
    register_quantized_decomposed,
    registered_operator_names,
    underlying,
)
from exirkit.patterns.operators.control_flow import CONTROL_FLOW, ControlFlow, control_flow_named
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.types.literals import DTYPE_NAMES, PLAIN_VALUES

# Namespaces of torch and of exirkit, in which no distribution offers operators.
_KNOWN = frozenset({"aten", "prim", "prims", "quantized_decomposed", "dim_order_ops"})


class UnknownNameError(Exception):
    """No operator has the name.

    Attributes:
        hint: What may have been meant.
    """

    def __init__(self, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class OperatorTable:
    """The operators that a book knows: those of torch, those of exirkit, and those it defines."""

    def __init__(self, defined: Mapping[str, Operator] | None = None) -> None:
        self.defined = dict(defined or {})

    def find(self, dotted: str) -> Operator:
        """Return the operator of a name `aten.add.Tensor`, `bk.add_relu` or `bk.add_relu.default`.

        Raises:
            UnknownNameError: There is none.
        """
        own = self.defined.get(dotted) or self.defined.get(dotted.removesuffix(".default"))
        if own is not None:
            return own
        control_flow = control_flow_named(dotted)
        if control_flow is not None:
            return control_flow
        parts = dotted.split(".")
        if len(parts) not in (2, 3) or not all(part.isidentifier() for part in parts):
            raise UnknownNameError(f"{dotted!r} is not an operator", "operators are written aten.add.Tensor")
        namespace, name, *overload = parts
        offered = self._offered(dotted, namespace)
        if offered is not None:
            return offered
        if namespace == "quantized_decomposed":
            register_quantized_decomposed()
        try:
            packet = getattr(getattr(ops.edge, namespace), name)
            if not overload:
                return self._only_overload(dotted, packet)
            return underlying(getattr(packet, overload[0]))
        except UnknownOperatorError:
            raise UnknownNameError(f"there is no operator {dotted}", self._similar(dotted)) from None
        except (AttributeError, RuntimeError):
            raise UnknownNameError(f"there is no operator {dotted}", self._similar(dotted)) from None

    def _offered(self, dotted: str, namespace: str) -> Operator | None:
        """Return an operator that an installed distribution offers; asked for what is not registered."""
        if namespace in _KNOWN or hasattr(getattr(torch.ops, namespace), dotted.split(".")[1]):
            return None
        from exirkit.patterns.operators.defined import operators_offered

        offered = operators_offered(namespace)
        return offered.get(dotted) or offered.get(dotted.removesuffix(".default"))

    def _only_overload(self, dotted: str, packet: Any) -> Operator:
        names = packet.overloads()
        if "default" in names:
            return underlying(packet.default)
        raise UnknownNameError(
            f"{dotted} names {len(names)} operators",
            f"say which: {', '.join(f'{dotted}.{each}' for each in names[:6])}",
        )

    def _similar(self, dotted: str) -> str | None:
        namespace, _, rest = dotted.partition(".")
        known = [name.replace("::", ".") for name in registered_operator_names()]
        mine = [
            name if name.count(".") > 1 else f"{name}.default" for name in known if name.startswith(f"{namespace}.")
        ]
        mine += [*self.defined, *CONTROL_FLOW]
        name = rest.partition(".")[0]
        overloads = [each for each in mine if each.split(".")[:2] == [namespace, name]]
        if overloads:
            close = difflib.get_close_matches(dotted, overloads, n=1, cutoff=0.0)
            return f"did you mean {close[0]}?"
        close = difflib.get_close_matches(dotted, mine, n=1, cutoff=0.7)
        if close:
            return f"did you mean {close[0]}?"
        if not mine:
            return f"nothing registers operators {namespace}.*; define them under `ops`, or import the library first"
        return None


def dotted_name(node: ast.expr) -> str | None:
    """Return `a.b.c` of a chain of attributes, or None if it is something else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def name_of(op: Operator) -> str:
    """Return the name under which rules know an operator: `aten.add.Tensor`."""
    schema = op._schema
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


DTYPES = DTYPE_NAMES
CONSTANTS: dict[str, Any] = {**DTYPES, **PLAIN_VALUES}
"""Names that are values wherever they stand."""


# Facts about operators, from the operator catalogue

FAMILIES = ("unary_pointwise", "pointwise", "copy_like", "views", "reductions", "quantize", "dequantize")
"""Families of operators that rules may name: traits of the operator catalogue."""

_JOINS = ("aten.cat.default", "aten.stack.default")


@dataclass(frozen=True)
class Traits:
    """Facts of one operator.

    Attributes:
        commutes: Pairs of arguments that may be exchanged, and the condition on the others.
        dims: Arguments that count dims.
        new_dims: How many dims the result has more than the first tensor, for counting `dims`.
        pairs: Lists in which one element stands for two.
        moves_data: It computes nothing: values come out as they went in.
        defaults: What arguments mean that have their defaults.
    """

    commutes: tuple[tuple[str, str, Callable[[Mapping[str, Any]], bool] | None], ...] = ()
    dims: frozenset[str] = frozenset()
    new_dims: int = 0
    pairs: frozenset[str] = frozenset()
    moves_data: bool = False
    defaults: Mapping[str, str] = field(default_factory=dict)


def traits_of(op: Operator) -> Traits:
    """Return the facts of an operator, or of the one behind a handle."""
    known = _TRAITS.get(id(op))
    if known is None:
        known = _TRAITS[id(op)] = op, _traits(underlying(op))
    return known[1]


# By identity, since torch computes the hash of an operator in Python; the operator is kept so that it lives.
_TRAITS: dict[int, tuple[Operator, Traits]] = {}


@cache
def _traits(op: Operator) -> Traits:
    if isinstance(op, ControlFlow):
        return Traits()
    facts = facts_of(op)
    pair = facts.commutes
    return Traits(
        commutes=() if pair is None else ((*pair.arguments, _condition(pair.when)),),
        dims=frozenset(facts.dims or facts.result_dims),
        new_dims=int(bool(facts.result_dims)),
        pairs=frozenset(facts.pairs),
        moves_data=not facts.traits.isdisjoint(("copy_like", "views")) or operator_name(op) in _JOINS,
        defaults=facts.defaults,
    )


def _condition(when: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool] | None:
    if not when:
        return None
    return lambda arguments: all(arguments[name] == value for name, value in when.items())

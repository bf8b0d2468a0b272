"""Calls of operators: the operator's name, arguments by name, functional variants of out variants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from exirkit.ir.operators.defined_operators import DefinedOperator, defined_operator
from exirkit.ir.operators.handles import underlying

_TENSOR_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format"})
"""Arguments of operators that make tensors; an `out` tensor carries them already."""


def operator_name(target: Any) -> str:
    """Return the name of the operator behind a graph target, `aten.add.Tensor`; empty if there is none."""
    schema = getattr(underlying(target), "_schema", None)
    if schema is None:
        return ""
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def out_operator_name(target: object) -> str:
    """Return the name of the operator behind a graph target, such as `aten::add.out`; empty if there is none."""
    schema = getattr(underlying(target), "_schema", None)
    if not isinstance(schema, torch.FunctionSchema):
        return ""
    return f"{schema.name}.{schema.overload_name}"


def named_arguments(node: Node, schema: torch.FunctionSchema | None = None) -> dict[str, Any]:
    """Return the arguments that a call gives, by the names that its schema has for them; empty without a schema.

    Args:
        node: A call.
        schema: Schema of its operator, if the caller has it.
    """
    names = _positional(underlying(node.target)) if schema is None else (one.name for one in schema.arguments)
    return {} if names is None else {**dict(zip(names, node.args, strict=False)), **node.kwargs}


@cache
def _positional(op: Any) -> tuple[str, ...] | None:
    schema = getattr(op, "_schema", None)
    return None if schema is None else tuple(one.name for one in schema.arguments if not one.kwarg_only)


def written_by_position(
    op: OpOverload | DefinedOperator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Write a call as torch.export does: what may be given by position is, with defaults before it where it must be.

    Args:
        op: The operator.
        args: Arguments by position.
        kwargs: Arguments by name.
    """
    places = [one for one in op._schema.arguments if not one.kwarg_only]
    last = max((place for place, one in enumerate(places) if one.name in kwargs), default=-1)
    named = dict(kwargs)
    values = [named.pop(one.name) if one.name in named else one.default_value for one in places[len(args) : last + 1]]
    return (*args, *values), named


@cache
def is_out_variant(op: Any) -> bool:
    """Return whether an operator writes its results into given tensors."""
    return any(argument.is_out for argument in op._schema.arguments)


@cache
def returns_view(target: Any) -> bool:
    """Return whether an operator returns a tensor in the memory of an argument, without writing to it."""
    aliases = [result.alias_info for result in underlying(target)._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


@cache
def functional_variant(op: Any) -> Any:
    """Return the operator that computes what an out variant writes, or None.

    It takes the same arguments, except the out arguments and what these carry, and returns as many results.
    """
    if isinstance(op, DefinedOperator):
        return defined_operator(op._schema.name)
    wanted, results = _kinds(op), len(op._schema.returns)
    for name in op.overloadpacket.overloads():
        one = getattr(op.overloadpacket, name)
        # Variants that fill a list of tensors return nothing.
        if one._schema.is_mutable or is_out_variant(one) or (results and len(one._schema.returns) != results):
            continue
        found = _kinds(one)
        if found.items() >= wanted.items() and found.keys() - wanted.keys() <= _TENSOR_OPTIONS:
            return one
    return None


def functional_call(node: Node) -> tuple[Any, tuple[Any, ...], dict[str, Any], bool]:
    """Return what to run to infer the value of a call: operator, arguments, and whether its dtype can be trusted.

    The operator is None for an out variant without a functional variant.
    """
    op = underlying(node.target)
    if not isinstance(op, OpOverload | DefinedOperator) or not is_out_variant(op):
        return node.target, node.args, dict(node.kwargs), True
    functional = functional_variant(op)
    if functional is None:
        return None, (), {}, False
    given = named_arguments(node)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, argument in enumerate(functional._schema.arguments):
        if argument.name not in given:
            continue
        if argument.kwarg_only or len(args) < place:
            kwargs[argument.name] = given[argument.name]
        else:
            args.append(given[argument.name])
    lost = _kinds(functional).keys() - {argument.name for argument in op._schema.arguments}
    return functional, tuple(args), kwargs, "dtype" not in lost


def _kinds(op: Any) -> dict[str, str]:
    return {one.name: str(one.real_type) for one in op._schema.arguments if not one.is_out}


@contextmanager
def without_machine_libraries() -> Iterator[None]:
    """Keep torch from kernels of oneDNN: they are not core operators, and what they take depends on the processor."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)

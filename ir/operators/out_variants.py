"""Finding, for an operator, the overload that writes its results into given tensors."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._ops import OpOverload

from .defined_operators import DefinedOperator

# The tensor that is written to carries these already.
_FACTORY_ARGUMENTS = frozenset({"dtype", "layout", "device", "pin_memory"})


def find_out_variant(op: OpOverload | DefinedOperator) -> OpOverload | DefinedOperator | None:
    """Find the overload of the same packet that takes the same arguments and writes into `out` tensors.

    Arguments are compared by name and type. An overload that takes the factory arguments too (dtype, layout, device,
    pin memory) is preferred; they may be missing, since the given tensor carries them.

    Returns:
        The overload, or None where the library registers none. An out variant is its own.
    """
    if isinstance(op, DefinedOperator):
        return op.out_variant()
    wanted = _plain_arguments(op._schema)
    results = sum(argument.is_out for argument in op._schema.arguments) or len(op._schema.returns)
    candidates = [(found, _plain_arguments(found._schema)) for found in _out_overloads(op, results)]
    for found, arguments in candidates:
        if arguments == wanted:
            return found
    wanted = _without_factory(wanted)
    return next((found for found, arguments in candidates if _without_factory(arguments) == wanted), None)


def _out_overloads(op: OpOverload, results: int) -> Iterator[OpOverload]:
    packet = op._overloadpacket
    for name in packet.overloads():
        overload: OpOverload = getattr(packet, name)
        if results and sum(argument.is_out for argument in overload._schema.arguments) == results:
            yield overload


def _plain_arguments(schema: torch.FunctionSchema) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in schema.arguments if not argument.is_out]


def _without_factory(arguments: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in arguments if name not in _FACTORY_ARGUMENTS]

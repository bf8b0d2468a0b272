"""Arguments of a call become indices of values, in the order and the types of the operator's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import Diagnostic, ModelError, locate

from .values import ValueTable

Ids = int | Sequence[int | None]
"""Where the value of a node is: one index, or one for each element of a sequence."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a schema.

    Attributes:
        name: Its name.
        kind: `tensor`, `int`, `float`, `bool`, `number` or another type's name; the type of elements for a list.
        is_list: Whether a list is wanted.
        length: Number of elements to which a single one is repeated, None if a single one makes a list of one.
        allows_none: Whether an element (of a list) or the argument may be None.
        is_keyword: Whether it goes by name only.
        is_out: Whether the operator writes its result there.
        default: Value where the call leaves it out.
    """

    name: str
    kind: str
    is_list: bool
    length: int | None
    allows_none: bool
    is_keyword: bool
    is_out: bool
    default: Any


_KINDS = {
    "TensorType": "tensor",
    "IntType": "int",
    "SymIntType": "int",
    "FloatType": "float",
    "BoolType": "bool",
    "NumberType": "number",
}


@cache
def parameters(op: Any) -> tuple[Parameter, ...]:
    """Return the arguments that an operator takes, in the order in which a kernel gets them."""
    return tuple(_parameter(argument) for argument in op._schema.arguments)


def _parameter(argument: Any) -> Parameter:
    kind, allows_none = argument.type, False
    if isinstance(kind, torch.OptionalType):
        kind, allows_none = kind.getElementType(), True
    is_list = isinstance(kind, torch.ListType)
    if is_list:
        kind, allows_none = kind.getElementType(), False
        if isinstance(kind, torch.OptionalType):
            kind, allows_none = kind.getElementType(), True
    return Parameter(
        name=argument.name,
        kind=_KINDS.get(type(kind).__name__, str(kind)),
        is_list=is_list,
        length=argument.N,
        allows_none=allows_none,
        is_keyword=argument.kwarg_only,
        is_out=argument.is_out,
        default=argument.default_value if argument.has_default_value() else None,
    )


def call_values(node: Node, op: Any) -> list[tuple[Parameter, Any]]:
    """Return each parameter of an operator with what a call gives for it."""
    given, named = node.args, node.kwargs
    result: list[tuple[Parameter, Any]] = []
    for position, parameter in enumerate(parameters(op)):
        if not parameter.is_keyword and position < len(given):
            result.append((parameter, given[position]))
        else:
            result.append((parameter, named.get(parameter.name, parameter.default)))
    return result


class ArgumentWriter:
    """Turns arguments into indices of values.

    Args:
        values: Table to which constants and lists are added.
        ids: Where the value of each node is.
    """

    def __init__(self, values: ValueTable, ids: Mapping[Node, Ids]) -> None:
        self._values = values
        self._ids = ids

    def write(self, node: Node, parameter: Parameter, value: Any) -> int:
        """Return the index of one argument.

        Args:
            node: The call, for messages.
            parameter: What the schema wants.
            value: A node, a constant, or a list of them.

        Raises:
            ModelError: EK552, the value has no place in the format.
        """
        found = self._list(node, parameter, value) if parameter.is_list else self._single(parameter, value)
        if found is None:
            raise ModelError(_no_such_value(node, parameter, value))
        return found

    def _single(self, parameter: Parameter, value: Any) -> int | None:
        if isinstance(value, Node):
            found = self._ids[value]
            return found if isinstance(found, int) else None
        if parameter.kind == "tensor" and value is not None:
            return None
        if parameter.kind == "tensor" and not parameter.allows_none:
            return self._values.empty_tensor()
        if parameter.kind == "float" and isinstance(value, int):
            value = float(value)
        return self._values.constant(value)

    def _list(self, node: Node, parameter: Parameter, value: Any) -> int | None:
        if value is None:
            return self._values.constant(None)
        if isinstance(value, Node):
            found = self._ids[value]
            if isinstance(found, int):
                items: Sequence[Any] = [value]
            else:
                return self._values.tensors([one for one in found if one is not None])
        elif isinstance(value, list | tuple):
            items = value
        else:
            items = [value] * (parameter.length or 1)
        return self._items(parameter, items)

    def _items(self, parameter: Parameter, items: Sequence[Any]) -> int | None:
        if parameter.kind == "tensor":
            ids = [-1 if item is None else self._single(parameter, item) for item in items]
            if any(one is None for one in ids):
                return None
            known = [one for one in ids if one is not None]
            return self._values.optional_tensors(known) if parameter.allows_none else self._values.tensors(known)
        if parameter.kind == "int":
            numbers = [self._single(parameter, item) for item in items]
            known = [one for one in numbers if one is not None]
            return self._values.integers(known) if len(known) == len(numbers) else None
        # Floats and bools are stored in the list itself, so none of them can be computed at run time.
        if any(not isinstance(item, bool | int | float) for item in items):
            return None
        if parameter.kind == "bool":
            return self._values.flags([bool(item) for item in items])
        return self._values.floats([float(item) for item in items]) if parameter.kind == "float" else None


def _no_such_value(node: Node, parameter: Parameter, value: Any) -> Diagnostic:
    what = f"%{value.name}" if isinstance(value, Node) else repr(value)
    wanted = f"a list of {parameter.kind}" if parameter.is_list else parameter.kind
    return Diagnostic(
        code="EK552",
        message=f"{what} cannot be stored as argument `{parameter.name}` of {node.target}",
        location=locate(node),
        expected=wanted,
    )

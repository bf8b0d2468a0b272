"""What operators compute on symbolic tensors: the table, and the builder that runs programs with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import z3

from exirkit.ir import underlying
from exirkit.patterns.operators.arguments import default_of
from exirkit.patterns.operators.defined import definition_of
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.proving.elements import Scalar, sizes_equal
from exirkit.patterns.proving.paths import Number, Path, UnsupportedError, integer
from exirkit.patterns.proving.tensors import Index, SymbolicTensor, method
from exirkit.patterns.syntax.programs import Program

Meaning = Callable[..., Any]

MEANINGS: dict[str, Meaning] = {}
"""By name of the operator, without `_copy`: what it computes; called with its arguments by name, and the path."""

MOVERS: set[str] = set()
"""Operators that only move data: what they do does not depend on the dtype."""

POINTWISE: set[str] = set()
"""Operators whose elements depend on the elements of their broadcast operands alone."""


def meaning(*names: str, moves: bool = False, methods: Sequence[str] = ()) -> Callable[[Meaning], Meaning]:
    """Let a function be the meaning of operators.

    Args:
        names: Names, `aten.view.default`.
        moves: They only move data.
        methods: Names under which the language calls it as a method of a constant.
    """

    def register(function: Meaning) -> Meaning:
        for name in names:
            MEANINGS[name] = function
            if moves:
                MOVERS.add(name)
        return function

    return register


def plain_name(op: Any) -> str:
    """Return the name of an operator by which its meaning is found: that of the view for a copy of one."""
    name = name_of(op)
    space, _, rest = name.partition(".")
    base, _, overload = rest.partition(".")
    return f"{space}.{base.removesuffix('_copy') if base not in ('_to_copy',) else base}.{overload or 'default'}"


class SymbolicBuilder:
    """Runs calls of operators on symbolic tensors.

    Args:
        path: The path that they are on.

    Attributes:
        met: Names of the operators that were run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.met: set[str] = set()

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several.

        Raises:
            UnsupportedError: The operator has no meaning here.
        """
        given = self._bound(op, args, kwargs)
        name = plain_name(op)
        found = MEANINGS.get(name)
        if found is not None:
            self.met.add(name)
            return found(self.path, **given)
        program = definition_of(op)
        if isinstance(program, Program):
            results = program.run(given, self)
            return results[0] if len(op._schema.returns) == 1 and len(results) == 1 else results
        real = underlying(op)
        if torch.Tag.pointwise in getattr(real, "tags", ()):
            self.met.add(name)
            POINTWISE.add(name)
            return unknown_pointwise(self.path, real, name, given)
        raise UnsupportedError(f"{name} has no semantics")

    @staticmethod
    def _bound(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for at, argument in enumerate(op._schema.arguments):
            if at < len(args):
                given[argument.name] = args[at]
            elif argument.name in kwargs:
                given[argument.name] = kwargs[argument.name]
            elif argument.has_default_value():
                given[argument.name] = default_of(argument)
            else:
                raise UnsupportedError(f"{op} without {argument.name}")
        return given


# Broadcasting


def broadcast_sizes(path: Path, shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the sizes to which shapes broadcast; that they do is required."""
    rank = max((len(one) for one in shapes), default=0)
    result: list[Any] = []
    for back in range(rank, 0, -1):
        size: Any = 1
        for shape in shapes:
            if len(shape) >= back:
                size = _broadcast(path, size, shape[-back])
        result.append(size)
    return result


def _broadcast(path: Path, one: Any, other: Any) -> Any:
    if isinstance(one, int) and one == 1:
        return other
    if (isinstance(other, int) and other == 1) or sizes_equal(path, one, other):
        return one
    a, b = integer(one), integer(other)
    path.require(z3.Or(a == b, a == 1, b == 1), f"sizes {one} and {other} that broadcast")
    if path.holds(a == 1):
        return other
    if path.holds(b == 1) or path.holds(a == b):
        return one
    return Number(path, z3.If(a == 1, b, a))


def broadcast_index(tensor: Any, index: Index, sizes: Sequence[Any]) -> Index:
    """Return the index of the element of an operand from that of the result."""
    shape = tensor.shape
    missing = len(index) - len(shape)
    found: list[Any] = []
    for at, size in enumerate(shape):
        place = integer(index[missing + at])
        if isinstance(size, int):
            found.append(z3.IntVal(0) if size == 1 else place)
        elif z3.simplify(integer(size)).eq(z3.simplify(integer(sizes[missing + at]))):
            found.append(place)
        else:
            found.append(z3.If(integer(size) == 1, 0, place))
    return tuple(found)


# Dtypes of results


def stand_in(value: Any) -> Any:
    """Return a small real value of the same dtype and kind."""
    if isinstance(value, SymbolicTensor):
        return torch.ones((1,) * min(1, value.dim()), dtype=value.dtype)
    if isinstance(value, list | tuple):
        return [stand_in(one) for one in value]
    return value.stand_in if isinstance(value, Scalar | Number) else value


def promoted(*values: Any) -> torch.dtype:
    """Return the dtype that torch computes in for tensors and numbers."""
    made = [stand_in(one) for one in values]
    if len(made) == 1:
        found: torch.dtype = made[0].dtype
        return found
    return torch.result_type(made[0], made[1])


def element_of(elements: Any, value: Any, dtype: torch.dtype, index: Index, sizes: Sequence[Any]) -> Any:
    """Return the element of a broadcast operand, or a number, in a dtype."""
    if isinstance(value, SymbolicTensor):
        found = value.at(elements, broadcast_index(value, index, sizes))
        return elements.cast(found, value.dtype, dtype)
    return elements.constant(value, dtype)


def pointwise(
    path: Path, operands: Sequence[Any], dtype: torch.dtype, compute: Any, *, within: torch.dtype | None = None
) -> SymbolicTensor:
    """Return a tensor computed element by element.

    Args:
        path: The path it is on.
        operands: Tensors and numbers.
        dtype: Dtype of the result.
        compute: From an evaluator and the elements of the operands to that of the result.
        within: Dtype that operands are cast to; each keeps its own if it is None.
    """
    tensors = [one for one in operands if isinstance(one, SymbolicTensor)]
    sizes = broadcast_sizes(path, [one.shape for one in tensors])

    def element(elements: Any, index: Index) -> Any:
        found = []
        for one in operands:
            own = within or (one.dtype if isinstance(one, SymbolicTensor) else None)
            found.append(_raw(elements, one) if own is None else element_of(elements, one, own, index, sizes))
        return compute(elements, *found)

    return SymbolicTensor.make(path, sizes, dtype, element)


def _raw(elements: Any, value: Any) -> Any:
    """Return a number as an argument of a function of which nothing is known."""
    if isinstance(value, Scalar | Number):
        return value.term
    if isinstance(value, bool):
        return z3.BoolVal(value)
    if isinstance(value, int):
        return z3.IntVal(value)
    if isinstance(value, float):
        return Scalar(elements.path, elements.constant(value, torch.float64)).term
    raise UnsupportedError(f"a {type(value).__name__} as an operand")


def unknown_pointwise(path: Path, op: Any, name: str, given: dict[str, Any]) -> Any:
    """Return the result of a pointwise operator of which nothing is known but that."""
    if len(op._schema.returns) != 1:
        raise UnsupportedError(f"{name} has no semantics")
    flat: list[Any] = []
    words = [name.rpartition(".")[0]]
    for key, value in given.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, SymbolicTensor | Scalar | Number | bool | int | float):
                flat.append(one)
                kind = one.dtype if isinstance(one, SymbolicTensor) else type(one).__name__
                words.append(f"{key}:{kind}")
            else:
                words.append(f"{key}={one}")
    try:
        dtype = op(**{key: stand_in(value) for key, value in given.items()}).dtype
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        raise UnsupportedError(f"{name} of {', '.join(words[1:])}") from error
    symbol = "|".join(words)
    return pointwise(path, flat, dtype, lambda ev, *found: ev.function(symbol, ev.sort(dtype), found))


def register_methods(names: dict[str, str]) -> None:
    """Let methods that rules call on constants be operators.

    Args:
        names: From the method to the operator; arguments are in the order of the meaning.
    """
    for name, operator in names.items():
        _register(name, operator)


def _register(name: str, operator: str) -> None:
    @method(name)
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = [one for one in args if isinstance(one, SymbolicTensor)]
        if not tensors:
            raise UnsupportedError(f"{name} of constants in lists")
        return MEANINGS[operator](tensors[0].path, *args, **kwargs)

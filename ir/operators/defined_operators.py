"""Operators that exirkit defines itself: dim-order operators, runtime primitives, functions that stand for memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch._subclasses import FakeTensor

from exirkit.ir.dim_order import Dim, dim_order_from_stride, sample_ints, stride_from_dim_order
from exirkit.ir.graph.metadata import empty_meta_tensor
from exirkit.ir.tensor_spec import TensorSpec


class DefinedOperator:
    """An operator with a schema and an executable meaning that torch does not know.

    Attributes:
        _schema: Parsed schema; the name carries the namespace.
        _overloadname: `default` where the schema names no overload.
    """

    def __init__(self, schema: str, meaning: Callable[..., Any], *, out_schema: str | None = None) -> None:
        self._schema: torch.FunctionSchema = torch._C.parse_schema(schema)
        self._overloadname: str = self._schema.overload_name or "default"
        self._meaning = meaning
        self._out_schema = out_schema
        self._out: DefinedOperator | None = None
        self.tags: tuple[torch.Tag, ...] = ()
        self.__name__ = f"{self._schema.name.replace('::', '.')}.{self._overloadname}"
        self.__module__ = "exirkit.ops"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the meaning on real, fake or symbolic values."""
        return self._meaning(*args, **kwargs)

    def name(self) -> str:
        """Return the qualified name, `dim_order_ops::_to_dim_order_copy`."""
        overload = self._schema.overload_name
        return f"{self._schema.name}.{overload}" if overload else self._schema.name

    def out_variant(self) -> DefinedOperator | None:
        """Return the operator that copies the result into a given tensor, or None where the schema has none."""
        if self._out is None and self._out_schema is not None:
            self._out = DefinedOperator(self._out_schema, _into_out(self._meaning))
        return self._out

    def __copy__(self) -> DefinedOperator:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DefinedOperator:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return _rebuild, (self.name(),)

    def __repr__(self) -> str:
        return f"<DefinedOperator {self._schema}>"


def defined_operator(name: str) -> DefinedOperator | None:
    """Return the operator of that qualified name (`executorch_prim::add.Scalar`), or None."""
    return _DEFINED.get(name)


def defined_operator_names() -> Sequence[str]:
    """Return the qualified names of all operators defined here."""
    return tuple(_DEFINED)


def _rebuild(name: str) -> DefinedOperator:
    found = _DEFINED.get(name)
    if found is not None:
        return found
    return next(out for op in _DEFINED.values() if (out := op.out_variant()) is not None and out.name() == name)


def _into_out(meaning: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def write(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        result = meaning(*args, **kwargs)
        # The result has the dtype of its source; only the copy casts to that of the tensor that is written.
        return _resized(out, result).copy_(result)

    return write


def _resized(out: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return `out` as it is if its sizes are right, else with sizes and strides of `like`, as out variants do."""
    if out.shape == like.shape:
        return out
    return out.resize_(like.numel()).as_strided_(like.shape, like.stride())


def _laid_out(
    source: torch.Tensor, dtype: torch.dtype | None, device: Any, dim_order: Sequence[int] | None
) -> torch.Tensor:
    order = dim_order_from_stride(source.stride(), source.shape) if dim_order is None else dim_order
    strides = stride_from_dim_order(source.shape, order)
    if isinstance(source, FakeTensor):
        # There is nothing to copy, and making the result by hand takes a tenth of the time of two operators.
        bare = empty_meta_tensor(dtype or source.dtype, source.shape, strides)
        return FakeTensor(source.fake_mode, bare, torch.device(device or source.device))
    result = torch.empty_strided(source.shape, strides, dtype=dtype or source.dtype, device=device or source.device)
    return result.copy_(source)


def _to_dim_order_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    dim_order: Sequence[int] | None = None,
) -> torch.Tensor:
    return _laid_out(self, dtype, device, dim_order)


def _clone_dim_order(
    self: torch.Tensor, *, non_blocking: bool = False, dim_order: Sequence[int] | None = None
) -> torch.Tensor:
    return _laid_out(self, None, None, dim_order)


def _empty_dim_order(
    size: Sequence[Any],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    dim_order: Sequence[int] | None = None,
) -> torch.Tensor:
    order = range(len(size)) if dim_order is None else dim_order
    strides = stride_from_dim_order(size, order)
    return torch.empty_strided(size, strides, dtype=dtype or torch.get_default_dtype(), device=device)


_TENSOR_OPTIONS = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"


def _dim_order_operators() -> list[DefinedOperator]:
    copy = "dim_order_ops::_to_dim_order_copy"
    clone = "dim_order_ops::_clone_dim_order"
    empty = "dim_order_ops::_empty_dim_order"
    tail = "int[]? dim_order=None"
    return [
        DefinedOperator(
            f"{copy}(Tensor self, *, {_TENSOR_OPTIONS}, bool non_blocking=False, {tail}) -> Tensor",
            _to_dim_order_copy,
            out_schema=f"{copy}.out(Tensor self, *, bool non_blocking=False, {tail}, Tensor(a!) out) -> Tensor(a!)",
        ),
        DefinedOperator(
            f"{clone}(Tensor self, *, bool non_blocking=False, {tail}) -> Tensor",
            _clone_dim_order,
            out_schema=f"{clone}.out(Tensor self, *, bool non_blocking=False, {tail}, Tensor(a!) out) -> Tensor(a!)",
        ),
        DefinedOperator(
            f"{empty}(SymInt[] size, *, {_TENSOR_OPTIONS}, {tail}) -> Tensor",
            _empty_dim_order,
            out_schema=f"{empty}.out(SymInt[] size, *, {tail}, Tensor(a!) out) -> Tensor(a!)",
        ),
    ]


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "truediv": operator.truediv,
    "mod": operator.mod,
    "eq": operator.eq,
    "gt": operator.gt,
    "lt": operator.lt,
    "ge": operator.ge,
    "le": operator.le,
    "sym_max": torch.sym_max,
    "sym_min": torch.sym_min,
}

_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "sym_float": torch.sym_float,
    "sym_int": torch.sym_int,
    "sym_not": torch.sym_not,
    "ceil": math.ceil,
    "round": round,
    "trunc": math.trunc,
}


def _primitives() -> list[DefinedOperator]:
    binary = [
        DefinedOperator(f"executorch_prim::{name}.Scalar(Scalar a, Scalar b) -> Scalar", meaning)
        for name, meaning in _BINARY.items()
    ]
    unary = [
        DefinedOperator(f"executorch_prim::{name}.Scalar(Scalar a) -> Scalar", meaning)
        for name, meaning in _UNARY.items()
    ]
    choice = DefinedOperator("executorch_prim::sym_ite.Scalar(Scalar b, Scalar t, Scalar f) -> Scalar", torch.sym_ite)
    return [*binary, *unary, choice]


_DEFINED: dict[str, DefinedOperator] = {op.name(): op for op in (*_dim_order_operators(), *_primitives())}


AllocSpec: TypeAlias = "tuple[Sequence[Dim], torch.dtype]"


def alloc(spec: AllocSpec | list[AllocSpec]) -> torch.Tensor | list[torch.Tensor]:
    """Return uninitialised memory for one out tensor, or a list of them.

    `%add = aten.add.Tensor(%x, %y)` becomes `%alloc = alloc(((2, 3), float32))` and
    `%add = aten.add.out(%x, %y, out=%alloc)`. Both nodes carry the same `TensorSpec` object in
    `meta["spec"]`; planning gives it a place in an arena.

    Args:
        spec: Sizes and dtype of the tensor, or a list of such pairs. A symbolic size counts as its hint.
    """
    if isinstance(spec, list):
        return [_empty(one) for one in spec]
    return _empty(spec)


def free(spec: TensorSpec) -> None:
    """Mark the step after which the runtime may release an unbounded tensor; does nothing on torch."""


def view(base: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Return `base` with another shape of equally many elements, in the same memory.

    The spec of such a node has the base's spec as its `storage_base`: no copy is made and no kernel runs.
    """
    return base.view(size)


def _empty(spec: AllocSpec) -> torch.Tensor:
    sizes, dtype = spec
    return torch.empty(sample_ints(sizes), dtype=dtype)

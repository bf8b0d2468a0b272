"""Stored tensors that are known by what they are computed from, and have elements only while something reads them.

A weight that is folded into another one need not lie in memory beside it: what is kept is the calculation. It is done
again whenever elements are wanted, which is when the file is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch.fx.node import map_aggregate

from .inference import view_of_copy
from .operators.handles import underlying
from .tensor_spec import contiguous_stride
from .torch_internals import FakeTensor, OpOverload, make_wrapper_tensor, pytree

_FAILURES = (ArithmeticError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)
DEFERRED_NBYTES = 1 << 18
"""Results that are at least as large are computed again whenever they are read, and not kept."""

MOST_DEFERRED_CALLS = 16
"""Most calls on the way from stored tensors to a result that is computed again whenever it is read."""

_ENDS_NBYTES = 4096
_BLOCK_NBYTES = 4 << 20


class NotComputableError(RuntimeError):
    """A calculation fails, or gives something else than was recorded for it."""

    def __init__(self, calculation: Calculation) -> None:
        super().__init__(f"{calculation.target} cannot be computed")
        self.calculation = calculation


class Calculation:
    """A call of an operator without effects, whose tensors are stored ones or results of other calculations.

    Attributes:
        target: What is called.
        args: Its arguments.
        kwargs: Its arguments by name.
        recorded: The value without elements that it has: a tensor, or a list of tensors.
        sources: The calculations among the arguments.
        depth: Calls on the longest way to a stored tensor.
        ends: The first and last bytes of the result by order of dims, as far as they have been asked for.
    """

    __slots__ = ("args", "depth", "ends", "kwargs", "recorded", "sources", "target")

    def __init__(self, target: Callable[..., Any], args: Any, kwargs: Any, recorded: Any) -> None:
        self.target = target
        self.args, self.kwargs = map_aggregate((tuple(args), dict(kwargs)), _calculation_of)
        self.recorded = recorded
        self.sources: list[Calculation] = [
            one for one in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(one, Calculation)
        ]
        self.ends: dict[tuple[int, ...], tuple[bytes, bytes]] = {}
        self.depth: int = 1 + max((one.depth for one in self.sources), default=0)

    def evaluated(self) -> Any:
        """Return the result: a view of stored memory where copies of views are all that it takes.

        Intermediate results are let go as soon as nothing needs them.

        Raises:
            NotComputableError: This calculation, or one that it needs, cannot be done.
        """
        order = list(_in_order(self))
        waiting: dict[Calculation, int] = {self: 1}
        for one in order:
            for source in one.sources:
                waiting[source] = waiting.get(source, 0) + 1
        values: dict[Calculation, Any] = {}
        for one in order:
            values[one] = one._called(values)
            for source in one.sources:
                waiting[source] -= 1
                if not waiting[source]:
                    del values[source]
        return values[self]

    def rows(self, dim: int, wanted: range) -> torch.Tensor | None:
        """Return some indices along a dim of the result, computed alone; None where only all of it can be computed.

        Raises:
            NotComputableError: This calculation, or one that it needs, cannot be done.
        """
        try:
            with torch.no_grad():
                return _Rows(wanted).of(self, dim)
        except _WholeNeededError:
            return None
        except _FAILURES:
            raise NotComputableError(self) from None

    def _called(self, values: dict[Calculation, Any]) -> Any:
        view = _moving_of(underlying(self.target))
        try:
            with torch.no_grad():
                try:
                    value = self._with(values, view, as_recorded=False) if view is not None else None
                except RuntimeError:
                    value = None
                if value is None:
                    value = self._with(values, self.target, as_recorded=True)
        except _FAILURES:
            raise NotComputableError(self) from None
        if not _agrees(value, self.recorded):
            raise NotComputableError(self)
        return value

    def _with(self, values: dict[Calculation, Any], target: Callable[..., Any], *, as_recorded: bool) -> Any:
        counts_from_storage = underlying(target) is torch.ops.aten.as_strided_copy.default

        def given(leaf: Any) -> Any:
            if not isinstance(leaf, Calculation):
                # What shows a part of a constant begins behind the start of the constant's memory.
                is_part = counts_from_storage and isinstance(leaf, torch.Tensor) and leaf.storage_offset()
                return leaf.clone() if is_part else leaf
            value = values[leaf]
            return laid_out(value, leaf.recorded) if as_recorded and isinstance(value, torch.Tensor) else value

        args, kwargs = map_aggregate((self.args, self.kwargs), given)
        return target(*args, **kwargs)


def moves_elements(op: Any) -> bool:
    """Whether an operator gives elements as they are, in another order or shape."""
    return _moving_of(underlying(op)) is not None


@cache
def _moving_of(op: Any) -> Callable[..., Any] | None:
    """Return what shows the elements that an operator gives, without a copy; None if it computes something else."""
    if op in (torch.ops.aten.clone.default, _itself):
        return _itself
    if isinstance(op, OpOverload) and op.is_view and op is not torch.ops.aten.as_strided.default:
        return op
    return None if op is torch.ops.aten.as_strided_copy.default else view_of_copy(op)


@cache
def _exact_elementwise() -> frozenset[Any]:
    """Return operators whose elements are rounded once, so that it is all one how many are computed together."""
    aten = torch.ops.aten
    binary = (aten.add, aten.sub, aten.mul, aten.div)
    single = (aten.neg, aten.abs, aten.sqrt, aten.reciprocal, aten._to_copy, aten.maximum, aten.minimum, aten.clamp)
    return frozenset(
        (*(one.Tensor for one in binary), *(one.Scalar for one in binary), *(one.default for one in single))
    )


@cache
def _reshaping() -> frozenset[Any]:
    aten = torch.ops.aten
    return frozenset((aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unsqueeze.default,
                      aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.flatten.using_ints))  # fmt: skip


class _WholeNeededError(Exception):
    """A part of a result is not known to depend on a part of the operands alone."""


class _Rows:
    """Computes the same indices along some dim of a result and of all that it is made of."""

    def __init__(self, wanted: range) -> None:
        self._wanted = wanted
        self._known: dict[tuple[Calculation, int], torch.Tensor] = {}

    def of(self, source: Any, dim: int) -> torch.Tensor:
        """Return these indices of a stored tensor, or of what a calculation gives."""
        if isinstance(source, torch.Tensor):
            return source.detach().narrow(dim, self._wanted.start, len(self._wanted))
        if (source, dim) not in self._known:
            self._known[source, dim] = self._computed(source, dim)
        return self._known[source, dim]

    def _computed(self, one: Calculation, dim: int) -> torch.Tensor:
        op, shape = underlying(one.target), _shape(one)
        is_exact = op in _exact_elementwise() and one.kwargs.get("alpha", 1) == 1
        view = op if op in _reshaping() else _moving_of(op)
        made = self._elementwise(one, dim) if is_exact else self._moved(one, view, dim)
        expected = (*shape[:dim], len(self._wanted), *shape[dim + 1 :])
        if made.dtype != one.recorded.dtype or tuple(made.shape) != expected:
            raise NotComputableError(one)
        return made

    def _elementwise(self, one: Calculation, dim: int) -> torch.Tensor:
        def given(leaf: Any) -> Any:
            if not isinstance(leaf, Calculation | torch.Tensor):
                return leaf
            shape = _shape(leaf)
            place = dim - len(_shape(one)) + len(shape)
            if place >= 0 and shape[place] == _shape(one)[dim]:
                return self.of(leaf, place)
            if isinstance(leaf, Calculation):
                raise _WholeNeededError
            return leaf

        args, kwargs = map_aggregate((one.args, one.kwargs), given)
        found: torch.Tensor = one.target(*args, **kwargs)
        return found

    def _moved(self, one: Calculation, view: Any, dim: int) -> torch.Tensor:
        if view is None or not one.args or not isinstance(one.args[0], Calculation | torch.Tensor):
            raise _WholeNeededError
        source, options, aten = one.args[0], one.args[1:], torch.ops.aten
        shape, whole = _shape(source), _shape(one)
        if view in (_itself, aten.alias.default, aten.detach.default):
            return self.of(source, dim)
        if view is aten.permute.default:
            return self.of(source, options[0][dim] % len(shape)).permute(options[0])
        if view is aten.transpose.int:
            first, second = (place % len(shape) for place in options)
            return self.of(source, {first: second, second: first}.get(dim, dim)).transpose(first, second)
        if view in _reshaping():
            # The dim is one of the operand's too, and as many elements are outside of it.
            outside = math.prod(whole[:dim])
            for place, size in enumerate(shape):
                if size == whole[dim] and math.prod(shape[:place]) == outside:
                    return self.of(source, place).reshape((*whole[:dim], -1, *whole[dim + 1 :]))
        raise _WholeNeededError


def _shape(value: Calculation | torch.Tensor) -> tuple[int, ...]:
    recorded = value if isinstance(value, torch.Tensor) else value.recorded
    if not isinstance(recorded, torch.Tensor):
        raise _WholeNeededError
    return tuple(recorded.shape)


def _itself(tensor: torch.Tensor, **_options: Any) -> torch.Tensor:
    return tensor


def _in_order(wanted: Calculation) -> Iterator[Calculation]:
    """Yield what a calculation needs, each behind its sources, and it itself last."""
    seen: set[Calculation] = set()
    pending = [(wanted, False)]
    while pending:
        one, is_ready = pending.pop()
        if is_ready:
            yield one
        elif one not in seen:
            seen.add(one)
            pending.append((one, True))
            pending += ((source, False) for source in one.sources if source not in seen)


def _calculation_of(leaf: Any) -> Any:
    return leaf.calculation if isinstance(leaf, DeferredTensor) else leaf


def _agrees(value: Any, recorded: Any) -> bool:
    if isinstance(value, list | tuple):
        return isinstance(recorded, list | tuple) and len(value) == len(recorded) and all(map(_agrees, value, recorded))
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor) or not isinstance(recorded, torch.Tensor):
        return False
    return value.dtype == recorded.dtype and tuple(value.shape) == tuple(recorded.shape)


def dense_stride(recorded: torch.Tensor) -> tuple[int, ...]:
    """Return the strides that a stored tensor has: those recorded, or row-major ones if these leave gaps."""
    wanted = torch.empty_strided(recorded.shape, recorded.stride(), dtype=recorded.dtype, device="meta")
    is_dense = torch.empty_like(wanted).stride() == wanted.stride()
    stride: Any = wanted.stride() if is_dense else contiguous_stride(wanted.shape)
    return tuple(stride)


def laid_out(value: torch.Tensor, recorded: torch.Tensor) -> torch.Tensor:
    """Return a tensor laid out as recorded, or densely if that is not dense: itself where it lies so."""
    stride = dense_stride(recorded)
    return value if tuple(value.stride()) == stride else _copied(value, stride)


def as_constant(value: torch.Tensor, recorded: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor with memory of its own, laid out as recorded, or densely if that is not dense."""
    return _copied(value, dense_stride(recorded))


def _copied(value: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    return torch.empty_strided(tuple(value.shape), tuple(stride), dtype=value.dtype).copy_(value.detach())


class DeferredTensor(torch.Tensor):
    """A tensor whose elements are computed for each call that reads them, and not kept.

    It cannot be written to. Copies and pickles of it are ordinary tensors.

    Attributes:
        calculation: What gives the elements.
        composes: Whether large results of calls that read it are deferred as well. Those of its copies are not.
    """

    calculation: Calculation
    composes: bool

    @classmethod
    def composing(cls, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor such that large results of calls that read it are deferred: itself if it is small."""
        if isinstance(tensor, DeferredTensor):
            return cls(tensor.calculation, composes=True)
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not is_large(tensor):
            return tensor
        return cls(Calculation(_itself, (tensor.detach(),), {}, _without_elements(tensor)), composes=True)

    @staticmethod
    def __new__(cls, calculation: Calculation, *, composes: bool = False) -> DeferredTensor:
        """Make a tensor with the dtype, shape and strides that are recorded."""
        recorded = calculation.recorded
        made: Any = make_wrapper_tensor(cls, recorded, dense_stride(recorded))
        made.calculation = calculation
        made.composes = composes
        found: DeferredTensor = made
        return found

    def __init__(self, calculation: Calculation, *, composes: bool = False) -> None:
        """See `__new__`."""

    def strided(self) -> torch.Tensor:
        """Return the elements with any strides: a view of what is stored, if the calculation only moves elements."""
        value: torch.Tensor = self.calculation.evaluated()
        return value

    def plain(self) -> torch.Tensor:
        """Return an ordinary tensor with memory of its own."""
        return as_constant(self.strided(), self)

    def numpy(self, *, force: bool = False) -> Any:
        """Return the elements as an array with memory of its own."""
        return self.plain().numpy(force=force)

    def tolist(self) -> Any:
        """Return the elements as nested lists of numbers."""
        return self.plain().tolist()

    def __repr__(self, **_options: Any) -> str:  # type: ignore[override]
        """Return dtype and shape; the elements are not computed for it."""
        return f"DeferredTensor({str(self.dtype).removeprefix('torch.')}, {list(self.shape)})"

    def __deepcopy__(self, memo: Any) -> DeferredTensor:
        """Return the same: it cannot change."""
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Let an ordinary tensor be written instead."""
        return self.plain().__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Run an operator on the elements."""
        if func is torch.ops.aten.detach.default:
            return DeferredTensor(args[0].calculation)
        kwargs = kwargs or {}
        if func._schema.is_mutable and _writes_to_deferred(func._schema, args, kwargs):
            raise RuntimeError(f"{func} writes to a tensor that is computed when it is read; clone it first")
        if not func._schema.is_mutable and _composes((args, kwargs)):
            deferred = _deferred_call(func, args, kwargs)
            if deferred is not None:
                return deferred
        # What only reads may read what is stored.
        read = DeferredTensor.plain if func._schema.is_mutable or func.is_view else _read
        args, kwargs = pytree.tree_map_only(DeferredTensor, read, (args, kwargs))
        return func(*args, **kwargs)


def _read(tensor: DeferredTensor) -> torch.Tensor:
    return laid_out(tensor.strided(), tensor)


def is_large(value: Any) -> bool:
    """Whether a tensor, or the tensors of a list together, are deferred rather than kept in memory."""
    nbytes: int = sum(one.numel() * one.element_size() for one in pytree.tree_leaves(value))
    return nbytes >= DEFERRED_NBYTES


def _writes_to_deferred(schema: Any, args: Any, kwargs: Any) -> bool:
    given = kwargs | {argument.name: one for argument, one in zip(schema.arguments, args, strict=False)}
    return any(
        isinstance(one, DeferredTensor)
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for one in pytree.tree_leaves(given.get(argument.name))
    )


def _composes(given: Any) -> bool:
    return any(isinstance(one, DeferredTensor) and one.composes for one in pytree.tree_leaves(given))


def _without_elements(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")


def _deferred_call(func: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of a call, deferred; None where it is small, random, or unknown without doing it."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return None
    try:
        recorded = func(*pytree.tree_map_only(torch.Tensor, _without_elements, args),
                        **pytree.tree_map_only(torch.Tensor, _without_elements, kwargs))  # fmt: skip
    except _FAILURES:
        return None
    if not isinstance(recorded, torch.Tensor) or not recorded.is_meta or not is_large(recorded):
        return None
    calculation = Calculation(func, args, kwargs, recorded)
    return DeferredTensor(calculation, composes=True) if calculation.depth <= MOST_DEFERRED_CALLS else None


def in_memory(value: Any) -> Any:
    """Return an ordinary tensor for one that is deferred, and anything else as it is."""
    return value.plain() if isinstance(value, DeferredTensor) else value


def memory_key(tensor: torch.Tensor) -> int:
    """Return what tells the memory behind tensors apart: the address of a storage, or the calculation."""
    return id(tensor.calculation) if isinstance(tensor, DeferredTensor) else tensor.untyped_storage().data_ptr()


def element_blocks(
    tensor: torch.Tensor, dim_order: Sequence[int], start: int = 0, stop: int | None = None
) -> Iterator[torch.Tensor]:
    """Yield the elements of a tensor in the given order of dims, as one-dimensional tensors of a few megabytes at most.

    Args:
        tensor: Any tensor in memory, or one that is deferred.
        dim_order: Dims from the outermost to the innermost.
        start: First element.
        stop: The one behind the last; the end when absent.
    """
    stop = tensor.numel() if stop is None else min(stop, tensor.numel())
    if start >= stop:
        return
    if not isinstance(tensor, DeferredTensor) or (dim := sliced_dim(tensor, dim_order)) is None:
        value = tensor.strided() if isinstance(tensor, DeferredTensor) else tensor.detach().cpu()
        yield from _blocks(_ordered(value, dim_order), start, stop)
        return
    row = tensor.numel() // tensor.shape[dim]
    count = max(1, _BLOCK_NBYTES // (row * tensor.element_size()))
    for first in range(start // row, -(-stop // row), count):
        wanted = range(first, min(first + count, -(-stop // row)))
        part = _ordered(_rows_of(tensor, dim, wanted), dim_order)
        at = first * row
        yield from _blocks(part, max(0, start - at), min(stop - at, part.numel()))


def sliced_dim(tensor: DeferredTensor, dim_order: Sequence[int]) -> int | None:
    """Return the outermost dim, if the elements can be computed one index of it at a time; None otherwise.

    Raises:
        NotComputableError: They cannot be computed.
    """
    dim = next((one for one in dim_order if tensor.shape[one] != 1), None)
    if dim is None or not tensor.shape[dim] or tensor.calculation.rows(dim, range(1)) is None:
        return None
    return dim


def _rows_of(tensor: DeferredTensor, dim: int, wanted: range) -> torch.Tensor:
    found = tensor.calculation.rows(dim, wanted)
    if found is None:
        raise NotComputableError(tensor.calculation)
    return found


def _ordered(value: torch.Tensor, dim_order: Sequence[int]) -> torch.Tensor:
    ordered = value.resolve_conj().resolve_neg()
    return ordered.permute(tuple(dim_order)) if ordered.dim() else ordered


def _blocks(ordered: torch.Tensor, start: int, stop: int) -> Iterator[torch.Tensor]:
    most = max(1, _BLOCK_NBYTES // ordered.element_size())
    if stop - start <= most and (start, stop) == (0, ordered.numel()):
        yield ordered.contiguous().reshape(-1)
        return
    row = ordered[0].numel()
    if row == 1:
        flat = ordered.reshape(-1) if ordered.dim() == 1 else ordered.flatten()
        for first in range(start, stop, most):
            yield flat[first : min(first + most, stop)].contiguous()
        return
    at = start
    while at < stop:
        index, offset = divmod(at, row)
        count = min(max(1, most // row), (stop - at) // row)
        if offset or not count or row > most:
            end = min(row, offset + stop - at)
            yield from _blocks(ordered[index], offset, end)
            at += end - offset
        else:
            yield ordered[index : index + count].contiguous().reshape(-1)
            at += count * row


def bytes_of(elements: torch.Tensor) -> memoryview:
    """Return the memory of a one-dimensional contiguous tensor."""
    if elements.numel() == 1:
        # One element is contiguous with any stride, but seen as bytes only with stride 1.
        elements = elements.as_strided((1,), (1,))
    data: Any = elements.view(torch.uint8).numpy()
    return memoryview(data)


def end_bytes(tensor: torch.Tensor, dim_order: Sequence[int]) -> tuple[bytes, bytes]:
    """Return the first and the last bytes of a tensor's elements, up to a few kilobytes of each.

    What is deferred remembers them.
    """
    if isinstance(tensor, DeferredTensor):
        known = tensor.calculation.ends
        if tuple(dim_order) not in known:
            is_sliced = sliced_dim(tensor, dim_order) is not None
            known[tuple(dim_order)] = _end_bytes(tensor if is_sliced else tensor.strided(), dim_order)
        return known[tuple(dim_order)]
    return _end_bytes(tensor, dim_order)


def _end_bytes(tensor: torch.Tensor, dim_order: Sequence[int]) -> tuple[bytes, bytes]:
    count = _ENDS_NBYTES // tensor.element_size()
    if tensor.numel() <= count:
        whole = b"".join(bytes(bytes_of(one)) for one in element_blocks(tensor, dim_order))
        return whole, whole
    first, last = (0, count), (max(0, tensor.numel() - count), tensor.numel())
    start, end = (
        b"".join(bytes(bytes_of(one)) for one in element_blocks(tensor, dim_order, *bounds)) for bounds in (first, last)
    )
    return start, end

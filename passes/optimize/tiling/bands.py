"""Which band of its arguments a call reads to compute a band of its result, by what the catalogue says of operators.

A band is a range of places along one dim. Each kind of operators has one function here; `tests/passes/tiling` draws
calls of every operator of the catalogue that has a kind, and compares bands of results with results of bands.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import facts_of, underlying
from exirkit.patterns import normalized_arguments


@dataclass(frozen=True, slots=True)
class Band:
    """Places `start` to `stop` (exclusive) along a dim."""

    dim: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many places there are."""
        return self.stop - self.start

    def joined(self, other: Band | None) -> Band:
        """Return the smallest band that contains this one and another one along the same dim."""
        if other is None:
            return self
        return Band(self.dim, min(self.start, other.start), max(self.stop, other.stop))


@dataclass(frozen=True, slots=True)
class Padding:
    """What a band is padded with along its dim, beyond the ends of the tensor.

    Attributes:
        before: Places in front of the band.
        after: Places behind it.
        value: What they hold.
    """

    before: int
    after: int
    value: float


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of which a call reads a band; the others are read whole.

    Attributes:
        name: Name of the argument.
        place: Place in it, if it is a list.
        node: What is given for it.
        band: The band.
        padding: What is put around it.
    """

    name: str
    place: int | None
    node: Node
    band: Band
    padding: Padding | None = None


@dataclass(frozen=True)
class Reading:
    """How a band of a result is computed.

    Attributes:
        result: The band that is computed, which may be wider than the one asked for.
        operands: Of what a band is read.
        changes: Arguments that differ from those of the whole call, by name.
    """

    result: Band
    operands: tuple[Operand, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A call with fixed sizes.

    Attributes:
        arguments: All of them, by name, as `normalized_arguments` gives them.
        shape: Sizes of the result, or of the first of several.
    """

    arguments: Mapping[str, Any]
    shape: tuple[int, ...]

    def sizes(self, name: str) -> tuple[int, ...]:
        """Return the sizes of the tensor that is given for an argument."""
        return tuple(first_value(self.arguments[name]).shape)

    @cached_property
    def tensors(self) -> list[tuple[str, int | None, Node]]:
        """All tensors that are given: name of the argument, place if it is a list, node."""
        found: list[tuple[str, int | None, Node]] = []
        for name, one in self.arguments.items():
            if isinstance(one, Node):
                found.append((name, None, one))
            elif isinstance(one, list | tuple):
                found += [(name, place, each) for place, each in enumerate(one) if isinstance(each, Node)]
        return found

    def reads(self, name: str, band: Band, padding: Padding | None = None) -> Operand:
        """Return one operand."""
        return Operand(name, None, self.arguments[name], band, padding)


def call_of(node: Node) -> Call | None:
    """Return a call of which bands could be computed, or None.

    Its operator has a kind, all sizes are fixed and tensors row-major, and of several results only the first is used.
    """
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        source: Any = node.args[0]
        is_first = node.args[1] == 0 and _is_fixed(node)
        return Call({"self": source}, tuple(first_value(source).shape)) if is_first else None
    if kind_of(node) is None:
        return None
    several = isinstance(node.meta.get("val"), list | tuple)
    if several and any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
        return None
    if not all(map(_is_fixed, (node, *node.all_input_nodes))):
        return None
    return Call(normalized_arguments(node), tuple(first_value(node).shape))


def read(node: Node, call: Call, band: Band) -> Reading | None:
    """Return how a band of a result is computed, or None if that needs the whole of what the call reads.

    Args:
        node: The call.
        call: The same, as `call_of` returns it.
        band: A band of its result.
    """
    if node.target is operator.getitem:
        return Reading(band, (call.reads("self", band),))
    kind = kind_of(node)
    return None if kind is None else _KINDS[kind](call, band)


def kind_of(node: Node) -> str | None:
    """Return how the bands of a call's result depend on those of its arguments, or None if that is not known."""
    facts = facts_of(underlying(node.target))
    if facts.bands is None and not facts.traits.isdisjoint(ELEMENTWISE):
        return "elementwise"
    return facts.bands


ELEMENTWISE = frozenset({"pointwise", "unary_pointwise", "copy_like", "cast"})


def first_value(node: Any) -> torch.Tensor:
    """Return the tensor that a node returns, or the first of several."""
    value = node.meta["val"]
    first: torch.Tensor = value[0] if isinstance(value, list | tuple) else value
    return first


def _is_fixed(node: Node) -> bool:
    """Whether a value is a tensor of fixed sizes whose elements lie row by row."""
    value = node.meta.get("val")
    value = value[0] if isinstance(value, list | tuple) and value else value
    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        return False
    return value.is_contiguous()


def _along(call: Call, name: str, band: Band, dim: int) -> Reading:
    """Read the same places along a dim of one argument."""
    return Reading(band, (call.reads(name, Band(dim, band.start, band.stop)),))


def _elementwise(call: Call, band: Band) -> Reading:
    """Every element depends on the elements at the same place, of operands that may repeat."""
    operands = []
    for name, place, node in call.tensors:
        shape = first_value(node).shape
        dim = band.dim - (len(call.shape) - len(shape))
        if dim >= 0 and shape[dim] == call.shape[band.dim]:
            operands.append(Operand(name, place, node, Band(dim, band.start, band.stop)))
    return Reading(band, tuple(operands))


def _channels(call: Call, band: Band) -> Reading | None:
    """So it does, and on what belongs to its place along one dim."""
    first = call.tensors[0][0]
    axis = call.arguments.get("axis", 1)
    return None if band.dim == axis % len(call.shape) else _along(call, first, band, band.dim)


def _product(call: Call, band: Band) -> Reading | None:
    """Rows of the left factor, or columns of the right one."""
    given, rank = call.arguments, len(call.shape)
    if "weight" in given:
        return None if band.dim == rank - 1 else _along(call, "input", band, band.dim)
    left, right = ("mat1", "mat2") if "mat1" in given else ("self", "mat2")
    operands = []
    if band.dim != rank - 1:
        operands.append(call.reads(left, band))
    if band.dim != rank - 2:
        operands.append(call.reads(right, band))
    if left == "mat1":
        shape = call.sizes("self")
        dim = band.dim - (rank - len(shape))
        if dim >= 0 and shape[dim] == call.shape[band.dim]:
            operands.append(call.reads("self", Band(dim, band.start, band.stop)))
    return Reading(band, tuple(operands))


def _other_dims(call: Call, band: Band) -> Reading | None:
    """Elements depend on others along one dim."""
    first = call.tensors[0][0]
    return None if band.dim == call.arguments["dim"] else _along(call, first, band, band.dim)


def _layer_norm(call: Call, band: Band) -> Reading | None:
    is_outer = band.dim < len(call.shape) - len(call.arguments["normalized_shape"])
    return _along(call, "input", band, band.dim) if is_outer else None


def _reduced(call: Call, band: Band) -> Reading | None:
    """Dims that are not reduced."""
    given = call.arguments
    rank = len(call.sizes("self"))
    reduced = given["dim"]
    reduced = [reduced] if isinstance(reduced, int) else reduced
    gone = {one % rank for one in reduced} if reduced else set(range(rank))
    if given.get("keepdim"):
        return None if band.dim in gone else _along(call, "self", band, band.dim)
    return _along(call, "self", band, [dim for dim in range(rank) if dim not in gone][band.dim])


def _permuted(call: Call, band: Band) -> Reading:
    given, rank = call.arguments, len(call.shape)
    dims = list(range(rank))
    if "dims" in given:
        dims = [one % rank for one in given["dims"]]
    elif "dim0" in given:
        one, other = given["dim0"] % rank, given["dim1"] % rank
        dims[one], dims[other] = other, one
    else:
        dims.reverse()
    return _along(call, "self", band, dims[band.dim])


def _reshaped(call: Call, band: Band) -> Reading | None:
    """The same elements in the same order: dims that begin at the same element of the rest."""
    shape, given = call.shape, call.sizes("self")
    outer, inner = math.prod(shape[: band.dim]), math.prod(shape[band.dim + 1 :])
    place = next((dim for dim in range(len(given)) if math.prod(given[:dim]) == outer and given[dim] > 1), None)
    if place is None or inner == 0 or math.prod(given[place:]) != shape[band.dim] * inner:
        return None
    # A call that drops dims where they have size 1 would drop a band of one place as well.
    dropped = call.arguments.get("dim") if len(given) >= len(shape) else None
    if dropped is not None and place in ([dropped] if isinstance(dropped, int) else dropped):
        return None
    step = math.prod(given[place + 1 :])
    start, stop = band.start * inner // step, -(-band.stop * inner // step)
    if start * step % inner or stop * step % inner:
        return None
    found = Band(band.dim, start * step // inner, stop * step // inner)
    sizes = [*shape[: band.dim], found.size, *shape[band.dim + 1 :]]
    changes = {name: sizes for name in ("size", "shape") if name in call.arguments}
    return Reading(found, (call.reads("self", Band(place, start, stop)),), changes)


def _expanded(call: Call, band: Band) -> Reading:
    given, sizes = call.sizes("self"), list(call.arguments["size"])
    dim = band.dim - (len(call.shape) - len(given))
    sizes[band.dim] = band.size
    is_read = dim >= 0 and given[dim] == call.shape[band.dim] > 1
    operands = (call.reads("self", Band(dim, band.start, band.stop)),) if is_read else ()
    return Reading(band, operands, {"size": sizes})


def _joined(call: Call, band: Band) -> Reading | None:
    """Tensors joined along another dim."""
    if band.dim == call.arguments["dim"] % len(call.shape):
        return None
    return Reading(band, tuple(Operand(name, place, node, band) for name, place, node in call.tensors))


def _sliced(call: Call, band: Band) -> Reading:
    dim, size = call.arguments["dim"], call.sizes("self")[call.arguments["dim"]]
    if band.dim != dim:
        return _along(call, "self", band, band.dim)
    step, begin = call.arguments["step"], call.arguments["start"] or 0
    begin = max(0, begin + size) if begin < 0 else min(begin, size)
    start = begin + band.start * step
    stop = begin + (band.stop - 1) * step + 1
    changes = {"start": 0, "end": stop - start}
    return Reading(band, (call.reads("self", Band(dim, start, stop)),), changes)


def _selected(call: Call, band: Band) -> Reading:
    return _along(call, "self", band, band.dim + (band.dim >= call.arguments["dim"]))


def _looked_up(call: Call, band: Band) -> Reading | None:
    """Rows of a table for each of the indices."""
    return None if band.dim == len(call.shape) - 1 else _along(call, "indices", band, band.dim)


def _padded(call: Call, band: Band) -> Reading | None:
    pad, rank = list(call.arguments["pad"]), len(call.shape)
    size = call.sizes("self")[band.dim]
    place = 2 * (rank - 1 - band.dim)
    before = pad[place] if place < len(pad) else 0
    start, stop = band.start - before, band.stop - before
    within = Band(band.dim, max(0, start), min(size, stop))
    if within.size <= 0:
        return None
    if place < len(pad):
        pad[place : place + 2] = [within.start - start, stop - within.stop]
    return Reading(band, (call.reads("self", within),), {"pad": pad})


def _window(call: Call, band: Band) -> Reading | None:
    """Windows that move along the dims behind the first two."""
    given = call.arguments
    is_convolution = "weight" in given
    name = "input" if is_convolution else "self"
    shape = call.sizes(name)
    lengths = call.sizes("weight")[2:] if is_convolution else given["kernel_size"]
    outer = len(shape) - len(lengths)
    if band.dim < outer:
        # Channels of a convolution depend on all channels.
        is_free = band.dim == 0 and outer == 2 if is_convolution else True
        return _along(call, name, band, band.dim) if is_free else None
    place, count = band.dim - outer, len(lengths)
    stride, padding, dilation = (
        _of_dim(given.get(one), place, count, usual) for one, usual in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    # The last window of a mean counts what lies within the padding; that of a maximum sees no difference. Windows of a
    # band need no rounding up, since it ends with the last one.
    if given.get("transposed") or (given.get("ceil_mode") and "count_include_pad" in given):
        return None
    start = band.start * stride - padding
    stop = (band.stop - 1) * stride - padding + (lengths[place] - 1) * dilation + 1
    size = shape[band.dim]
    within = Band(band.dim, max(0, start), min(size, stop))
    before, after = within.start - start, stop - within.stop
    if within.size <= 0:
        return None
    value = _outside(call, is_convolution) if before or after else 0.0
    if value is None:
        return None
    # What lies beyond both ends alike the call adds itself.
    is_even = before == after
    sizes = [_of_dim(given["padding"], one, count, 0) for one in range(count)]
    sizes[place] = before if is_even else 0
    pads = None if is_even else Padding(before, after, value)
    return Reading(band, (call.reads(name, within, pads),), {"padding": sizes})


def _of_dim(value: Any, place: int, count: int, usual: int) -> int:
    """Return the number for one of the dims over which windows move."""
    numbers: Sequence[int] = [usual] if value is None or value == [] else [value] if isinstance(value, int) else value
    return int(numbers[place] if len(numbers) == count else numbers[0])


def _outside(call: Call, is_convolution: bool) -> float | None:
    """Return what windows see beyond the ends, or None if that is not one number."""
    if is_convolution:
        return 0.0
    if "count_include_pad" in call.arguments:
        return 0.0 if call.arguments["count_include_pad"] or call.arguments.get("divisor_override") else None
    return -math.inf if first_value(call.arguments["self"]).is_floating_point() else None


def _shuffled(call: Call, band: Band) -> Reading | None:
    """Channels that become pixels."""
    factor, rank = call.arguments["upscale_factor"], len(call.shape)
    if band.dim < rank - 3:
        return _along(call, "self", band, band.dim)
    return None if band.dim == rank - 3 else _magnified(call, "self", band, factor, {})


def _nearest(call: Call, band: Band) -> Reading | None:
    """Elements that are repeated, each as often as the others."""
    shape, given = call.shape, call.sizes("input")
    if band.dim < 2:
        return _along(call, "input", band, band.dim)
    if any(size % old for size, old in zip(shape[2:], given[2:], strict=True)):
        return None
    factor = shape[band.dim] // given[band.dim]
    made = _magnified(call, "input", band, factor, {})
    sizes = list(shape[2:])
    sizes[band.dim - 2] = made.result.size
    return Reading(made.result, made.operands, {"output_size": sizes, "scale_factors": None})


def _magnified(call: Call, name: str, band: Band, factor: int, changes: Mapping[str, Any]) -> Reading:
    start, stop = band.start // factor, -(-band.stop // factor)
    found = Band(band.dim, start * factor, stop * factor)
    return Reading(found, (call.reads(name, Band(band.dim, start, stop)),), changes)


_KINDS: Mapping[str, Callable[[Call, Band], Reading | None]] = {
    "channels": _channels,
    "elementwise": _elementwise,
    "expanded": _expanded,
    "joined": _joined,
    "layer_norm": _layer_norm,
    "looked_up": _looked_up,
    "nearest": _nearest,
    "other_dims": _other_dims,
    "padded": _padded,
    "permuted": _permuted,
    "product": _product,
    "reduced": _reduced,
    "reshaped": _reshaped,
    "selected": _selected,
    "shuffled": _shuffled,
    "sliced": _sliced,
    "window": _window,
}

"""Meanings of operators that move data, or make it of nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import z3

from exirkit.patterns.proving.elements import sizes_equal
from exirkit.patterns.proving.meanings import broadcast_index, meaning, register_methods, stand_in
from exirkit.patterns.proving.paths import Number, Path, UnsupportedError, integer
from exirkit.patterns.proving.pointwise import to_dtype
from exirkit.patterns.proving.tensors import Index, SymbolicTensor, method, product


def normal_dim(path: Path, dim: Any, rank: int) -> int:
    """Return a dim counted from the front; that there is one is required."""
    least = max(1, rank)
    if isinstance(dim, Number):
        path.require(z3.And(dim.term >= -least, dim.term < least), f"a dim of {rank}")
    dim = int(dim)
    path.require(-least <= dim < least, f"a dim {dim} of {rank}")
    return int(dim % least)


def sized(path: Path, tensor: Any, sizes: Sequence[Any], element: Any) -> SymbolicTensor:
    """Return a tensor of the dtype of another, with other sizes and elements."""
    return SymbolicTensor.make(path, sizes, tensor.dtype, element)


def permuted(path: Path, tensor: Any, dims: Sequence[int]) -> SymbolicTensor:
    """Return a tensor with its dims in another order."""
    shape = tensor.shape
    path.require(len(dims) == len(shape), "a permutation of all dims")
    order = [normal_dim(path, dim, len(shape)) for dim in dims]
    path.require(sorted(order) == list(range(len(shape))), "a permutation")

    def element(elements: Any, index: Index) -> Any:
        found: list[Any] = [None] * len(shape)
        for at, dim in enumerate(order):
            found[dim] = index[at]
        return tensor.at(elements, tuple(found))

    return sized(path, tensor, [shape[dim] for dim in order], element)


@meaning("aten.permute.default", moves=True)
def permute(path: Path, self: Any, dims: Sequence[int]) -> Any:
    """Dims in another order."""
    return permuted(path, self, list(dims))


@meaning("aten.transpose.int", moves=True)
def transpose(path: Path, self: Any, dim0: Any, dim1: Any) -> Any:
    """Two dims exchanged."""
    rank = self.dim()
    one, other = normal_dim(path, dim0, rank), normal_dim(path, dim1, rank)
    order = list(range(rank))
    if rank:
        order[one], order[other] = order[other], order[one]
    return permuted(path, self, order)


@meaning("aten.t.default", moves=True)
def transpose_matrix(path: Path, self: Any) -> Any:
    """A matrix transposed."""
    path.require(self.dim() <= 2, "a matrix")
    return permuted(path, self, list(range(self.dim()))[::-1])


def viewed(path: Path, tensor: Any, sizes: Sequence[Any]) -> SymbolicTensor:
    """Return a tensor with the same elements in the same order, of other sizes; their number is not examined."""
    sizes = list(sizes)

    def element(elements: Any, index: Index) -> Any:
        return tensor.at_digits(elements, tuple(zip(index, sizes, strict=True)))

    return SymbolicTensor.make(path, sizes, tensor.dtype, element, source=tensor)


@meaning("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", moves=True)
def view(path: Path, self: Any, size: Sequence[Any] = (), shape: Sequence[Any] | None = None) -> Any:
    """Other sizes of as many elements; one of them may be inferred."""
    sizes = list(size if shape is None else shape)
    inferred = [at for at, one in enumerate(sizes) if isinstance(one, int) and one == -1]
    path.require(len(inferred) <= 1, "one size to infer")
    count = product(self.shape)
    if inferred:
        rest = product([one for at, one in enumerate(sizes) if at != inferred[0]])
        if not _infer_by_dims(path, self.shape, sizes, inferred[0]):
            path.require(integer(rest) > 0, "a size that can be inferred")
            path.require(integer(count) % integer(rest) == 0, "a size that can be inferred")
            sizes[inferred[0]] = count // rest
    else:
        _require_equal_counts(path, self.shape, sizes)
        for one in sizes:
            path.require(integer(one) >= 0, "sizes that are not negative")
    return viewed(path, self, sizes)


def _require_equal_counts(path: Path, shape: Sequence[Any], sizes: Sequence[Any]) -> None:
    """Require as many elements; equal sizes on both sides are left out first."""
    left, right = list(shape), list(sizes)
    for one in list(left):
        at = next((at for at, other in enumerate(right) if sizes_equal(path, one, other)), None)
        if at is not None:
            left.remove(one) if isinstance(one, int) else left.pop(next(i for i, o in enumerate(left) if o is one))
            right.pop(at)
    path.require(integer(product(left)) == integer(product(right)), f"a view of {shape} as {sizes}")


def _infer_by_dims(path: Path, shape: Sequence[Any], sizes: list[Any], at: int) -> bool:
    """Infer a size where it is a product of dims that no other size takes; whether it is."""
    left = [one for one in shape if not sizes_equal(path, one, 1)]
    for other, size in enumerate(sizes):
        if other == at or sizes_equal(path, size, 1):
            continue
        found = next((i for i, one in enumerate(left) if sizes_equal(path, one, size)), None)
        if found is None or not path.holds(integer(size) > 0):
            return False
        left.pop(found)
    sizes[at] = product(left)
    return True


@meaning("aten.flatten.using_ints", moves=True)
def flatten(path: Path, self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Several dims as one."""
    rank = self.dim()
    first, last = normal_dim(path, start_dim, rank), normal_dim(path, end_dim, rank)
    shape = self.shape
    return viewed(path, self, [*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]])


@meaning("aten.unsqueeze.default", moves=True)
def unsqueeze(path: Path, self: Any, dim: Any) -> Any:
    """A new dim of one element."""
    at = normal_dim(path, dim, self.dim() + 1)
    return viewed(path, self, [*self.shape[:at], 1, *self.shape[at:]])


@meaning("aten.squeeze.dim", "aten.squeeze.dims", moves=True)
def squeeze(path: Path, self: Any, dim: Any) -> Any:
    """Dims of one element left out, of those that are named."""
    rank = self.dim()
    named = {normal_dim(path, one, rank) for one in (dim if isinstance(dim, list | tuple) else [dim])}
    kept = [size for at, size in enumerate(self.shape) if at not in named or not path.decide(integer(size) == 1)]
    return viewed(path, self, kept)


@meaning("aten.squeeze.default", moves=True)
def squeeze_all(path: Path, self: Any) -> Any:
    """All dims of one element left out."""
    return squeeze(path, self, list(range(self.dim())))


@meaning("aten.expand.default", moves=True)
def expand(path: Path, self: Any, size: Sequence[Any], **_: Any) -> Any:
    """A tensor broadcast to sizes; -1 keeps one."""
    shape, sizes = self.shape, list(size)
    missing = len(sizes) - len(shape)
    path.require(missing >= 0, "as many sizes as dims, or more")
    for at, one in enumerate(shape):
        wanted = sizes[missing + at]
        if isinstance(wanted, int) and wanted == -1:
            sizes[missing + at] = one
        elif not sizes_equal(path, one, wanted):
            if not isinstance(wanted, int) and path.decide(integer(wanted) == -1):
                sizes[missing + at] = one
                continue
            path.require(z3.Or(integer(one) == integer(wanted), integer(one) == 1), "sizes that broadcast")
    for one in sizes:
        path.require(integer(one) >= 0, "sizes that are not negative")
    return sized(path, self, sizes, lambda ev, index: self.at(ev, broadcast_index(self, index, sizes)))


def clamped_end(value: Any, size: Any) -> Any:
    """Return an end of a slice as torch takes it: counted from the back if negative, and within the dim."""
    place, count = integer(value), integer(size)
    place = z3.If(place < 0, place + count, place)
    return z3.simplify(z3.If(place < 0, 0, z3.If(place > count, count, place)))


@meaning("aten.slice.Tensor", moves=True)
def slice_of(path: Path, self: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    """Every n-th element of a part of a dim."""
    shape = self.shape
    path.require(len(shape) > 0, "a dim")
    at = normal_dim(path, dim, len(shape))
    path.require(integer(step) > 0, "a step that is positive")
    first = clamped_end(0 if start is None else start, shape[at])
    last = integer(shape[at]) if end is None else clamped_end(end, shape[at])
    width = z3.If(last > first, last - first, 0)
    count = z3.simplify(width if isinstance(step, int) and step == 1 else (width + integer(step) - 1) / integer(step))
    sizes = list(shape)
    sizes[at] = _known_size(path, count, shape[at])

    def element(elements: Any, index: Index) -> Any:
        found = list(index)
        found[at] = z3.simplify(first + integer(index[at]) * integer(step))
        return self.at(elements, tuple(found))

    return sized(path, self, sizes, element)


def _known_size(path: Path, count: Any, usual: Any) -> Any:
    """Return a size in its plainest form: that of the dim, or one branch of it, if it surely is that."""
    if path.holds(count == integer(usual)):
        return usual
    while z3.is_app_of(count, z3.Z3_OP_ITE):
        condition, one, other = count.children()
        if path.holds(condition):
            count = one
        elif path.holds(z3.Not(condition)):
            count = other
        else:
            break
    return Number(path, count).made(count)


@meaning("aten.narrow.default", moves=True)
def narrow(path: Path, self: Any, dim: Any, start: Any, length: Any) -> Any:
    """A part of a dim."""
    at = normal_dim(path, dim, self.dim())
    size = self.shape[at]
    path.require(
        z3.And(integer(start) >= 0, integer(length) >= 0, integer(start) + integer(length) <= integer(size)),
        "a part of the dim",
    )
    return slice_of(path, self, at, start, start + length, 1)


@meaning("aten.select.int", moves=True)
def select(path: Path, self: Any, dim: Any, index: Any) -> Any:
    """One index of a dim."""
    shape = self.shape
    path.require(len(shape) > 0, "a dim")
    at = normal_dim(path, dim, len(shape))
    place, size = integer(index), integer(shape[at])
    path.require(z3.And(-size <= place, place < size), "an index of the dim")
    place = z3.simplify(z3.If(place < 0, place + size, place))

    def element(elements: Any, index: Index) -> Any:
        return self.at(elements, (*index[:at], place, *index[at:]))

    return sized(path, self, [*shape[:at], *shape[at + 1 :]], element)


@meaning("aten.cat.default", moves=True)
def cat(path: Path, tensors: Sequence[Any], dim: Any = 0) -> Any:
    """Tensors one after another along a dim."""
    path.require(len(tensors) > 0, "a tensor to join")
    rank = tensors[0].dim()
    if any(one.dim() != rank for one in tensors) or len({one.dtype for one in tensors}) > 1:
        raise UnsupportedError("joined tensors of different ranks or dtypes")
    path.require(rank > 0, "a dim to join along")
    at = normal_dim(path, dim, rank)
    if rank == 1 and len(tensors) > 1:
        # Tensors without elements of one dim are skipped; with one dim that is what joining them does.
        pass
    for one in tensors[1:]:
        for place in range(rank):
            if place != at:
                same = integer(one.shape[place]) == integer(tensors[0].shape[place])
                path.require(same, "joined tensors of equal sizes elsewhere")
    sizes = list(tensors[0].shape)
    total: Any = 0
    starts: list[Any] = []
    for one in tensors:
        starts.append(integer(total))
        total = total + one.shape[at]
    sizes[at] = total

    def element(elements: Any, index: Index) -> Any:
        place = integer(index[at])
        result = None
        for start, one in reversed(list(zip(starts, tensors, strict=True))):
            inner = one.at(elements, (*index[:at], z3.simplify(place - start), *index[at + 1 :]))
            result = inner if result is None else z3.If(place < start + integer(one.shape[at]), inner, result)
        return result

    return sized(path, tensors[0], sizes, element)


@method("cat", "concat", "concatenate")
def joined_constants(tensors: Sequence[Any], dim: Any = 0) -> Any:
    """Constants one after another."""
    known = [one for one in tensors if isinstance(one, SymbolicTensor)]
    if len(known) != len(tensors):
        raise UnsupportedError("constants joined with others")
    return cat(known[0].path, list(tensors), dim)


@meaning("aten.stack.default", moves=True)
def stack(path: Path, tensors: Sequence[Any], dim: Any = 0) -> Any:
    """Tensors along a new dim."""
    at = normal_dim(path, dim, tensors[0].dim() + 1)
    return cat(path, [unsqueeze(path, one, at) for one in tensors], at)


@meaning("aten.flip.default", moves=True)
def flip(path: Path, self: Any, dims: Sequence[int]) -> Any:
    """Elements backwards along dims."""
    shape = self.shape
    turned = [normal_dim(path, dim, len(shape)) for dim in dims]
    path.require(len(set(turned)) == len(turned), "dims once each")

    def element(elements: Any, index: Index) -> Any:
        found = [integer(shape[at]) - 1 - one if at in turned else one for at, one in enumerate(index)]
        return self.at(elements, tuple(found))

    return sized(path, self, shape, element)


@meaning("aten.constant_pad_nd.default", moves=True)
def constant_pad(path: Path, self: Any, pad: Sequence[Any], value: Any = 0) -> Any:
    """A number around a tensor; negative widths cut off."""
    shape = self.shape
    path.require(len(pad) % 2 == 0 and len(pad) <= 2 * len(shape), "two widths for each of the last dims")
    before: list[Any] = [0] * len(shape)
    after: list[Any] = [0] * len(shape)
    for at in range(len(pad) // 2):
        before[len(shape) - 1 - at], after[len(shape) - 1 - at] = pad[2 * at], pad[2 * at + 1]
    sizes = [size + low + high for size, low, high in zip(shape, before, after, strict=True)]
    for size, low, high in zip(sizes, before, after, strict=True):
        if low is not high or not isinstance(low, int) or low != 0:
            path.require(integer(size) >= 0, "sizes that are not negative")

    def element(elements: Any, index: Index) -> Any:
        found, inside = [], []
        for one, size, low, high in zip(index, shape, before, after, strict=True):
            place = z3.simplify(integer(one) - integer(low))
            found.append(place)
            if not (isinstance(low, int) and low == 0 and isinstance(high, int) and high == 0):
                inside += [place >= 0, place < integer(size)]
        made = self.at(elements, tuple(found))
        if not inside:
            return made
        is_least = isinstance(value, float) and value == -math.inf and self.dtype.is_floating_point
        around = elements.least(self.dtype) if is_least else elements.constant(value, self.dtype)
        return z3.If(z3.And(*inside), made, around)

    return sized(path, self, sizes, element)


@meaning("aten.repeat.default", moves=True)
def repeat(path: Path, self: Any, repeats: Sequence[Any]) -> Any:
    """A tensor several times along its dims, and along new ones."""
    shape = self.shape
    missing = len(repeats) - len(shape)
    path.require(missing >= 0, "as many counts as dims, or more")
    for one in repeats:
        path.require(integer(one) >= 0, "counts that are not negative")
    sizes = [one * (1 if at < missing else shape[at - missing]) for at, one in enumerate(repeats)]

    def element(elements: Any, index: Index) -> Any:
        found = []
        for at, size in enumerate(shape):
            count, place = repeats[missing + at], integer(index[missing + at])
            found.append(place if isinstance(count, int) and count == 1 else place % integer(size))
        return self.at(elements, tuple(found))

    return sized(path, self, sizes, element)


@meaning("aten.roll.default", moves=True)
def roll(path: Path, self: Any, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Any:
    """Elements moved around dims."""
    if not dims:
        path.require(len(shifts) == 1, "one shift for all elements")
        flat = viewed(path, self, [product(self.shape)])
        return viewed(path, roll(path, flat, shifts, [0]), self.shape)
    path.require(len(shifts) == len(dims), "a shift for each dim")
    shape = self.shape
    made = [normal_dim(path, dim, len(shape)) for dim in dims]

    def element(elements: Any, index: Index) -> Any:
        found = [integer(one) for one in index]
        for shift, dim in zip(shifts, made, strict=True):
            found[dim] = (found[dim] - integer(shift)) % integer(shape[dim])
        return self.at(elements, tuple(found))

    return sized(path, self, shape, element)


@meaning("aten.split_with_sizes.default", moves=True)
def split_with_sizes(path: Path, self: Any, split_sizes: Sequence[Any], dim: Any = 0) -> Any:
    """Parts of given sizes along a dim."""
    at = normal_dim(path, dim, self.dim())
    total: Any = 0
    parts = []
    for size in split_sizes:
        path.require(integer(size) >= 0, "sizes that are not negative")
        total = total + size
    path.require(integer(total) == integer(self.shape[at]), "sizes that add up")
    start: Any = 0
    for size in split_sizes:
        parts.append(_part(path, self, at, start, size))
        start = start + size
    return parts


def _part(path: Path, tensor: Any, at: int, start: Any, size: Any) -> SymbolicTensor:
    sizes = [*tensor.shape[:at], size, *tensor.shape[at + 1 :]]

    def element(elements: Any, index: Index) -> Any:
        return tensor.at(elements, (*index[:at], z3.simplify(integer(index[at]) + integer(start)), *index[at + 1 :]))

    return sized(path, tensor, sizes, element)


@meaning("aten.split.Tensor", moves=True)
def split(path: Path, self: Any, split_size: Any, dim: Any = 0) -> Any:
    """Parts of one size along a dim; the last one may be smaller."""
    at = normal_dim(path, dim, self.dim())
    size = self.shape[at]
    path.require(integer(split_size) > 0, "a size of parts")
    count = max(1, int((size + split_size - 1) // split_size))
    parts = []
    for number in range(count):
        start = number * split_size
        left = size - start
        width = split_size if number < count - 1 else left
        parts.append(_part(path, self, at, start, width))
    return parts


@meaning("aten.unbind.int", moves=True)
def unbind(path: Path, self: Any, dim: Any = 0) -> Any:
    """All indices of a dim."""
    at = normal_dim(path, dim, self.dim())
    return [select(path, self, at, number) for number in range(int(self.shape[at]))]


@meaning(
    "aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.contiguous.default",
    "aten.lift_fresh.default", "aten._clone_dim_order.default", "dim_order_ops._clone_dim_order.default",
    moves=True,
)  # fmt: skip
def same(path: Path, self: Any, **_: Any) -> Any:
    """The same values."""
    return viewed(path, self, self.shape)


@meaning("aten.dropout.default", moves=True)
def dropout(path: Path, input: Any, p: Any, train: Any) -> Any:
    """The same values, unless in training."""
    if train is not False and bool(train) and not bool(p == 0):
        raise UnsupportedError("random numbers")
    return viewed(path, input, input.shape)


@meaning("aten.feature_dropout.default", "aten.alpha_dropout.default", moves=True)
def other_dropout(path: Path, input: Any, p: Any, train: Any) -> Any:
    """Likewise."""
    return dropout(path, input, p, train)


@meaning("aten.type_as.default")
def type_as(path: Path, self: Any, other: Any) -> Any:
    """A cast to the dtype of another tensor."""
    return to_dtype(path, self, other.dtype)


@meaning("aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default")
def to_copy(path: Path, self: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """A cast."""
    return to_dtype(path, self, dtype)


@meaning("aten.to.dtype", "aten.to.dtype_layout")
def to(path: Path, self: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """A cast."""
    return to_dtype(path, self, dtype)


def filled(path: Path, sizes: Sequence[Any], value: Any, dtype: torch.dtype) -> SymbolicTensor:
    """Return a tensor of one value."""
    for one in sizes:
        path.require(integer(one) >= 0, "sizes that are not negative")
    return SymbolicTensor.make(path, sizes, dtype, lambda ev, index: ev.constant(value, dtype))


@meaning("aten.full.default")
def full(path: Path, size: Sequence[Any], fill_value: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """A tensor of one value."""
    return filled(path, size, fill_value, dtype or torch.full([1], stand_in(fill_value)).dtype)


@meaning("aten.scalar_tensor.default")
def scalar_tensor(path: Path, s: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """A number as a tensor."""
    return filled(path, [], s, dtype or torch.float32)


@meaning("aten.full_like.default")
def full_like(path: Path, self: Any, fill_value: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """A tensor of one value with the sizes of another."""
    return filled(path, self.shape, fill_value, dtype or self.dtype)


@meaning("aten.fill.Scalar")
def fill(path: Path, self: Any, value: Any) -> Any:
    """A tensor of one value with the sizes and the dtype of another."""
    return filled(path, self.shape, value, self.dtype)


@meaning("aten.zeros_like.default")
def zeros_like(path: Path, self: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """Zeros with the sizes of another tensor."""
    return filled(path, self.shape, 0, dtype or self.dtype)


@meaning("aten.ones_like.default")
def ones_like(path: Path, self: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """Ones with the sizes of another tensor."""
    return filled(path, self.shape, 1, dtype or self.dtype)


@meaning("aten.pixel_shuffle.default", moves=True)
def pixel_shuffle(path: Path, self: Any, upscale_factor: Any) -> Any:
    """Channels moved to rows and columns."""
    factor, shape = upscale_factor, self.shape
    path.require(len(shape) >= 3, "three dims")
    path.require(integer(factor) > 0, "a factor")
    channels, height, width = shape[-3:]
    path.require(integer(channels) % (integer(factor) * integer(factor)) == 0, "channels to move")
    rest = channels // (factor * factor)
    batch = shape[:-3]
    path.assume(integer(rest) * integer(factor) * integer(factor) == integer(channels))
    inner = viewed(path, self, [*batch, rest, factor, factor, height, width])
    dims = [*range(len(batch)), *(len(batch) + at for at in (0, 3, 1, 4, 2))]
    return viewed(path, permuted(path, inner, dims), [*batch, rest, height * factor, width * factor])


register_methods(
    {
        "reshape": "aten.reshape.default",
        "view": "aten.view.default",
        "permute": "aten.permute.default",
        "transpose": "aten.transpose.int",
        "contiguous": "aten.clone.default",
        "clone": "aten.clone.default",
        "flip": "aten.flip.default",
        "expand": "aten.expand.default",
        "narrow": "aten.narrow.default",
        "to": "aten.to.dtype",
        "mul": "aten.mul.Tensor",
        "add": "aten.add.Tensor",
        "sub": "aten.sub.Tensor",
        "rsub": "aten.rsub.Tensor",
        "div": "aten.div.Tensor",
        "neg": "aten.neg.default",
        "sqrt": "aten.sqrt.default",
        "rsqrt": "aten.rsqrt.default",
        "abs": "aten.abs.default",
        "exp": "aten.exp.default",
        "reciprocal": "aten.reciprocal.default",
    }
)

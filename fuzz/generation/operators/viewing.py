"""Calls of operators that show the elements of one tensor in another shape or order, or copy them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from exirkit.fuzz.generation.method.extents import (
    MOST_ELEMENTS,
    Extent,
    Extents,
    divided,
    factor_of,
    greatest_count,
    is_static,
    low_of,
    plus,
    product,
)
from exirkit.fuzz.generation.method.guards import dense
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import DTYPES, Value

from . import rearranging
from .catalogue import Operator
from .registry import proposes

ENDLESS = 2**63 - 1


@proposes("shape")
def shape(scope: Scope, operator: Operator) -> None:
    """Propose one of many operators, by the rule that the catalogue names."""
    least, most = _RANKS.get(operator.option("rule"), (1, 5))
    value = scope.pick(operator.dtypes, (least, most))
    _SHAPES[operator.option("rule")](scope, operator, value)


def _show(
    scope: Scope, operator: Operator, value: Value, args: tuple[object, ...], sizes: Extents, *, is_dense: bool = False
) -> Value:
    """Add a call whose results are elements of the operand."""
    copy = operator.option("copy")
    is_copy = copy is not None and scope.choices.chance(0.1)
    fact = value.fact._replace(sizes=sizes, is_dense=is_dense)
    return scope.call(copy if is_copy else operator.name, (value, *args), fact, root=None if is_copy else value)


def replaced(sizes: Extents, dim: int, *new: Extent) -> Extents:
    """Return sizes with others instead of one."""
    return (*sizes[:dim], *new, *sizes[dim + 1 :])


def from_end(scope: Scope, dim: int, rank: int) -> int:
    """Return a dim as an argument: counted from the end at times."""
    return dim - rank if scope.choices.chance(0.3) else dim


def _view(scope: Scope, operator: Operator, value: Value) -> None:
    # Whether a tensor with gaps can be viewed must not depend on what symbols are.
    if not operator.option("odd") or not is_static(value.sizes):
        value = dense(scope, value)
    sizes = _other_sizes(scope, value)
    written: list[Extent] = list(sizes)
    free = [dim for dim, size in enumerate(sizes) if low_of(size) > 0]
    if free and 0 not in sizes and scope.choices.chance(0.3):
        written[scope.choices.pick(free)] = -1
    _show(scope, operator, value, (written,), sizes, is_dense=value.fact.is_dense)


def _other_sizes(scope: Scope, value: Value) -> Extents:
    """Return sizes with as many elements: dims merged, split, put in another order, ones added or taken away."""
    sizes = value.sizes
    for _ in range(scope.choices.integer(1, 2)):
        kind = scope.choices.integer(0, 3)
        if kind == 0 and len(sizes) > 1:
            dim = scope.choices.integer(0, len(sizes) - 2)
            merged = product(sizes[dim : dim + 2])
            sizes = sizes if merged is None else (*sizes[:dim], merged, *sizes[dim + 2 :])
        elif kind == 1:
            sizes = _split(scope, sizes)
        elif kind == 2 and len(sizes) < 5:
            dim = scope.choices.integer(0, len(sizes))
            sizes = (*sizes[:dim], 1, *sizes[dim:])
        elif is_static(sizes):
            sizes = tuple(scope.choices.shuffled(sizes))
    return sizes


def _split(scope: Scope, sizes: Extents) -> Extents:
    for dim, size in enumerate(sizes):
        for factor in (2, 3, 5):
            rest = divided(size, factor)
            if rest is not None and low_of(size) > 0 and factor_of(size) > factor and len(sizes) < 5:
                pair = (factor, rest) if scope.choices.chance(0.5) else (rest, factor)
                return replaced(sizes, dim, *pair)
    return sizes


def _flatten(scope: Scope, operator: Operator, value: Value) -> None:
    if not is_static(value.sizes):
        value = dense(scope, value)
    start = scope.choices.integer(0, max(value.rank - 2, 0))
    merged = product(value.sizes[start:])
    if merged is None:
        start, merged = max(value.rank - 1, 0), value.sizes[-1]
    sizes = (*value.sizes[:start], merged)
    _show(
        scope,
        operator,
        value,
        (start,) if start or scope.choices.chance(0.5) else (),
        sizes,
        is_dense=value.fact.is_dense,
    )


def _permute(scope: Scope, operator: Operator, value: Value) -> None:
    if scope.choices.chance(0.2):
        # Only values state what has become of dims of one size; those that are stored would be permuted ahead of time.
        sizes = (scope.choices.integer(2, 3),) * scope.choices.integer(3, 4)
        value = scope.new_input(value.dtype, sizes, scope.building.contents(value.dtype))
    elif value.rank > 1 and scope.choices.chance(0.5):
        value = _with_one(scope, value)
    order = _permuted(scope, operator, value)
    if value.rank > 2 and scope.choices.chance(0.5):
        # In which order two of them are applied matters from three dims on, and the same one twice is not always none.
        _permuted(scope, operator, scope.values[-1], order if scope.choices.chance(0.4) else None)
    if scope.choices.chance(0.5):
        # What is returned is never laid over its source.
        scope.must_use.append(scope.values[-1])


def _drawn_order(scope: Scope, rank: int) -> list[int]:
    """Return any order of dims; often one that only turns them, whose inverse is another one from three dims on."""
    if rank > 1 and scope.choices.chance(0.3):
        first = scope.choices.integer(1, rank - 1)
        return [*range(first, rank), *range(first)]
    return scope.choices.shuffled(range(rank))


def _permuted(scope: Scope, operator: Operator, value: Value, order: list[int] | None = None) -> list[int]:
    """Propose a permutation, in this order or any, and return the order."""
    order = order or _drawn_order(scope, value.rank)
    sizes = tuple(value.sizes[dim] for dim in order)
    written = _dims_as_written(scope, order)
    _show(scope, operator, value, (written,), sizes, is_dense=value.fact.is_dense and order == list(range(value.rank)))
    return order


def _dims_as_written(scope: Scope, order: list[int]) -> list[int]:
    """Return a permutation, its dims counted from either end: what compares them as they stand sees another order."""
    rank = len(order)
    style = scope.choices.integer(0, 3)
    if style == 0:
        return [from_end(scope, dim, rank) for dim in order]
    if style == 1:
        return [dim - rank for dim in order]
    if style == 2:
        return [dim - rank if scope.choices.chance(0.5) else dim for dim in order]
    # As if they grew, as far as that goes: what asks whether they are sorted takes them for all dims in turn.
    falls = next((at for at in range(rank - 1, 0, -1) if order[at] < order[at - 1]), 0)
    return [dim - rank if at < falls else dim for at, dim in enumerate(order)]


def _transpose(scope: Scope, operator: Operator, value: Value) -> None:
    one, other = scope.choices.integer(0, value.rank - 1), scope.choices.integer(0, value.rank - 1)
    if one == other:
        other = (one + 1) % value.rank
    sizes = list(value.sizes)
    sizes[one], sizes[other] = sizes[other], sizes[one]
    args = (from_end(scope, one, value.rank), from_end(scope, other, value.rank))
    _show(scope, operator, value, args, tuple(sizes))


def _t(scope: Scope, operator: Operator, value: Value) -> None:
    _show(scope, operator, value, (), value.sizes[::-1])


def _expand(scope: Scope, operator: Operator, value: Value) -> None:
    if 1 not in value.sizes and value.rank < 5 and scope.choices.chance(0.7):
        dim = scope.choices.integer(0, value.rank)
        sizes = (*value.sizes[:dim], 1, *value.sizes[dim:])
        fact = value.fact._replace(sizes=sizes, is_dense=False)
        value = scope.call("aten.unsqueeze.default", (value, dim), fact, root=value)
    extents: tuple[Extent, ...] = (3, 2, 5, *scope.extents)
    made: list[Extent] = []
    for size in value.sizes:
        if size == 1 and scope.choices.chance(0.8):
            new = scope.choices.pick(extents)
            made.append(new if greatest_count((*made, new, *value.sizes)) < MOST_ELEMENTS else 2)
        else:
            made.append(size)
    written = [
        -1 if size == old and scope.choices.chance(0.5) else size for size, old in zip(made, value.sizes, strict=True)
    ]
    if len(made) < 5 and scope.choices.chance(0.3) and greatest_count(made) < 1000:
        made, written = [2, *made], [2, *written]
    _show(scope, operator, value, (written,), tuple(made))


def _unsqueeze(scope: Scope, operator: Operator, value: Value) -> None:
    dim = scope.choices.integer(0, value.rank)
    written = from_end(scope, dim, value.rank + 1)
    _show(scope, operator, value, (written,), (*value.sizes[:dim], 1, *value.sizes[dim:]), is_dense=value.fact.is_dense)


def _with_one(scope: Scope, value: Value) -> Value:
    """Return a value that has a dim of size 1."""
    if 1 in value.sizes or value.rank >= 5 or scope.choices.chance(0.1):
        return value
    dim = scope.choices.integer(0, value.rank)
    fact = value.fact._replace(sizes=(*value.sizes[:dim], 1, *value.sizes[dim:]))
    return scope.call("aten.unsqueeze.default", (value, dim), fact, root=value)


def _squeezable(value: Value) -> list[int]:
    """Return the dims that `squeeze` takes away, or that it never does."""
    return [dim for dim, size in enumerate(value.sizes) if isinstance(size, int) or low_of(size) > 1]


def _squeeze(scope: Scope, operator: Operator, value: Value) -> None:
    value = _with_one(scope, value)
    ones = [dim for dim, size in enumerate(value.sizes) if size == 1] or _squeezable(value)
    if not ones:
        value = scope.fresh(value.dtype, (2, 1))
        ones = [1]
    dim = scope.choices.pick(ones)
    sizes = replaced(value.sizes, dim) if value.sizes[dim] == 1 else value.sizes
    _show(scope, operator, value, (from_end(scope, dim, value.rank),), sizes, is_dense=value.fact.is_dense)


def _squeeze_dims(scope: Scope, operator: Operator, value: Value) -> None:
    value = _with_one(scope, value)
    ones = [dim for dim, size in enumerate(value.sizes) if size == 1]
    dims = [dim for dim in _squeezable(value) if dim in ones or scope.choices.chance(0.3)]
    sizes = tuple(size for dim, size in enumerate(value.sizes) if not (dim in dims and size == 1))
    _show(scope, operator, value, (dims,), sizes, is_dense=value.fact.is_dense)


def _slice(scope: Scope, operator: Operator, value: Value) -> None:
    dim = scope.choices.integer(0, value.rank - 1)
    size = value.sizes[dim]
    # Whether something is sliced away, and whether one element is left, must not depend on what symbols are.
    most = low_of(size) if isinstance(size, int) else low_of(size) - 2
    start = scope.choices.integer(0, min(most, 3))
    step = scope.choices.pick((1, 1, 2)) if isinstance(size, int) else 1
    new: Extent
    if not isinstance(size, int) and scope.choices.chance(0.6):
        end, new = ENDLESS, plus(size, -start)
    else:
        longest = low_of(size) if isinstance(size, int) else low_of(size) - 1
        end = scope.choices.integer(start, longest)
        if end == start and not scope.building.requests("zero_size"):
            start, end = 0, longest
        new = -(-(end - start) // step)
        if isinstance(size, int) and scope.choices.chance(0.2) and end < size:
            end -= size
    _show(
        scope, operator, value, _slice_args(scope, dim, start, end, step, value.rank), replaced(value.sizes, dim, new)
    )


def endless_slice(scope: Scope) -> None:
    """Add a slice whose end is the greatest integer."""
    value = scope.pick(DTYPES, (1, 4), lambda each: low_of(each.sizes[0]) > 2)
    start = 1 if low_of(value.sizes[0]) > 2 else 0
    fact = value.fact._replace(sizes=(plus(value.sizes[0], -start), *value.sizes[1:]), is_dense=False)
    scope.call("aten.slice.Tensor", (value, 0, start, ENDLESS), fact, root=value)


def _slice_args(scope: Scope, dim: int, start: int, end: int, step: int, rank: int) -> tuple[int, ...]:
    args = (from_end(scope, dim, rank), start, end, step)
    return args[:3] if step == 1 and scope.choices.chance(0.7) else args


def _select(scope: Scope, operator: Operator, value: Value) -> None:
    dims = [dim for dim, size in enumerate(value.sizes) if low_of(size) > 0]
    if not dims:
        value = scope.fresh(value.dtype, (3, 2))
        dims = [0, 1]
    dim = scope.choices.pick(dims)
    index = scope.choices.integer(0, low_of(value.sizes[dim]) - 1)
    written = index - low_of(value.sizes[dim]) if scope.choices.chance(0.3) else index
    _show(scope, operator, value, (from_end(scope, dim, value.rank), written), replaced(value.sizes, dim))


def _narrow(scope: Scope, operator: Operator, value: Value) -> None:
    dim = scope.choices.integer(0, value.rank - 1)
    low = low_of(value.sizes[dim]) if isinstance(value.sizes[dim], int) else low_of(value.sizes[dim]) - 1
    start = scope.choices.integer(0, max(low - 1, 0))
    length = scope.choices.integer(1, low - start) if low > start else 0
    _show(scope, operator, value, (dim, start, length), replaced(value.sizes, dim, length))


def _diagonal(scope: Scope, operator: Operator, value: Value) -> None:
    if not (is_static(value.sizes[:2]) and 0 not in value.sizes[:2]):
        value = scope.fresh(value.dtype, (3, 4))
    rows, columns = value.sizes[:2]
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    offset = scope.choices.integer(0, columns - 1)
    sizes = (*value.sizes[2:], min(rows, columns - offset))
    _show(scope, operator, value, (offset,) if value.rank == 2 else (offset, 0, 1), sizes)


def _unfold(scope: Scope, operator: Operator, value: Value) -> None:
    dims = [dim for dim, size in enumerate(value.sizes) if isinstance(size, int) and size > 1]
    if not dims or value.rank > 4:
        value = scope.fresh(value.dtype, (2, 5))
        dims = [1]
    dim = scope.choices.pick(dims)
    size = low_of(value.sizes[dim])
    length = scope.choices.integer(1, min(size, 3))
    step = scope.choices.integer(1, 2)
    sizes = (*replaced(value.sizes, dim, (size - length) // step + 1), length)
    _show(scope, operator, value, (dim, length, step), sizes)


def _as_strided(scope: Scope, operator: Operator, value: Value) -> None:
    if not is_static(value.sizes) or 0 in value.sizes or value.rank != 2:
        value = scope.fresh(value.dtype, (3, 4))
    value = dense(scope, value)
    rows, columns = (low_of(size) for size in value.sizes)
    count = scope.choices.integer(1, columns)
    args = ([count, rows], [1, columns], scope.choices.integer(0, columns - count))
    scope.call(operator.name, (value, *args), value.fact._replace(sizes=(count, rows)))


_RANKS: Mapping[str, tuple[int, int]] = {
    "view": (0, 4),
    "flatten": (1, 5),
    "permute": (1, 5),
    "transpose": (2, 5),
    "t": (2, 2),
    "expand": (0, 4),
    "unsqueeze": (0, 4),
    "squeeze": (0, 4),
    "squeeze_dims": (0, 4),
    "diagonal": (2, 4),
    "unfold": (1, 4),
    "repeat": (1, 4),
    "triangle": (2, 4),
    "pixel_shuffle": (3, 4),
    "pixel_unshuffle": (3, 4),
    "as_strided": (2, 2),
}

_SHAPES: Mapping[str, Callable[[Scope, Operator, Value], None]] = {
    "view": _view,
    "flatten": _flatten,
    "permute": _permute,
    "transpose": _transpose,
    "t": _t,
    "expand": _expand,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "squeeze_dims": _squeeze_dims,
    "slice": _slice,
    "select": _select,
    "narrow": _narrow,
    "diagonal": _diagonal,
    "unfold": _unfold,
    "as_strided": _as_strided,
    "flip": rearranging.flip,
    "roll": rearranging.roll,
    "repeat": rearranging.repeat,
    "triangle": rearranging.triangle,
    "pixel_shuffle": rearranging.pixel_shuffle,
    "pixel_unshuffle": rearranging.pixel_unshuffle,
    "pad": rearranging.pad,
}

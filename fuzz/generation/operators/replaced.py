"""Calls that lowering replaces for the kernels of the official runtime, and calls for which it chooses among kernels.

Other families hardly make them: numbers, sizes and layouts have to be those that no kernel takes, or that one kernel
computes faster than another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from exirkit.fuzz.generation.method.extents import Extent, Extents, greatest_count, high_of, low_of, plus
from exirkit.fuzz.generation.method.guards import calm, widened, within
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Fact, Value
from exirkit.fuzz.programs import Contents

from . import quantizing
from .images import pooled_side
from .layers import side_after, sum_of_products
from .viewing import replaced

_INTEGERS = (torch.int64, torch.int32)
_MOST_ELEMENTS = 500


def whole_arithmetic(scope: Scope) -> None:
    """Compute a remainder or a power of integers of both signs."""
    value = scope.pick(_INTEGERS, accept=lambda one: one.is_exact and one.fact.low < 0)
    kind = scope.choices.integer(0, 3)
    if kind == 3:
        value = within(scope, value, -4, 4)
        exponent = scope.choices.pick((2, 3, 5, 4))
        ends = (value.fact.low**exponent, value.fact.high**exponent, 0)
        fact = value.fact._replace(low=min(ends), high=max(ends), bits=0)
        scope.must_use.append(scope.call("aten.pow.Tensor_Scalar", (value, exponent), fact))
        return
    divisor = scope.choices.pick((3, 2, -3, 5, 7))
    fact = value.fact._replace(low=-abs(divisor), high=abs(divisor), bits=0)
    if kind == 2:
        contents = Contents(kind="numbers", numbers=(divisor,))
        other = scope.building.store("constant", value.dtype, (1,) if value.rank else (), contents)
        scope.must_use.append(scope.call("aten.remainder.Tensor", (value, other), fact))
        return
    scope.must_use.append(scope.call("aten.remainder.Scalar", (value, divisor), fact))


def cropping_pad(scope: Scope) -> None:
    """Pad with negative numbers, which take elements away, at one end or both, beside others."""

    def is_fine(value: Value) -> bool:
        return value.rank > 0 and all(low_of(size) > 2 for size in value.sizes[-2:]) and _is_small(value)

    dtypes = (torch.float32, torch.int64, torch.float64, torch.int32)
    value = scope.pick(dtypes, (1, 4), is_fine, nonempty=True)
    if not is_fine(value):
        value = scope.fresh(value.dtype, (4, 5))
    count = scope.choices.integer(1, min(value.rank, 2))
    sizes = value.sizes
    written: list[int] = []
    for dim in range(value.rank - 1, value.rank - 1 - count, -1):
        pair = (scope.choices.integer(-1, 2), scope.choices.integer(-1, 1))
        pair = (-1, pair[1]) if dim == value.rank - 1 and min(pair) >= 0 else pair
        written += pair
        sizes = replaced(sizes, dim, plus(sizes[dim], sum(pair)))
    number = scope.choices.pick((0, 1, -1, 2))
    fact = value.fact._replace(sizes=sizes, is_dense=False)
    fact = fact._replace(low=min(fact.low, number), high=max(fact.high, number))
    scope.must_use.append(scope.call("aten.constant_pad_nd.default", (value, written, number), fact))


def _is_small(value: Value) -> bool:
    return greatest_count(value.sizes) <= _MOST_ELEMENTS


def over_volumes(scope: Scope) -> None:
    """Propose a convolution or a pooling over three dims."""
    sides = [scope.choices.integer(2, 4) for _ in range(3)]
    is_negative, is_padded = scope.choices.chance(0.3), scope.choices.chance(0.6)
    contents = scope.building.contents(torch.float32, -2, -0.5 if is_negative else 2)
    sizes = (scope.choices.integer(1, 2), scope.choices.pick((2, 1, 3)), *sides)
    value = scope.new_input(torch.float32, sizes, contents)
    window = [scope.choices.integer(1, min(side, 3)) for side in sides]
    stride = [scope.choices.pick((1, 2)) for _ in sides]
    # Along all dims or none: only windows in the corners show few elements and much of what they are padded with.
    padding = [size // 2 if is_padded else 0 for size in window]
    # Several over one image: what differs is how windows meet its ends.
    for act in scope.choices.shuffled((_largest_of_volumes, _mean_of_volumes, _convolved_volumes))[:2]:
        is_ceiled = act is not _convolved_volumes and scope.choices.chance(0.5)
        pairs = zip(sides, window, stride, padding, strict=True)
        made = tuple(pooled_side(side, size, step, pad, is_ceiled=is_ceiled) for side, size, step, pad in pairs)
        scope.must_use.append(act(scope, value, (window, stride, padding), made, is_ceiled))


_Windows = tuple[list[int], list[int], list[int]]


def _largest_of_volumes(
    scope: Scope, value: Value, windows: _Windows, made: tuple[Extent, ...], is_ceiled: bool
) -> Value:
    fact = value.fact._replace(sizes=(*value.sizes[:2], *made))
    places = Fact(torch.int64, fact.sizes, 0, greatest_count(value.sizes[2:]) - 1, 0, True)
    args = (value, *windows, [1, 1, 1], True) if is_ceiled else (value, *windows)
    largest, where = scope.call_several("aten.max_pool3d_with_indices.default", args, (fact, places))
    # Our chain computes these planes without places.
    scope.values.remove(where)
    return largest


def _mean_of_volumes(scope: Scope, value: Value, windows: _Windows, made: tuple[Extent, ...], is_ceiled: bool) -> Value:
    low, high = widened(min(value.fact.low, 0), max(value.fact.high, 0))
    fact = value.fact._replace(sizes=(*value.sizes[:2], *made), low=low, high=high, bits=None)
    return scope.call("aten.avg_pool3d.default", (value, *windows, is_ceiled, scope.choices.chance(0.6)), fact)


def _convolved_volumes(
    scope: Scope, value: Value, windows: _Windows, made: tuple[Extent, ...], is_ceiled: bool
) -> Value:
    del is_ceiled
    window, stride, padding = windows
    channels = low_of(value.sizes[1])
    outputs = scope.choices.pick((2, 1, 3))
    contents = scope.building.contents(torch.float32, -1, 1, 1)
    weight = scope.building.store("parameter", torch.float32, (outputs, channels, *window), contents)
    fact = sum_of_products(value, weight, channels * window[0] * window[1] * window[2])
    fact = fact._replace(sizes=(value.sizes[0], outputs, *made), is_dense=True)
    args = (value, weight, None, stride, padding, [1, 1, 1], False, [0, 0, 0], 1)
    return scope.call("aten.convolution.default", args, fact)


def scaled_sum_of_one(scope: Scope) -> None:
    """Add several elements, times a factor, to one."""
    dtypes = (torch.float32, torch.int64, torch.int32)
    many = calm(scope, scope.pick(dtypes, (1, 4), lambda value: low_of(value.sizes[-1]) > 1, nonempty=True))
    sizes = scope.choices.pick(((1,), (), (1,) * many.rank))
    one = scope.fresh(many.dtype, sizes)
    factor = scope.choices.pick((3, 2, -1, -2))
    ends = (many.fact.low * factor, many.fact.high * factor)
    grids = (one.fact.bits, many.fact.bits)
    fact = many.fact._replace(
        low=one.fact.low + min(ends),
        high=one.fact.high + max(ends),
        bits=None if None in grids else max(one.fact.bits or 0, many.fact.bits or 0),
    )
    scope.must_use.append(scope.call("aten.add.Tensor", (one, many), fact, (("alpha", factor),)))


def varying_parts(scope: Scope) -> None:
    """Cut a tensor of which another size varies into copies, not views."""
    extents = scope.building.dynamic_sizes()
    if not extents:
        return
    count = scope.choices.integer(2, 4)
    options: tuple[Extents, ...] = ((extents[0], count), (count, extents[0]), (2, extents[0], count))
    sizes = scope.choices.pick(options)
    value = scope.new_input(torch.float32, sizes, scope.building.contents(torch.float32))
    dim = max(at for at, size in enumerate(sizes) if size == count)
    written = dim - value.rank if scope.choices.chance(0.3) else dim
    if scope.choices.chance(0.5):
        facts = [value.fact._replace(sizes=replaced(sizes, dim))] * count
        parts = scope.call_several("aten.unbind_copy.int", (value, written), facts)
    else:
        length = scope.choices.integer(1, count - 1)
        lengths = [min(length, count - start) for start in range(0, count, length)]
        facts = [value.fact._replace(sizes=replaced(sizes, dim, one)) for one in lengths]
        parts = scope.call_several("aten.split_copy.Tensor", (value, length, written), facts)
    scope.must_use += parts


def layer_of_known_size(scope: Scope) -> None:
    """Propose a convolution with a stored weight over an image of known size: for such, kernels are chosen by cost."""
    size = scope.choices.pick((3, 1, 2))
    sides = [size * scope.choices.integer(2, 3) + scope.choices.integer(0, 1) for _ in range(2)]
    stride = scope.choices.pick((1, size))
    padding = scope.choices.integer(0, size // 2)
    channels, outputs = scope.choices.integer(1, 3), scope.choices.integer(1, 3)
    contents = scope.building.contents(torch.float32, -1, 1, 1)
    value = scope.new_input(torch.float32, (1, channels, *sides), contents)
    weight = scope.building.store("parameter", torch.float32, (outputs, channels, size, size), contents)
    bias = scope.building.store("parameter", torch.float32, (outputs,), contents)
    count = channels * size * size
    is_biased = scope.choices.chance(0.5)
    fact = sum_of_products(value, weight, count, bias if is_biased else None)
    made = tuple(side_after(side, size, stride, padding) for side in sides)
    fact = fact._replace(sizes=(1, outputs, *made), is_dense=True)
    given = bias if is_biased else None
    args = (value, weight, given, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1)
    scope.must_use.append(scope.call("aten.convolution.default", args, fact))


def decomposed_call(scope: Scope) -> None:
    """Call an operator that our chain decomposes itself, for torch does not."""
    scope.choices.pick((_running_extreme, _place_among, _middle, _on_diagonal, _largest_of_adaptive, _running_product))(
        scope
    )


def _along(scope: Scope, value: Value) -> tuple[int, int]:
    """Return a dim, and how it is written: counted from the end at times."""
    dim = scope.choices.integer(0, value.rank - 1)
    return dim, dim - value.rank if scope.choices.chance(0.4) else dim


def _ordered(scope: Scope, *, static: bool = False) -> Value:
    """Return something exact: which of two elements is the greater one must not be a matter of the last bit."""

    def is_fine(value: Value) -> bool:
        return value.is_exact and _is_small(value)

    dtypes = (torch.float32, torch.int64, torch.float64, torch.int32)
    value = scope.pick(dtypes, (1, 4), is_fine, nonempty=True, static=static)
    is_known = not static or all(isinstance(size, int) for size in value.sizes)
    return value if is_fine(value) and is_known else scope.fresh(value.dtype, (3, 5))


def _running_extreme(scope: Scope) -> None:
    value = _ordered(scope)
    dim, written = _along(scope, value)
    places = Fact(torch.int64, value.sizes, 0, max(high_of(value.sizes[dim]) - 1, 0), 0, False)
    name = scope.choices.pick(("aten.cummax.default", "aten.cummin.default"))
    scope.must_use += scope.call_several(name, (value, written), (value.fact._replace(is_dense=False), places))


def _running_product(scope: Scope) -> None:
    value = within(scope, _ordered(scope), -1, 1)
    is_whole = value.dtype in _INTEGERS
    fact = value.fact._replace(low=-1, high=1, is_dense=False, dtype=torch.int64 if is_whole else value.dtype)
    fact = fact._replace(bits=0 if is_whole else None)
    scope.must_use.append(scope.call("aten.cumprod.default", (value, _along(scope, value)[1]), fact))


def _place_among(scope: Scope) -> None:
    value = _ordered(scope)
    numbers = scope.choices.pick(((-1, 0, 1), (-2, -1, 0, 0, 2), (0,)))
    contents = Contents(kind="numbers", numbers=numbers)
    limits = scope.building.store("constant", value.dtype, (len(numbers),), contents)
    fact = Fact(torch.int64, value.sizes, 0, len(numbers), 0, False)
    side = scope.choices.pick(((), (("right", True),), (("side", "right"),), (("side", "left"),)))
    if scope.choices.chance(0.5):
        made = scope.call("aten.searchsorted.Tensor", (limits, value), fact, side)
    else:
        made = scope.call(
            "aten.bucketize.Tensor", (value, limits), fact, side if side[:1] == (("right", True),) else ()
        )
    scope.must_use.append(made)


def _middle(scope: Scope) -> None:
    value = _ordered(scope, static=True)
    if value.dtype.is_floating_point:
        # Which of two zeros is meant is left open, and shows if they differ in sign.
        value = scope.call("aten.abs.default", (value,), value.fact._replace(low=0, high=value.magnitude))
    dim, written = _along(scope, value)
    size = low_of(value.sizes[dim])
    keeps = scope.choices.chance(0.4)
    sizes = replaced(value.sizes, dim, *((1,) if keeps else ()))
    # Which of equal elements is meant is left open.
    places = Fact(torch.int64, sizes, 0, size - 1, 0, False, True)
    kind = scope.choices.pick(("median.dim", "kthvalue.default", "mode.default"))
    first = (scope.choices.integer(1, size),) if kind == "kthvalue.default" else ()
    facts = (value.fact._replace(sizes=sizes, is_dense=False), places)
    found = scope.call_several(f"aten.{kind}", (value, *first, written, keeps), facts)
    scope.must_use.append(found[0])


def _on_diagonal(scope: Scope) -> None:
    value = _ordered(scope, static=True)
    if value.rank < 2:
        value = scope.fresh(value.dtype, (3, 5))
    one, other = scope.choices.shuffled(range(value.rank))[:2]
    rows, columns = low_of(value.sizes[one]), low_of(value.sizes[other])
    offset = scope.choices.integer(1 - rows, columns - 1)
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    others = tuple(size for dim, size in enumerate(value.sizes) if dim not in (one, other))
    new = scope.fresh(value.dtype, (*others, count))
    grids = (value.fact.bits or 0, new.fact.bits or 0)
    low, high = min(value.fact.low, new.fact.low), max(value.fact.high, new.fact.high)
    fact = value.fact._replace(low=low, high=high, bits=max(grids), is_dense=False)
    args = (value, new, offset, one - value.rank if scope.choices.chance(0.4) else one, other)
    scope.must_use.append(scope.call("aten.diagonal_scatter.default", args, fact))


def _largest_of_adaptive(scope: Scope) -> None:
    sides = (scope.choices.integer(3, 6), scope.choices.integer(3, 6))
    value = scope.new_input(torch.float32, (1, 2, *sides), scope.building.contents(torch.float32))
    made = [scope.choices.integer(1, side) for side in sides]
    fact = value.fact._replace(sizes=(1, 2, *made))
    places = Fact(torch.int64, fact.sizes, 0, sides[0] * sides[1] - 1, 0, True)
    largest, where = scope.call_several("aten.adaptive_max_pool2d.default", (value, made), (fact, places))
    scope.must_use += [largest, where] if scope.choices.chance(0.5) else [largest]


def quantized_call(scope: Scope) -> None:
    """Quantize in one of the ways for which parameters have to be cast, or results to be made in another dtype."""
    names = ("channel", "half", "channel", "embedding", "half", "kernel", "token")
    quantizing.SCHEMES[scope.choices.pick(names)](scope)


REPLACED: Mapping[str, Callable[[Scope], None]] = {
    "whole_arithmetic": whole_arithmetic,
    "cropping_pad": cropping_pad,
    "over_volumes": over_volumes,
    "scaled_sum_of_one": scaled_sum_of_one,
    "varying_parts": varying_parts,
    "layer_of_known_size": layer_of_known_size,
    "quantized_call": quantized_call,
    "decomposed_call": decomposed_call,
}
"""Acts by the features that they make."""

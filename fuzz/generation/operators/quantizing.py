"""Calls that quantize and dequantize: schemes of quantized models, with parameters from usual to odd."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from exirkit.fuzz.generation.method.extents import Extent, greatest_count, high_of, is_static, least_count, low_of
from exirkit.fuzz.generation.method.guards import cast_fact, dense, widened, within
from exirkit.fuzz.generation.method.scope import Scope, preferred
from exirkit.fuzz.generation.method.values import Fact, Value, bits_of, is_on_grid
from exirkit.fuzz.programs import Contents

from .catalogue import Operator
from .layers import sum_of_products
from .registry import proposes
from .viewing import from_end

_LIBRARY = "quantized_decomposed"
_FULL = {
    torch.int8: (-128, 127),
    torch.uint8: (0, 255),
    torch.int16: (-32768, 32767),
    torch.int32: (-(2**31), 2**31 - 1),
}
_NARROWER = {
    torch.int8: ((-127, 127), (-8, 7), (-2, 1), (-128, 0), (3, 100)),
    torch.uint8: ((0, 15), (1, 255), (100, 101)),
    torch.int16: ((-32767, 32767), (-256, 255), (7, 4000)),
    torch.int32: ((-(2**24), 2**24), (-65536, 65535)),
}
_DTYPES = (torch.int8, torch.uint8, torch.int8, torch.int16, torch.int32)

_DYADIC = (0.125, 0.25, 0.0625, 0.5, 0.0078125)
_USUAL = (0.1, 0.05, 0.0123, 0.007843137718737125, 1 / 3, 0.0392156862745098)
_EXTREME = (1e-30, 2.0**-126, 3e-8, 6.1e-5, 1e20, 7.5e3, 16777217.0)

_EXACT_SUMS = 2**23
"""Integers up to here are what torch and the kernels agree about: beyond it torch adds zero points in float32."""


@dataclass(frozen=True)
class Parameters:
    """How a tensor is quantized.

    Attributes:
        dtype: Of the integers.
        low: Smallest integer.
        high: Largest integer.
        scale: Distance of neighbours.
        zero: What stands for 0.
    """

    dtype: torch.dtype
    low: int
    high: int
    scale: float
    zero: int

    @property
    def arguments(self) -> tuple[object, ...]:
        """The arguments of the operators, behind the tensor."""
        return (self.scale, self.zero, self.low, self.high, self.dtype)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest number that is dequantized."""
        return (self.low - self.zero) * self.scale, (self.high - self.zero) * self.scale

    @property
    def bits(self) -> int | None:
        """Grid of what is dequantized."""
        return bits_of(self.scale)


def _drawn_scale(scope: Scope) -> float:
    kind = scope.choices.integer(0, 9)
    return scope.choices.pick(_DYADIC if kind < 5 else _USUAL if kind < 9 else _EXTREME)


def _drawn(scope: Scope, dtypes: Sequence[torch.dtype] = _DTYPES) -> Parameters:
    """Return parameters: full limits and a zero point inside of them most times."""
    dtype = scope.choices.pick(dtypes)
    low, high = _FULL[dtype] if scope.choices.chance(0.6) else scope.choices.pick(_NARROWER[dtype])
    middle = (low + high + 1) // 2
    zero = scope.choices.pick((middle, min(max(0, low), high), min(max(3, low), high), low, high))
    return Parameters(dtype, low, high, _drawn_scale(scope), zero)


def _is_agreed(value: Value, parameters: Parameters) -> bool:
    """Return whether torch and the kernels give the same integers.

    torch multiplies by the reciprocal that is computed in float64, the kernels by that of the float32.
    """
    single = torch.tensor(parameters.scale, dtype=torch.float32)
    if not 2.0**-100 < float(single) < 2.0**100:
        return False
    is_same = bool(torch.tensor(1.0 / parameters.scale, dtype=torch.float32) == 1.0 / single)
    return is_same and value.is_exact and value.magnitude / parameters.scale + abs(parameters.zero) < _EXACT_SUMS


def quantized(scope: Scope, value: Value, parameters: Parameters) -> Value:
    """Quantize a float32 tensor with one scale."""
    low, high = parameters.low, parameters.high
    is_undecided = not _is_agreed(value, parameters)
    fact = Fact(parameters.dtype, value.sizes, low, high, 0, value.fact.is_dense, is_undecided)
    return scope.call(f"{_LIBRARY}.quantize_per_tensor.default", (value, *parameters.arguments), fact)


def dequantized(scope: Scope, value: Value, parameters: Parameters) -> Value:
    """Dequantize an integer tensor with one scale."""
    fact = _wide(value.fact, parameters.scale, parameters.zero)
    return scope.call(f"{_LIBRARY}.dequantize_per_tensor.default", (value, *parameters.arguments), fact)


def _wide(fact: Fact, scale: float, zero: int) -> Fact:
    """Return what is dequantized from integers."""
    ends = ((fact.low - zero) * scale, (fact.high - zero) * scale)
    bits = bits_of(scale)
    if not is_on_grid(torch.float32, max(map(abs, ends)), bits):
        bits = None
    low, high = ends if bits is not None else widened(*ends)
    is_undecided = fact.is_undecided or max(abs(fact.low), abs(fact.high)) + abs(zero) > _EXACT_SUMS
    return fact._replace(dtype=torch.float32, low=low, high=high, bits=bits, is_undecided=is_undecided)


def _quantizable(scope: Scope, ranks: tuple[int, int] = (0, 4)) -> Value:
    """Return a float32 tensor that is small enough for all scales."""
    value = scope.pick((torch.float32,), ranks, preferred(scope, True))
    return within(scope, value, -(2.0**20), 2.0**20) if value.magnitude > 2.0**20 else value


@proposes("quantize")
def quantize(scope: Scope, operator: Operator) -> None:
    """Propose calls of a scheme: that which the operator is for."""
    SCHEMES[operator.option("rule")](scope)


def _per_tensor(scope: Scope) -> None:
    parameters = _drawn(scope)
    made = quantized(scope, _quantizable(scope), parameters)
    if scope.choices.chance(0.5):
        made = _moved(scope, made)
    if scope.choices.chance(0.8):
        back = dequantized(scope, made, parameters if scope.choices.chance(0.8) else _like(scope, parameters))
        scope.must_use.append(back)


def _like(scope: Scope, parameters: Parameters) -> Parameters:
    """Return other parameters of the same integers."""
    return Parameters(parameters.dtype, parameters.low, parameters.high, _drawn_scale(scope), parameters.zero)


def _moved(scope: Scope, value: Value) -> Value:
    """Return integers in another order, or as they are."""
    rank = value.rank
    if rank == 0:
        return value
    kind = scope.choices.integer(0, 2)
    if kind == 0:
        order = scope.choices.shuffled(list(range(rank)))
        sizes = tuple(value.sizes[dim] for dim in order)
        fact = value.fact._replace(sizes=sizes, is_dense=False)
        return scope.call("aten.permute.default", (value, order), fact, root=value)
    if kind == 1:
        fact = value.fact._replace(sizes=(1, *value.sizes))
        return scope.call("aten.unsqueeze.default", (value, 0), fact, root=value)
    return scope.call("aten.flip.default", (value, [rank - 1]), value.fact._replace(is_dense=False))


def _in_and_out(scope: Scope) -> None:
    """Take integers from the caller, dequantize, compute, quantize again and return integers."""
    parameters = _drawn(scope, (torch.int8, torch.uint8))
    sizes = scope.building.draw_sizes((0, 4))
    sizes = tuple(size if scope.knows(size) else 2 for size in sizes)
    contents = Contents(seed=scope.building.seed(), low=parameters.low, high=parameters.high, bits=0)
    given = scope.new_input(parameters.dtype, sizes, contents)
    wide = dequantized(scope, given, parameters)
    if scope.choices.chance(0.6):
        wide = scope.call("aten.relu.default", (wide,), wide.fact._replace(low=0, high=max(wide.fact.high, 0)))
    small = within(scope, wide, -(2.0**20), 2.0**20) if wide.magnitude > 2.0**20 else wide
    quantized(scope, small, parameters if scope.choices.chance(0.5) else _drawn(scope, (torch.int8, torch.uint8)))


def _back(scope: Scope) -> None:
    parameters = _drawn(scope, (torch.int8, torch.uint8))
    value = scope.pick((parameters.dtype,))
    dequantized(scope, value, parameters)


# A scale for each channel, or each row


def _scales(scope: Scope, count: int, *, is_double: bool, rank: int = 1) -> tuple[Value, list[float]]:
    """Store scales, one for each channel or row; with `rank` 2 as a column."""
    drawn = [_drawn_scale(scope) for _ in range(count)]
    if scope.choices.chance(0.5):
        drawn = [scope.choices.pick(_DYADIC) for _ in range(count)]
    dtype = torch.float64 if is_double else torch.float32
    contents = Contents(kind="numbers", numbers=tuple(drawn))
    sizes = (count,) if rank == 1 else (count, 1)
    return scope.building.store(scope.choices.pick(("constant", "buffer")), dtype, sizes, contents), drawn


def _zeros(
    scope: Scope, count: int, dtype: torch.dtype, low: int, high: int, *, rank: int = 1
) -> tuple[Value, list[int]]:
    """Store zero points: all 0, or any within the limits."""
    near = min(max(0, low), high)
    is_plain = low <= 0 <= high and scope.choices.chance(0.5)
    drawn = [0 if is_plain else scope.choices.pick((near, low, high, (low + high) // 2)) for _ in range(count)]
    contents = Contents(kind="zeros") if is_plain else Contents(kind="numbers", numbers=tuple(drawn))
    sizes = (count,) if rank == 1 else (count, 1)
    return scope.building.store("constant", dtype, sizes, contents), drawn


def _many_undecided(value: Value, scales: Sequence[float], zeros: Sequence[int], low: int, high: int) -> bool:
    pairs = zip(scales, zeros, strict=True)
    return not all(_is_agreed(value, Parameters(torch.int8, low, high, scale, zero)) for scale, zero in pairs)


def _many_wide(fact: Fact, scales: Sequence[float], zeros: Sequence[int]) -> Fact:
    """Return what is dequantized with several scales."""
    facts = [_wide(fact, scale, zero) for scale, zero in zip(scales, zeros, strict=True)]
    bits = None if any(one.bits is None for one in facts) else max(one.bits or 0 for one in facts)
    low, high = min(one.low for one in facts), max(one.high for one in facts)
    if not is_on_grid(torch.float32, max(abs(low), abs(high)), bits):
        bits = None
    return facts[0]._replace(low=low, high=high, bits=bits, is_undecided=any(one.is_undecided for one in facts))


def _per_channel(scope: Scope) -> None:
    value = _quantizable(scope, (1, 4))
    axes = [dim for dim, size in enumerate(value.sizes) if isinstance(size, int) and size > 0]
    if not axes:
        value = scope.fresh(torch.float32, (3, 5))
        axes = [0, 1]
    axis = scope.choices.pick(axes)
    if value.fact.is_dense and value.rank == 4 and scope.choices.chance(0.3):
        fact = value.fact._replace(is_dense=False)
        named = (("memory_format", torch.channels_last),)
        value = scope.call("aten.clone.default", (value,), fact, named)
    count = low_of(value.sizes[axis])
    parameters = _drawn(scope, (torch.int8, torch.uint8, torch.int16))
    low, high = parameters.low, parameters.high
    scales, scale_numbers = _scales(scope, count, is_double=scope.choices.chance(0.4))
    zeros, zero_numbers = _zeros(scope, count, torch.int64, low, high)
    is_undecided = _many_undecided(value, scale_numbers, zero_numbers, low, high)
    fact = Fact(parameters.dtype, value.sizes, low, high, 0, value.fact.is_dense, is_undecided)
    # Each call counts the axis for itself.
    made = scope.call(
        f"{_LIBRARY}.quantize_per_channel.default",
        (value, scales, zeros, from_end(scope, axis, value.rank), low, high, parameters.dtype),
        fact,
    )
    args = (scales, zeros, from_end(scope, axis, value.rank), low, high, parameters.dtype)
    back = _many_wide(made.fact, scale_numbers, zero_numbers)
    # torch multiplies in the dtype of the scales.
    if scales.dtype == torch.float64 and back.bits is None:
        back = back._replace(is_undecided=True)
    scope.must_use.append(scope.call(f"{_LIBRARY}.dequantize_per_channel.default", (made, *args), back))


def _rows(scope: Scope) -> tuple[Value, int]:
    """Return a float32 tensor of rows, and how many there are."""
    value = _quantizable(scope, (2, 3))
    if not is_static(value.sizes) or least_count(value.sizes) == 0 or greatest_count(value.sizes) > 500:
        value = scope.fresh(torch.float32, scope.choices.pick(((3, 5), (2, 3, 4), (1, 7))))
    return dense(scope, value), greatest_count(value.sizes[:-1])


def _per_token(scope: Scope) -> None:
    """Quantize with a scale for each row: stored ones, or those that the rows ask for."""
    if scope.choices.chance(0.5):
        _per_dynamic_token(scope)
        return
    value, _ = _rows(scope)
    if value.rank > 2:
        value = scope.fresh(torch.float32, (3, 5))
    count = low_of(value.sizes[0])
    parameters = _drawn(scope, (torch.int8, torch.uint8, torch.int16))
    low, high = parameters.low, parameters.high
    scales, scale_numbers = _scales(scope, count, is_double=True, rank=2)
    zeros, zero_numbers = _zeros(scope, count, torch.int64, low, high, rank=2)
    # torch divides here.
    fact = Fact(parameters.dtype, value.sizes, low, high, 0, True, is_undecided=True)
    args = (scales, zeros, low, high, parameters.dtype)
    made = scope.call(f"{_LIBRARY}.quantize_per_token.default", (value, *args), fact)
    back = _many_wide(made.fact, scale_numbers, zero_numbers)
    scope.call(f"{_LIBRARY}.dequantize_per_token.default", (made, *args, torch.float32), back)


def _chosen(scope: Scope, op: str, args: Sequence[object], sizes: tuple[Extent, ...]) -> list[Value]:
    """Call an operator that chooses scale and zero point."""
    scale = Fact(torch.float64, sizes, 0, 2.0**30, None, True, is_undecided=True)
    zero = Fact(torch.int64, sizes, -(2.0**31), 2.0**31, 0, True, is_undecided=True)
    found = scope.call_several(f"{_LIBRARY}.{op}", args, (scale, zero))
    # What other calls would make of such a value is beyond all intervals.
    for one in found:
        scope.values.remove(one)
    return found


def _per_dynamic_token(scope: Scope) -> None:
    value, _ = _rows(scope)
    op = "choose_qparams_per_token_asymmetric.default"
    scale, zero = _chosen(scope, op, (value, torch.int8), (*value.sizes[:-1], 1))
    args = (scale, zero, -128, 127, torch.int8)
    fact = Fact(torch.int8, value.sizes, -128, 127, 0, True, is_undecided=True)
    made = scope.call(f"{_LIBRARY}.quantize_per_token.default", (value, *args), fact)
    op = f"{_LIBRARY}.dequantize_per_token.default"
    scope.must_use.append(scope.call(op, (made, *args, torch.float32), _around(value, made.fact)))


def _around(value: Value, fact: Fact) -> Fact:
    """Return what is dequantized with parameters that were chosen for a value."""
    most = 2.5 * value.magnitude + 64
    return fact._replace(dtype=torch.float32, low=-most, high=most, bits=None, is_undecided=True)


def _dynamic(scope: Scope) -> None:
    value = _quantizable(scope)
    if least_count(value.sizes) == 0:
        value = scope.fresh(torch.float32, (2, 5))
    dtype = scope.choices.pick((torch.int8, torch.uint8))
    low, high = _FULL[dtype] if scope.choices.chance(0.7) else scope.choices.pick(((0, 100), (0, 15)))
    eps = scope.choices.pick((1.1920928955078125e-07, 2.0**-12, 1e-5))
    scale, zero = _chosen(scope, "choose_qparams.tensor", (value, low, high, eps, dtype), (1,))
    args = (scale, zero, low, high, dtype)
    fact = Fact(dtype, value.sizes, low, high, 0, value.fact.is_dense, is_undecided=True)
    made = scope.call(f"{_LIBRARY}.quantize_per_tensor.tensor", (value, *args), fact)
    back = scope.call(f"{_LIBRARY}.dequantize_per_tensor.tensor", (made, *args), _around(value, made.fact))
    scope.must_use.append(back)


# Stored weights


def _stored_weight(scope: Scope, rows: int, columns: int) -> Value:
    """Return a weight of rows that is stored as integers and dequantized, per tensor or with a scale for each row."""
    low, high = scope.choices.pick(((-127, 127), (-128, 127), (-8, 7), (-2, 1)))
    contents = Contents(seed=scope.building.seed(), low=low, high=high, bits=0)
    weight = scope.building.store("constant", torch.int8, (rows, columns), contents)
    if scope.choices.chance(0.4):
        scale = scope.choices.pick((*_DYADIC, *_USUAL))
        return dequantized(scope, weight, Parameters(torch.int8, low, high, scale, 0))
    scales, scale_numbers = _weight_scales(scope, rows)
    zeros, zero_numbers = _zeros(scope, rows, torch.int64, low, high)
    fact = _many_wide(weight.fact, scale_numbers, zero_numbers)
    args = (weight, scales, zeros, 0, low, high, torch.int8)
    return scope.call(f"{_LIBRARY}.dequantize_per_channel.default", args, fact)


def _weight_scales(scope: Scope, count: int) -> tuple[Value, list[float]]:
    known = _DYADIC if scope.choices.chance(0.6) else _USUAL
    drawn = [scope.choices.pick(known) for _ in range(count)]
    contents = Contents(kind="numbers", numbers=tuple(drawn))
    return scope.building.store("constant", torch.float32, (count,), contents), drawn


def _weight_only(scope: Scope) -> None:
    """Multiply by a weight that is stored as integers; the operand and the product are quantized at times."""
    value, _ = _rows(scope)
    value = within(scope, value, -4, 4)
    is_static_scheme = scope.choices.chance(0.5)
    if is_static_scheme:
        activation = _activation(scope)
        value = dequantized(scope, quantized(scope, value, activation), activation)
    columns = low_of(value.sizes[-1])
    rows = scope.choices.pick((3, 4, 8, 1))
    weight = _stored_weight(scope, rows, columns)
    fact = sum_of_products(value, weight, high_of(value.sizes[-1]))
    args: tuple[Value, ...] = (value, weight)
    if scope.choices.chance(0.5):
        bias = scope.building.store("parameter", torch.float32, (rows,), scope.building.contents(torch.float32))
        args, fact = (*args, bias), sum_of_products(value, weight, high_of(value.sizes[-1]), bias)
    made = scope.call("aten.linear.default", args, fact._replace(sizes=(*value.sizes[:-1], rows)))
    if scope.choices.chance(0.4):
        made = scope.call("aten.relu.default", (made,), made.fact._replace(low=0, high=max(made.fact.high, 0)))
    if is_static_scheme and made.magnitude <= 2.0**20:
        activation = _activation(scope)
        made = dequantized(scope, quantized(scope, made, activation), activation)
    scope.must_use.append(made)


def _activation(scope: Scope) -> Parameters:
    """Return usual parameters of activations."""
    dtype = scope.choices.pick((torch.int8, torch.uint8))
    low, high = _FULL[dtype]
    scale = scope.choices.pick((*_DYADIC, *_USUAL))
    return Parameters(dtype, low, high, scale, scope.choices.integer(low, high))


_TABLES = ((-128, 127), (-8, 7), (-2, 1))
"""Limits of tables of embeddings: eight, four and two bits."""
_BEYOND = ((-6, 0), (0, 6), (-6, 6))
"""How far numbers of a table go beyond its limits."""


def _embedding(scope: Scope) -> None:
    """Look up rows of a table that is stored as integers: eight, four or two bits.

    Some tables are nearly ones that a kernel reads: with scales of columns, or with numbers beyond the limits.
    """
    low, high = scope.choices.pick(_TABLES)
    rows, columns = scope.choices.pick(((5, 8), (3, 4), (7, 12), (4, 5), (4, 4), (8, 8)))
    axis = 1 if scope.choices.chance(0.4 if rows == columns else 0.05) else 0
    beyond = scope.choices.pick(_BEYOND) if low > -128 and scope.choices.chance(0.2) else (0, 0)
    contents = Contents(seed=scope.building.seed(), low=low + beyond[0], high=high + beyond[1], bits=0)
    table = scope.building.store("constant", torch.int8, (rows, columns), contents)
    count = columns if axis else rows
    scales, scale_numbers = _weight_scales(scope, count)
    zeros, zero_numbers = _zeros(scope, count, torch.int64, low, high)
    fact = _many_wide(table.fact, scale_numbers, zero_numbers)
    args = (table, scales, zeros, from_end(scope, axis, 2), low, high, torch.int8)
    wide = scope.call(f"{_LIBRARY}.dequantize_per_channel.default", args, fact)
    sizes = scope.building.draw_sizes((0, 2), is_static=True)
    dtype = scope.choices.pick((torch.int64, torch.int32))
    picked = Contents(seed=scope.building.seed(), low=0, high=rows - 1, bits=0)
    at = scope.new_input(dtype, sizes, picked)
    scope.call("aten.embedding.default", (wide, at), wide.fact._replace(sizes=(*sizes, columns), is_dense=True))


def _sum(scope: Scope) -> None:
    """Add two quantized tensors: what a fusion makes one call of."""
    dtype = scope.choices.pick((torch.uint8, torch.int8))
    low, high = _FULL[dtype]
    sizes = scope.building.draw_sizes((0, 3), is_static=True)
    terms = []
    for _ in range(2):
        contents = Contents(seed=scope.building.seed(), low=low, high=high, bits=0)
        scale = scope.choices.pick((*_DYADIC, *_USUAL))
        parameters = Parameters(dtype, low, high, scale, scope.choices.integer(low, high))
        terms.append(dequantized(scope, scope.new_input(dtype, sizes, contents), parameters))
    least, most = (sum(ends) for ends in zip(*((one.fact.low, one.fact.high) for one in terms), strict=True))
    bits = max(one.fact.bits or 0 for one in terms)
    fact = Fact(torch.float32, sizes, *widened(least, most), bits)
    made = scope.call("aten.add.Tensor", tuple(terms), fact)
    quantized(scope, made, Parameters(dtype, low, high, _drawn_scale(scope), scope.choices.integer(low, high)))


def _half(scope: Scope) -> None:
    """Quantize float16 values, and dequantize into float16."""
    parameters = _drawn(scope, (torch.int8, torch.uint8))
    value = scope.fresh(torch.float16, scope.building.draw_sizes((0, 3), is_static=True))
    fact = Fact(parameters.dtype, value.sizes, parameters.low, parameters.high, 0, value.fact.is_dense, True)
    op = f"{_LIBRARY}.quantize_per_tensor.default"
    dequantized(scope, scope.call(op, (value, *parameters.arguments), fact), parameters)


# Calls of kernels that fusions make, as they stand


def _kernel(scope: Scope) -> None:
    scope.choices.pick((_packed_table, _mixed, _kernel_sum))(scope)


def _grouped_scales(scope: Scope, rows: int, columns: int, dtype: torch.dtype) -> Value:
    """Store scales: one for each row, or one for each group of columns of each row."""
    groups = scope.choices.pick(tuple(one for one in (1, 2, 4) if columns % one == 0))
    sizes = (rows,) if groups == 1 and scope.choices.chance(0.7) else (rows, groups)
    drawn = [scope.choices.pick((*_DYADIC, *_USUAL)) for _ in range(rows * groups)]
    return scope.building.store("constant", dtype, sizes, Contents(kind="numbers", numbers=tuple(drawn)))


def _packed_table(scope: Scope) -> None:
    """Look up rows of a table whose bytes hold one, two or four numbers."""
    bits = scope.choices.pick((8, 4, 2))
    rows, columns = scope.choices.pick(((5, 8), (3, 16), (7, 12)))
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    dtype = torch.int8 if bits == 8 else torch.uint8
    ends = (low, high) if bits == 8 else (0, 255)
    contents = Contents(seed=scope.building.seed(), low=ends[0], high=ends[1], bits=0)
    table = scope.building.store("constant", dtype, (rows, columns * bits // 8), contents)
    scales = _grouped_scales(scope, rows, columns, scope.choices.pick((torch.float32, torch.float32, torch.float16)))
    zeros: Value | None = None
    if scope.choices.chance(0.4):
        count = rows if len(scales.sizes) == 1 else rows * low_of(scales.sizes[1])
        numbers = tuple(scope.choices.pick((0, 1, -1, 2)) for _ in range(count))
        contents = Contents(kind="numbers", numbers=numbers)
        zeros = scope.building.store("constant", scales.dtype, scales.sizes, contents)
    sizes = scope.building.draw_sizes((0, 2), is_static=True)
    picked = Contents(seed=scope.building.seed(), low=0, high=rows - 1, bits=0)
    at = scope.new_input(torch.int64, sizes, picked)
    name = "embedding_byte" if bits == 8 else f"embedding_{bits}bit"
    fact = Fact(scales.dtype, (*sizes, columns), -300, 300, None)
    scope.call(f"{_LIBRARY}.{name}.default", (table, scales, zeros, low, high, at), fact)


def _mixed(scope: Scope) -> None:
    """Multiply floats by a weight of integers: rows of columns, or columns of rows."""
    value = scope.fresh(torch.float32, scope.choices.pick(((2, 8), (5, 4), (1, 12), (3, 7))))
    columns = low_of(value.sizes[1])
    rows = scope.choices.pick((3, 4, 1))
    contents = Contents(seed=scope.building.seed(), low=-128, high=127, bits=0)
    is_linear = scope.choices.chance(0.6)
    shape = (rows, columns) if is_linear else (columns, rows)
    weight = scope.building.store("constant", torch.int8, shape, contents)
    if is_linear:
        scales = _grouped_scales(scope, rows, columns, torch.float32)
    else:
        scales, _ = _weight_scales(scope, columns)
    most = value.magnitude * 128 * columns
    fact = Fact(torch.float32, (value.sizes[0], rows), *widened(-most, most), None)
    name = "mixed_linear" if is_linear else "mixed_mm"
    made = scope.call(f"{_LIBRARY}.{name}.default", (value, weight, scales, None), fact)
    scope.must_use.append(made)


def _kernel_sum(scope: Scope) -> None:
    """Add two tensors of unsigned bytes."""
    sizes = scope.building.draw_sizes((0, 3), is_static=True)
    # Sums of multiples of powers of two are exact, and so are their quotients: all agree where these are rounded.
    is_exact = scope.choices.chance(0.6)
    terms: list[object] = []
    for _ in range(2):
        contents = Contents(seed=scope.building.seed(), low=0, high=255, bits=0)
        scale = scope.choices.pick(_DYADIC if is_exact else (*_DYADIC, *_USUAL))
        terms += [scope.new_input(torch.uint8, sizes, contents), scale, scope.choices.integer(0, 255), 0, 255]
    scale = scope.choices.pick(_DYADIC) if is_exact else _drawn_scale(scope)
    result = (scale, scope.choices.integer(0, 255), 0, 255)
    fact = Fact(torch.uint8, sizes, 0, 255, 0, is_undecided=not is_exact)
    scope.call(f"{_LIBRARY}.add.default", (*terms, *result), fact)


SCHEMES: Mapping[str, Callable[[Scope], None]] = {
    "tensor": _per_tensor,
    "back": _back,
    "channel": _per_channel,
    "token": _per_token,
    "dynamic": _dynamic,
    "weight": _weight_only,
    "embedding": _embedding,
    "sum": _sum,
    "boundary": _in_and_out,
    "half": _half,
    "kernel": _kernel,
}
"""Ways to quantize, by name: each adds calls to a method."""


def quantize_somehow(scope: Scope) -> None:
    """Quantize a value with one scale: by operators for it where all compilers under test take them."""
    if scope.building.plan.policy.unsupported:
        _per_tensor(scope)
    else:
        quantize_in_steps(scope)


def quantize_in_steps(scope: Scope) -> None:
    """Quantize and dequantize a float32 tensor with operators that compute it: scale, round, clamp, cast and back."""
    value = scope.pick((torch.float32,), accept=preferred(scope, True))
    dtype = scope.choices.pick((torch.int8, torch.uint8))
    low, high = _FULL[dtype]
    value = within(scope, value, -256, 256)
    scale = scope.choices.pick((8.0, 4.0, 16.0))
    fact = value.fact
    bits = None if fact.bits is None else max(fact.bits - int(scale).bit_length() + 1, 0)
    least, most = fact.low * scale, fact.high * scale
    made = scope.call("aten.mul.Scalar", (value, scale), fact._replace(low=least, high=most, bits=bits))
    is_undecided = made.fact.bits is None
    fact = made.fact._replace(low=math.floor(least), high=math.ceil(most), bits=0, is_undecided=is_undecided)
    made = scope.call("aten.round.default", (made,), fact)
    if dtype == torch.uint8:
        fact = made.fact._replace(low=made.fact.low + 128, high=made.fact.high + 128)
        made = scope.call("aten.add.Scalar", (made, 128), fact)
    made = within(scope, made, low, high)
    made = scope.call("aten._to_copy.default", (made,), cast_fact(made.fact, dtype), (("dtype", dtype),))
    scope.must_use.append(made)
    if scope.choices.chance(0.7):
        back = cast_fact(made.fact, torch.float32)
        made = scope.call("aten._to_copy.default", (made,), back, (("dtype", torch.float32),))
        fact = made.fact._replace(low=made.fact.low / scale, high=made.fact.high / scale, bits=4)
        scope.must_use.append(scope.call("aten.mul.Scalar", (made, 1 / scale), fact))

"""Calls that make tensors out of numbers, change dtypes or layouts, or quantize."""

from __future__ import annotations

import math

import torch

from exirkit.fuzz.generation.method.extents import Extent, Extents, low_of
from exirkit.fuzz.generation.method.guards import cast_fact, number_for, within
from exirkit.fuzz.generation.method.scope import Scope, preferred
from exirkit.fuzz.generation.method.values import DTYPES, Fact, Value, fits, range_of
from exirkit.fuzz.programs import Contents

from .catalogue import Operator
from .registry import proposes

_FILLED = {"full": None, "zeros": 0, "ones": 1, "new_zeros": 0, "new_full": None}


@proposes("create")
def create(scope: Scope, operator: Operator) -> None:
    """Propose a tensor that depends on sizes and numbers only."""
    rule = operator.option("rule")
    dtype = scope.dtype_of(operator.dtypes)
    if rule.startswith("arange"):
        _arange(scope, operator, dtype)
        return
    if rule == "scalar":
        single = number_for(dtype, scope.choices.pick((2, 1, 0)))
        scope.call(operator.name, (single,), Fact(dtype, (), single, single, 0), (("dtype", dtype),))
        return
    sizes = _sizes(scope)
    number: float | None = _FILLED[rule]
    is_given = number is None
    if number is None:
        number = scope.choices.pick((1, 2, 0, 3))
    args: tuple[object, ...] = (list(sizes), number_for(dtype, number)) if is_given else (list(sizes),)
    if rule.startswith("new"):
        args = (scope.pick(DTYPES), *args)
    scope.call(operator.name, args, Fact(dtype, sizes, number, number, 0), (("dtype", dtype),))


def _sizes(scope: Scope) -> Extents:
    """Return sizes of something that is there, so that both can be combined, or others."""
    if scope.values and scope.choices.chance(0.7):
        sizes = scope.choices.pick(scope.values).sizes
        return sizes[scope.choices.integer(0, len(sizes)) :] if scope.choices.chance(0.4) else sizes
    return scope.building.draw_sizes((0, 3), is_static=True)


def _arange(scope: Scope, operator: Operator, dtype: torch.dtype) -> None:
    ends: list[Extent] = [size for value in scope.values[-6:] for size in value.sizes[-1:] if low_of(size) > 0]
    end = scope.choices.pick(ends) if ends and scope.choices.chance(0.7) else scope.choices.pick((5, 3, 7))
    high = end if isinstance(end, int) else end.high
    if operator.option("rule") == "arange" or not isinstance(end, int):
        name = "aten.arange.default"
        scope.call(name, (end,), Fact(dtype, (end,), 0, high - 1, 0), (("dtype", dtype),))
        return
    start, step = scope.choices.pick(((1, 1), (0, 2), (2, 3), (-1, 1)))
    if start >= end:
        start = 0
    count = -(-(end - start) // step)
    fact = Fact(dtype, (count,), start, start + step * (count - 1), 0)
    scope.call(operator.name, (start, end, step), fact, (("dtype", dtype),))


@proposes("cast")
def cast(scope: Scope, operator: Operator) -> None:
    """Propose a change of dtype."""
    value = scope.pick(operator.dtypes, accept=preferred(scope, True))
    dtypes = [dtype for dtype in scope.building.plan.dtypes if dtype != value.dtype]
    dtype = scope.choices.pick(dtypes) if dtypes else scope.choices.pick((torch.float32, torch.int32, torch.float64))
    low, high = range_of(dtype)
    if dtype != torch.bool and not fits(dtype, value.fact.low, value.fact.high):
        value = within(scope, value, max(low, -1024), min(high, 1024))
    fact = cast_fact(value.fact, dtype)
    if operator.option("rule") == "positional":
        scope.call(operator.name, (value, dtype), fact)
        return
    scope.call(operator.name, (value,), fact, (("dtype", dtype),))


@proposes("layout")
def layout(scope: Scope, operator: Operator) -> None:
    """Propose a copy in another layout."""
    value = scope.pick(operator.dtypes)
    is_last = value.rank == 4 and scope.choices.chance(0.7)
    layouts = torch.channels_last if is_last else torch.contiguous_format
    if not is_last and scope.choices.chance(0.3):
        layouts = torch.preserve_format
    is_dense = layouts == torch.contiguous_format or (value.fact.is_dense and not is_last)
    scope.call(operator.name, (value,), value.fact._replace(is_dense=is_dense), (("memory_format", layouts),))


_INTEGER_RANGES = {torch.int8: (-128, 127), torch.uint8: (0, 255)}
_SCALES = (0.125, 0.25, 0.0625)


@proposes("quantize")
def quantize(scope: Scope, operator: Operator) -> None:
    """Propose to quantize or dequantize."""
    if operator.option("rule") == "back":
        dequantize(scope, None)
        return
    is_channel = operator.option("rule") == "channel"
    value = scope.pick(operator.dtypes, (1, 4) if is_channel else (0, 4), preferred(scope, True))
    if operator.option("rule") == "channel":
        _per_channel(scope, operator, value)
        return
    quantized(scope, value)


def quantized(scope: Scope, value: Value) -> Value:
    """Quantize a float32 tensor: scales are powers of two, so that what lies on the grid is decided."""
    dtype = scope.choices.pick((torch.int8, torch.uint8))
    low, high = _INTEGER_RANGES[dtype]
    scale = scope.choices.pick(_SCALES)
    zero = scope.choices.pick((0, 3)) if dtype == torch.int8 else scope.choices.pick((128, 0))
    args = (value, scale, zero, low, high, dtype)
    fact = Fact(dtype, value.sizes, low, high, 0, value.fact.is_dense)
    return scope.call("quantized_decomposed.quantize_per_tensor.default", args, fact)


def quantize_in_steps(scope: Scope, value: Value) -> None:
    """Quantize and dequantize a float32 tensor with operators that compute it: scale, round, clamp, cast and back."""
    dtype = scope.choices.pick((torch.int8, torch.uint8))
    low, high = _INTEGER_RANGES[dtype]
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


def dequantize(scope: Scope, value: Value | None) -> Value:
    """Dequantize an integer tensor."""
    made = value or scope.pick((torch.int8, torch.uint8))
    low, high = _INTEGER_RANGES[made.dtype]
    scale = scope.choices.pick(_SCALES)
    zero = 0 if made.dtype == torch.int8 else 128
    args = (made, scale, zero, low, high, made.dtype)
    least, most = (made.fact.low - zero) * scale, (made.fact.high - zero) * scale
    fact = made.fact._replace(dtype=torch.float32, low=least, high=most, bits=4)
    return scope.call("quantized_decomposed.dequantize_per_tensor.default", args, fact)


def _per_channel(scope: Scope, operator: Operator, value: Value) -> None:
    axes = [dim for dim, size in enumerate(value.sizes) if isinstance(size, int) and size > 0]
    if not axes:
        value = scope.fresh(value.dtype, (3, 5))
        axes = [0, 1]
    axis = scope.choices.pick(axes)
    count = low_of(value.sizes[axis])
    scales = tuple(_SCALES[at % 3] for at in range(count))
    scale = scope.building.store("constant", torch.float32, (count,), Contents(kind="numbers", numbers=scales))
    zeros = scope.building.store("constant", torch.int64, (count,), Contents(kind="zeros"))
    scope.values += [scale, zeros]
    fact = Fact(torch.int8, value.sizes, -128, 127, 0, value.fact.is_dense)
    made = scope.call(operator.name, (value, scale, zeros, axis, -128, 127, torch.int8), fact)
    args = (made, scale, zeros, axis, -128, 127, torch.int8)
    back = fact._replace(dtype=torch.float32, low=-32, high=32, bits=4)
    scope.call("quantized_decomposed.dequantize_per_channel.default", args, back)

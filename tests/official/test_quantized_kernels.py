"""The kernels of quantized programs: ours against those of the official runtime, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.runtime_ref.assembly import Assembly

from exirkit.fuzz import OfficialRuntime
from exirkit.ir import QUANTIZED_SCHEMAS, ModelError, parse_schema
from exirkit.patterns import read_target
from exirkit.program import kernels_of
from exirkit.runtime_ref import Runtime
from exirkit.verifiers import TensorFacts

pytestmark = pytest.mark.executorch

MANY = 1_000_000
REALS = (torch.float32, torch.float16, torch.float64)
NUMBERS = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32)
STRANGE = [
    math.nan,
    math.inf,
    -math.inf,
    1e30,
    -1e30,
    2.0**63,
    -(2.0**63),
    2.0**62,
    16777217.0,
    16777219.0,
    -0.0,
    1e-40,
]


KERNELS = kernels_of(read_target("official_host"))
SCHEMAS = {name.partition("(")[0]: name for name in QUANTIZED_SCHEMAS.values()}
ONLY_AT_RUN_TIME = ("NaN", "zero point outside", "zero point of a token outside")


def _fact(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value
    return TensorFacts(str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.dim_order()))


class Call:
    """A program that calls one kernel, and what it is called with.

    Args:
        name: Of the kernel, `quantize_per_tensor.out`.
        given: Arguments in the order of the schema, without the tensors for results.
        outs: Tensors of the sizes and dtypes of the results.
    """

    def __init__(self, name: str, given: list[Any], *outs: torch.Tensor) -> None:
        asm = Assembly()
        schema = parse_schema(SCHEMAS[f"quantized_decomposed::{name}"])
        facts = (_fact(one) for one in (*given, *outs))
        self.name, self.facts = name, dict(zip((one.name for one in schema.arguments), facts, strict=True))
        self.inputs = [one for one in given if isinstance(one, torch.Tensor)]
        places = [asm.like(one) if isinstance(one, torch.Tensor) else asm.argument(one) for one in given]
        results = [asm.like(one) for one in outs]
        # A kernel with several results names them once more, as a list.
        last = results if len(results) == 1 else [asm.tensor_list(results)]
        asm.call(f"quantized_decomposed::{name}", *places, *results, *last)
        tensors = [place for place, one in zip(places, given, strict=True) if isinstance(one, torch.Tensor)]
        self.file = asm.to_bytes(tensors, results)

    def here(self) -> list[torch.Tensor]:
        """Run it on our runtime."""
        return Runtime.get().load_program(self.file).load_method("forward").execute(self.inputs)

    def breaks(self) -> list[str]:
        """Return the conditions of the kernel that the call breaks."""
        assert KERNELS is not None
        conditions = KERNELS.conditions_of(f"quantized_decomposed::{self.name}")
        return [one.text for one in conditions if one.holds(self.facts) is False]

    def agree(self, official: OfficialRuntime) -> None:
        """Assert that both runtimes give the same bits, and that nothing is said against the call."""
        assert not self.breaks()
        theirs = official.run(self.file, [self.inputs]).unwrap()[0]
        for mine, other in zip(self.here(), theirs, strict=True):
            assert isinstance(other, torch.Tensor)
            assert mine.dtype == other.dtype
            assert mine.shape == other.shape
            same = (mine == other) | ((mine != mine) & (other != other))
            assert bool(same.all()), f"{(~same).sum()} of {same.numel()} differ: {mine[~same][:5]}, {other[~same][:5]}"

    def dies(self, official: OfficialRuntime, case: str) -> None:
        """Assert that the official runtime does not run it, and that ours says so, before it runs if that can be."""
        assert self.breaks() or case in ONLY_AT_RUN_TIME
        assert official.run(self.file, [self.inputs]).failure is not None
        with pytest.raises(ModelError, match=r"EK657|EK650.*(is|are) torch"):
            self.here()


def reals(count: int, spread: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random values, ties, and those that no integer stands for."""
    values = torch.randn(count) * spread
    values[: count // 4] = torch.round(values[: count // 4]) + 0.5
    values[-len(STRANGE) :] = torch.tensor(STRANGE)
    return values.to(dtype)


def numbers(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    """Return random numbers, the ends included."""
    limits = torch.iinfo(dtype)
    made = torch.randint(limits.min, limits.max + 1, sizes, dtype=torch.int64)
    made.view(-1)[:2] = torch.tensor([limits.min, limits.max])
    return made.to(dtype)


def ends(dtype: torch.dtype) -> list[int]:
    limits = torch.iinfo(dtype)
    return [limits.min, limits.max]


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        yield


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize(("scale", "zero_point"), [(1.0, 0), (0.0123, 5), (1 / 3, 100), (3.7e4, 1)])
def test_quantize_per_tensor(
    official_runtime: OfficialRuntime, dtype: torch.dtype, scale: float, zero_point: int
) -> None:
    values = reals(MANY // 20, 100 * scale)
    Call("quantize_per_tensor.out", [values, scale, zero_point, *ends(dtype), dtype], values.to(dtype)).agree(
        official_runtime
    )


@pytest.mark.parametrize("real", REALS, ids=str)
def test_quantize_a_million(official_runtime: OfficialRuntime, real: torch.dtype) -> None:
    values = reals(MANY, 3.0, real)
    out = torch.empty(MANY, dtype=torch.int8)
    Call("quantize_per_tensor.out", [values, 0.0371, -3, -128, 127, torch.int8], out).agree(official_runtime)
    scale, zero = torch.tensor([0.0371], dtype=torch.float64), torch.tensor([-3])
    Call("quantize_per_tensor.Tensor_out", [values, scale, zero, -127, 127, torch.int8], out).agree(official_runtime)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_quantize_per_channel(official_runtime: OfficialRuntime, axis: int) -> None:
    values = reals(MANY, 3.0).reshape(50, 100, 200)
    channels = values.shape[axis]
    scales, zeros = torch.rand(channels, dtype=torch.float64) / 9 + 0.01, torch.randint(-9, 9, (channels,))
    out = torch.empty(values.shape, dtype=torch.int8)
    given = [values, scales, zeros, axis, -128, 127, torch.int8]
    Call("quantize_per_channel.out", given, out).agree(official_runtime)


def test_quantize_per_token(official_runtime: OfficialRuntime) -> None:
    values = reals(MANY, 3.0).reshape(10, 100, 1000)
    scales, zeros = torch.rand(10, 100, 1, dtype=torch.float64) / 9 + 0.01, torch.randint(-9, 9, (10, 100, 1))
    out = torch.empty(values.shape, dtype=torch.int8)
    Call("quantize_per_token.out", [values, scales, zeros, -128, 127, torch.int8], out).agree(official_runtime)
    back = torch.empty(values.shape)
    for more in (torch.float32, torch.float64):
        given = [numbers(torch.int8, *values.shape), scales.to(more), zeros, -128, 127, torch.int8, torch.float32]
        Call("dequantize_per_token.out", given, back).agree(official_runtime)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("real", REALS, ids=str)
def test_dequantize_per_tensor(official_runtime: OfficialRuntime, dtype: torch.dtype, real: torch.dtype) -> None:
    given = numbers(dtype, MANY // 5)
    out = torch.empty(given.shape, dtype=real)
    for scale, zero_point in ((0.0123, 3), (1e-30, 0), (7.1, 100)):
        arguments = [given, scale, zero_point, *ends(dtype), dtype, real]
        Call("dequantize_per_tensor.out", arguments, out).agree(official_runtime)
    scales, zeros = torch.tensor([0.0123], dtype=torch.float64), torch.tensor([3])
    arguments = [given, scales, zeros, *ends(dtype), dtype, real]
    Call("dequantize_per_tensor.Tensor_out", arguments, out).agree(official_runtime)


def test_zero_points_wrap_around(official_runtime: OfficialRuntime) -> None:
    given = numbers(torch.int32, 1000)
    arguments = [given, 0.1, -(2**31), *ends(torch.int32), torch.int32, None]
    Call("dequantize_per_tensor.out", arguments, torch.empty(1000)).agree(official_runtime)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("scale", [torch.float32, torch.float64], ids=str)
def test_dequantize_per_channel(official_runtime: OfficialRuntime, axis: int, scale: torch.dtype) -> None:
    given = numbers(torch.int8, 100, 50, 200)
    channels = given.shape[axis]
    scales = (torch.rand(channels, dtype=torch.float64) / 9 + 0.01).to(scale)
    for zeros in (torch.randint(-9, 9, (channels,)), None):
        arguments = [given, scales, zeros, axis, -128, 127, torch.int8, None]
        Call("dequantize_per_channel.out", arguments, torch.empty(given.shape)).agree(official_runtime)


def test_choice_of_parameters(official_runtime: OfficialRuntime) -> None:
    rows = torch.randn(MANY // 8, 4) * torch.logspace(-9, 9, MANY // 8).unsqueeze(1)
    rows[::7] = rows[::7].abs()
    rows[::5] = -rows[::5].abs()
    rows[3] = 0.0
    outs = torch.empty(len(rows), 1, dtype=torch.float64), torch.empty(len(rows), 1, dtype=torch.int64)
    Call("choose_qparams_per_token_asymmetric.out", [rows, torch.int8], *outs).agree(official_runtime)
    Call("choose_qparams_per_token_asymmetric.out", [rows[:1000], torch.uint8], *(one[:1000] for one in outs)).agree(
        official_runtime
    )
    ranges = [
        [0.0, 0.0],
        [1e-7, 0.0],
        [-1e-7, 1e-9],
        [1.0, -3.0],
        [5.0, 6.0],
        [math.inf, 1.0],
        [3e38, -3e38],
        [-2.0, -1.0],
    ]
    whole = [torch.tensor(one) for one in ranges]
    # A million values, in tensors that lie on either side of zero or around it, of all magnitudes.
    for place, magnitude in enumerate(torch.logspace(-42, 37, 50).tolist()):
        whole.append((torch.randn(MANY // 50) + (place % 5 - 2) * 3) * magnitude)
    for place, values in enumerate(whole):
        for dtype in (torch.int8, torch.uint8) if place < len(ranges) else (torch.int8,):
            one = torch.empty(1, dtype=torch.float64), torch.empty(1, dtype=torch.int64)
            given = [values, *ends(dtype), 1e-5, dtype]
            Call("choose_qparams.Tensor_out", given, *one).agree(official_runtime)


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_embeddings(official_runtime: OfficialRuntime, bits: int, groups: int, has_zeros: bool) -> None:
    columns, rows = 64, 300
    table = numbers(torch.int8, rows, columns) if bits == 8 else numbers(torch.uint8, rows, columns * bits // 8)
    scales = torch.rand(rows, groups) + 0.01 if groups > 1 else torch.rand(rows) + 0.01
    scales[:4].view(len(scales[:4]), -1)[:, 0] = torch.tensor([math.nan, math.inf, 1e38, 1e-42])
    zeros = torch.randint(-3, 3, scales.shape).to(scales.dtype) if has_zeros else None
    limits = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    name = "embedding_byte" if bits == 8 else f"embedding_{bits}bit"
    for indices in (torch.randint(0, rows, (200, 79)), torch.randint(0, rows, (5,))):
        out = torch.empty(*indices.shape, columns)
        Call(f"{name}.out", [table, scales, zeros, *limits, indices], out).agree(official_runtime)
        halves = [scales, None] if zeros is None else [scales.half(), zeros.half()]
        given = [table, *halves, *limits, indices, torch.float16]
        Call(f"{name}.dtype_out", given, out.half()).agree(official_runtime)


def test_sums(official_runtime: OfficialRuntime) -> None:
    a, b = numbers(torch.uint8, MANY), numbers(torch.uint8, MANY)
    given = [a, 0.0123, 3, 0, 255, b, 0.5, 100, 0, 255, 0.71, 9, 0, 255]
    Call("add.out", given, torch.empty(MANY, dtype=torch.uint8)).agree(official_runtime)


@pytest.mark.parametrize("real", REALS[:2], ids=str)
@pytest.mark.parametrize("groups", [0, 4])
def test_products(official_runtime: OfficialRuntime, real: torch.dtype, groups: int) -> None:
    # A million results, some of them of infinities and NaN.
    values, weight = torch.randn(1000, 24, dtype=real), numbers(torch.int8, 1000, 24)
    values[:12, 5] = torch.tensor(STRANGE).to(real)
    scales = torch.rand(1000, groups).to(real) if groups else torch.rand(1000).to(real)
    scales.view(-1)[:3] = torch.tensor([math.inf, math.nan, 0.0])
    given = [values, weight, scales, None, None]
    Call("mixed_linear.out", given, torch.empty(1000, 1000, dtype=real)).agree(official_runtime)
    if not groups:
        turned = [values, weight.T.contiguous(), torch.rand(24).to(real), None]
        Call("mixed_mm.out", turned, torch.empty(1000, 1000, dtype=real)).agree(official_runtime)


SCALES, ZEROS, TWO = torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), torch.ones(2, 3)
BYTES = torch.ones(2, 3, dtype=torch.int8)
DEADLY = {
    "scales of float32": Call(
        "quantize_per_channel.out", [TWO, SCALES, ZEROS, 0, -128, 127, torch.int8], BYTES
    ),
    "zero points of int32": Call(
        "quantize_per_channel.out", [TWO, SCALES.double(), ZEROS.int(), 0, -128, 127, torch.int8], BYTES
    ),
    "a scale of float32": Call(
        "quantize_per_tensor.Tensor_out", [TWO, SCALES[:1], ZEROS[:1], -128, 127, torch.int8], BYTES
    ),
    "bfloat16": Call("quantize_per_tensor.out", [TWO.bfloat16(), 0.1, 0, -128, 127, torch.int8], BYTES),
    "limits": Call("quantize_per_tensor.out", [TWO, 0.1, 0, -129, 127, torch.int8], BYTES),
    "zero point outside": Call(
        "dequantize_per_channel.out", [BYTES, SCALES, ZEROS - 128, 0, -127, 127, torch.int8, None], TWO
    ),
    "zero point of a token outside": Call(
        "dequantize_per_token.out",
        [BYTES, SCALES.reshape(2, 1), ZEROS.reshape(2, 1) - 128, -127, 127, torch.int8, torch.float32],
        TWO,
    ),
    "zero points of channels of int8": Call(
        "dequantize_per_channel.out", [BYTES, SCALES, ZEROS.char(), 0, -128, 127, torch.int8, None], TWO
    ),
    "zero points of tokens of int16": Call(
        "dequantize_per_token.out",
        [BYTES, SCALES.reshape(2, 1), ZEROS.short().reshape(2, 1), -128, 127, torch.int8, torch.float32],
        TWO,
    ),
    "NaN": Call(
        "choose_qparams.Tensor_out",
        [torch.tensor([math.nan, 1.0]), -128, 127, 1e-5, torch.int8],
        torch.empty(1, dtype=torch.float64),
        torch.empty(1, dtype=torch.int64),
    ),
    "indices of int32": Call(
        "embedding_byte.out", [BYTES, SCALES, None, -128, 127, torch.tensor([1, 0], dtype=torch.int32)], TWO
    ),
    "zero points of int8": Call("embedding_byte.out", [BYTES, SCALES, ZEROS.char(), -128, 127, ZEROS], TWO),
    "limits of a sum": Call(
        "add.out", [BYTES, 0.1, 0, -128, 127, BYTES, 0.1, 0, -128, 127, 0.1, 0, -128, 127], BYTES
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DEADLY)
def test_what_ends_the_process(official_runtime: OfficialRuntime, case: str) -> None:
    DEADLY[case].dies(official_runtime, case)


def test_all_kernels_are_known(official_runtime: OfficialRuntime) -> None:
    theirs = {name for name in official_runtime.kernels() if name.startswith("quantized_decomposed::")}
    assert set(SCHEMAS) == theirs

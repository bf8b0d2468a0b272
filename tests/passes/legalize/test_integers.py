"""Remainders and powers of integers, which kernels give the wrong sign or round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.models.case import EXACT, Function
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs
from torch.export import Dim

from exirkit import ExecutorchBackendConfig, to_edge

X = torch.tensor([-7, -3, -1, 0, 1, 2, 7, 2**53 + 1, -(2**62) + 3])
Y = torch.tensor([3, -2, 5, -4, 3, 7, -7, 3, 7])


@pytest.mark.executorch
def test_remainders_have_the_sign_of_the_divisor(official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        small = x.clamp(-100, 100)
        return (
            x % y,
            x % 3,
            x % -3,
            small.int() % -5,
            small.int() % y,
            (small % 7).to(torch.uint8) % 4,
            x.view(9, 1) % y,
            (x > 0) % 50,
            (x > 0) % -3,
            torch.fmod(x > 0, -3),
            small.int() % (y + 2**40),
        )

    assert_runs(model, [[X, Y]], official_runtime, tolerance=EXACT, levels=(0, 1, 2))


@pytest.mark.executorch
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_powers_wrap_around_as_those_of_torch_do(dtype: torch.dtype, official_runtime: OfficialRuntime) -> None:
    x = torch.tensor([0, 1, 2, 3, 7, 11, 101]).to(dtype)
    assert_runs(lambda x: tuple(x**power for power in (0, 1, 2, 3, 6, 9)), [[x]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
def test_great_powers(official_runtime: OfficialRuntime) -> None:
    x = torch.tensor([2**31 + 1, -(2**31) - 1, 3])
    assert_runs(lambda x: (x**2, (x % 100) ** 9), [[x]], official_runtime, tolerance=EXACT)


def test_powers_of_floats_stay() -> None:
    x = torch.tensor([0.5, 2.0])
    assert_runs(lambda x: (x**3, x % 0.75, x**2.5), [[x]])


@pytest.mark.executorch
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_powers_by_tensors_are_exact(dtype: torch.dtype, official_runtime: OfficialRuntime) -> None:
    limits = torch.iinfo(dtype)
    bases = torch.tensor([0, 1, 2, 3, 7, limits.max, limits.min, limits.max - 3]).to(dtype)
    exponents = torch.tensor([[0], [1], [2], [5], [19], [33], [62], [63], [64], [101], [127]]).to(dtype)

    def model(x: torch.Tensor, e: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x**e, torch.pow(3, e), torch.pow(x, e.flatten()[:8])

    assert_runs(model, [[bases, exponents]], official_runtime, tolerance=EXACT, levels=(0, 1))


@pytest.mark.executorch
def test_negative_and_great_exponents(official_runtime: OfficialRuntime) -> None:
    bases = torch.tensor([0, 1, -1, 2, -6, 2**40])
    exponents = torch.tensor([[-1], [-2], [-7], [128], [129], [2**40], [2**62 + 1]])
    assert_runs(lambda x, e: x**e, [[bases, exponents]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_great_exponents_of_odd_bases_wrap_around(dtype: torch.dtype, official_runtime: OfficialRuntime) -> None:
    limits = torch.iinfo(dtype)
    places = [1 << place for place in range(torch.iinfo(dtype).bits - 1)]
    numbers = [*places, *(one + 129 for one in places), *(one - 3 for one in places), limits.max, limits.max - 1]
    exponents = torch.tensor([one for one in numbers if one <= limits.max]).to(dtype)
    # All that leave another number when divided by 2^9 look different to what is summed up.
    bases = [*range(-256, 256), limits.max, limits.max - 4, limits.min + 1, limits.min]
    x = torch.tensor([one for one in bases if limits.min <= one <= limits.max]).to(dtype)

    def model(x: torch.Tensor, e: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[:, None] ** e, torch.pow(3, e), x.to(torch.int8) ** e[0]

    assert_runs(model, [[x, exponents]], official_runtime, tolerance=EXACT, levels=(0, 1))


@pytest.mark.executorch
def test_exponents_narrower_than_bases(official_runtime: OfficialRuntime) -> None:
    x = torch.tensor([3, -3, 6, 2**40 + 1, -1])
    exponents = [
        torch.tensor([[False], [True]]),
        torch.tensor([[0], [-1], [7], [127]], dtype=torch.int8),
        torch.tensor([[0], [128], [255]], dtype=torch.uint8),
        torch.tensor([[0], [-129], [128], [20001]], dtype=torch.int16),
    ]
    calls = [x, *exponents]
    assert_runs(lambda x, *them: tuple(x**one for one in them), [calls], official_runtime, tolerance=EXACT)


def products(model: Callable[..., object], *x: torch.Tensor) -> int:
    """Return how many products a lowered program computes."""
    program = to_edge(torch.export.export(Function(model), x, strict=False))
    lowered = program.to_executorch(ExecutorchBackendConfig(optimization_level=0))
    plan = lowered.executorch_program.execution_plan[0]
    called = [one.instr_args for one in plan.chains[0].instructions]
    names = [plan.operators[one.op_index].name for one in called if hasattr(one, "op_index")]
    return names.count("aten::mul")


def test_no_more_is_multiplied_than_the_exponent_asks_for() -> None:
    x = torch.tensor([3, -3, 6])
    bits = [products(lambda x, e: x**e, x, torch.ones(3).to(one)) for one in (torch.bool, torch.int8, torch.uint8)]
    assert bits == [0, 12, 14]
    known = torch.tensor([1, 5, -200])
    assert products(lambda x: x**known, x) == 4
    assert products(lambda x: x ** torch.full([3], 3), x) == 2
    assert products(lambda x, e: x**e, x, x) > 14


@pytest.mark.executorch
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float16])
def test_a_number_of_another_kind_is_added(dtype: torch.dtype, official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        add = torch.ops.aten.add.Scalar
        return add(x, 1.0), add(x, 0.5), add(x, 3), add(x, 2, 3), x + 0.25

    assert_runs(model, [[torch.arange(5).to(dtype)]], official_runtime, tolerance=EXACT, levels=(0, 1, 2))


@pytest.mark.executorch
def test_integers_beyond_double_precision(official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.fmod(x, y),
            torch.fmod(x, 7),
            torch.div(x, y, rounding_mode="trunc"),
            torch.div(x, -7, rounding_mode="trunc"),
            torch.floor(x),
            torch.ceil(x),
            torch.trunc(x),
            x.sum(),
            x.sum(0, keepdim=True),
            (x[:, None] * y.sign()).sum((0, 1)),
            (x[:, None] * y.sign()).sum(-1),
            x.int().fmod(5),
            x.sum(dtype=torch.float32),
            torch.cond(y[0] > 0, lambda a: a.sum(), lambda a: a[0], (x,)),
        )

    rows = {0: Dim("rows", min=0, max=9)}
    calls = [[X, Y], [X[6:], Y[6:]], [X[8:], Y[8:]]]
    assert_runs(model, calls, official_runtime, dynamic_shapes=(rows, rows), tolerance=EXACT, levels=(0, 2))
    sums = [[X], [X[:0]], [X[5:]]]
    assert_runs(
        lambda x: (x.sum(), x.sum(0, keepdim=True)), sums, official_runtime, dynamic_shapes=(rows,), tolerance=EXACT
    )
    assert_runs(lambda x: (x.sum(1), x[0, 0, 0]), [[X.view(3, 3, 1)]], official_runtime, tolerance=EXACT)

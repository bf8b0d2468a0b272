"""Results are compared bit for bit, or within what float64 says can be asked."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exirkit.fuzz.examination.comparing import beyond_budget, difference
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import parse_program, run_eagerly, run_shaken

NAN, INF = math.nan, math.inf


def kind(got: object, wanted: object, **options: bool) -> str | None:
    found = difference(got, wanted, **options)
    return found and found[0]


@pytest.mark.parametrize(
    ("got", "wanted", "expected"),
    [
        ([1.0, NAN], [1.0, NAN], None),
        ([1.0, 2.0], [1.0, NAN], "nan-position"),
        ([1.0, INF], [1.0, 3.0], "infinity"),
        ([-0.0], [0.0], "signed-zero"),
        ([1.0 + 2**-22], [1.0], "last-bits"),
        ([1.0005], [1.0], "value"),
        ([], [], None),
        ([1.0], [1.0, 2.0], "shape"),
    ],
)
def test_floats(got: list[float], wanted: list[float], expected: str | None) -> None:
    assert kind(torch.tensor(got), torch.tensor(wanted)) == expected


def test_types_and_numbers() -> None:
    assert kind(torch.zeros(2), torch.zeros(2, dtype=torch.float64)) == "dtype"
    assert kind(3, torch.zeros(2)) == "kind"
    assert kind(None, None) is None
    assert kind(None, 3) == "kind"
    assert kind(4, 3) == "value"
    assert kind(NAN, NAN) is None
    assert kind([torch.zeros(2), 1], [torch.zeros(2), 2]) == "value"
    assert kind([torch.zeros(2)], [torch.zeros(2), 2]) == "arity"
    assert kind(torch.tensor([-0.0]), torch.tensor([0.0]), is_signed_zero_free=True) is None


@given(st.lists(st.floats(width=32), max_size=6), st.integers(0, 5), st.sampled_from([torch.float32, torch.float16]))
def test_every_changed_bit_is_seen(values: list[float], place: int, dtype: torch.dtype) -> None:
    wanted = torch.tensor(values, dtype=dtype)
    assert kind(wanted.clone(), wanted) is None
    if place < len(values):
        got = wanted.clone()
        bits = got.view(torch.int32 if dtype is torch.float32 else torch.int16)
        bits[place] ^= 1
        both_nan = bool(got[place].isnan() and wanted[place].isnan())
        assert (kind(got, wanted) is None) == both_nan


def test_a_budget_is_relative_to_what_eager_torch_loses() -> None:
    exact = torch.tensor([1.0, 100.0], dtype=torch.float64)
    eager = exact.float()
    assert beyond_budget(eager + torch.tensor([1e-5, 0.0]), eager, exact) is None
    assert beyond_budget(eager + torch.tensor([1e-2, 0.0]), eager, exact) is not None
    # Eager torch is off itself, so others may be.
    poor = eager + 0.01
    assert beyond_budget(eager - 0.02, poor, exact) is None
    assert beyond_budget(eager - 0.05, poor, exact) is not None
    # Without a float64 result, eager torch is the measure.
    assert beyond_budget(eager, eager, None) is None


def test_a_budget_grows_with_what_rounding_moves() -> None:
    """Eager torch has the right bits of a cosine by luck; the sum that it is of may be rounded otherwise."""
    exact = torch.tensor([0.37], dtype=torch.float64)
    eager = exact.float()
    other = eager + 3e-6
    assert beyond_budget(other, eager, exact) is not None
    assert beyond_budget(other, eager, exact, lambda: [exact + 2e-6, exact]) is None
    assert beyond_budget([other], [eager], [exact], lambda: [[exact + 2e-6]]) is None
    assert beyond_budget(other, eager, exact, lambda: [exact + 1e-7, exact - 1e-7]) is not None
    # Where rounding decides which way a program goes, that excuses no other errors.
    assert beyond_budget(eager + 0.3, eager, exact, lambda: [exact + 1]) is not None


def test_a_sum_that_cancels_before_a_cosine() -> None:
    file = Path(__file__).parents[1] / "regressions" / "cosine_of_a_sum_that_cancels.txt"
    program = parse_program(file.read_text())
    assert check(program).is_good
    (truth,), moved = run_eagerly(program, in_float64=True), run_shaken(program)
    largest = max(float((one[0].outputs[0] - truth.outputs[0]).abs().max()) for one in moved)
    assert 1e-7 < largest < 1e-4
    assert moved[0][0].outputs[0] != moved[1][0].outputs[0]


def test_a_budget_does_not_excuse_nan_and_infinity() -> None:
    wanted = torch.tensor([1.0, NAN, INF])
    assert beyond_budget(wanted.clone(), wanted, None) is None
    assert beyond_budget(torch.tensor([1.0, 1.0, INF]), wanted, None) is not None
    assert beyond_budget(torch.tensor([1.0, NAN, -INF]), wanted, None) is not None
    assert beyond_budget(torch.tensor([NAN, NAN, INF]), wanted, None) is not None


def test_whole_numbers_have_no_budget() -> None:
    assert beyond_budget(torch.tensor([1, 2]), torch.tensor([1, 3]), None) is not None

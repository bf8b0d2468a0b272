"""The comparison sees what it must see."""

import math

import pytest
import torch
from tests.models.agreement import assert_agree, find_difference
from tests.models.case import EXACT, SHALLOW, Value

ONE = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("answer", "want", "complaint"),
    [
        (ONE, ONE.double(), "dtype"),
        (ONE, torch.ones(4), "shape"),
        (ONE + 1e-3, ONE, "4 of 4 elements"),
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0]), r"first at \(1,\)"),
        (torch.tensor([math.inf]), torch.tensor([-math.inf]), "differ"),
        (torch.tensor(3), torch.tensor(4), r"first at \(\)"),
        (torch.tensor([True]), torch.tensor([False]), "1 of 1"),
        (1, 1.0, "instead of"),
        (True, 1, "instead of"),
        (None, 0, "instead of"),
        (ONE, 1.0, "instead of"),
    ],
)
def test_differences_are_described(answer: Value, want: Value, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        assert_agree([[answer]], [[want]], SHALLOW)


@pytest.mark.parametrize("value", [ONE, torch.tensor([math.nan, math.inf]), torch.empty(0, 3), 3, 0.5, None, True])
def test_equal_values_agree(value: Value) -> None:
    for tolerance in (EXACT, SHALLOW):
        assert find_difference(value, value, tolerance) is None


def test_tolerance_is_per_case() -> None:
    assert find_difference(ONE + 1e-6, ONE, SHALLOW) is None
    assert find_difference(ONE + 1e-6, ONE, EXACT) is not None


def test_missing_outputs_and_calls_are_seen() -> None:
    with pytest.raises(AssertionError, match="2 outputs instead of 1"):
        assert_agree([[1, 2]], [[1]], EXACT)
    with pytest.raises(AssertionError, match="1 calls were answered instead of 2"):
        assert_agree([[1]], [[1], [1]], EXACT)

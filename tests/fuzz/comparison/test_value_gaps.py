"""How far values are off: odd dtypes, NaN, infinities, types, nothing at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exirkit.fuzz.comparison import Tolerances, gap_of

DEFAULT = Tolerances()


@pytest.mark.parametrize(
    ("got", "expected", "kind"),
    [
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), "equal"),
        (torch.tensor([1.0 + 2**-20]), torch.tensor([1.0]), "within"),
        (torch.tensor([1.001]), torch.tensor([1.0]), "value"),
        # A small element beside a large one is allowed what the large one is.
        (torch.tensor([1000.0, 0.01]), torch.tensor([1000.0, 0.0]), "within"),
        (torch.tensor([float("nan")]), torch.tensor([1.0]), "nan"),
        (torch.tensor([float("inf"), 1.0]), torch.tensor([float("-inf"), 1.0]), "infinity"),
        (torch.tensor([1.0]), torch.tensor([float("inf")]), "infinity"),
        (torch.tensor([1.005], dtype=torch.float16), torch.tensor([1.0], dtype=torch.float16), "within"),
        (torch.tensor([1.005], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64), "value"),
        (torch.tensor([3]), torch.tensor([4]), "value"),
        (torch.tensor([2**53 + 1]), torch.tensor([2**53]), "value"),
        (torch.tensor([True]), torch.tensor([False]), "value"),
        (torch.tensor([1j]), torch.tensor([1j]), "equal"),
        (torch.tensor([1j]), torch.tensor([2j]), "value"),
        (torch.empty(0, 3), torch.empty(0, 3), "equal"),
        (torch.empty(0, 3), torch.empty(3, 0), "type"),
        (torch.tensor([1]), torch.tensor([1.0]), "type"),
        ([torch.tensor(1.0), None], [torch.tensor(1.0), None], "equal"),
        ([torch.tensor(1.0)], [torch.tensor(1.0), None], "type"),
        (3, 3, "equal"),
        (3, 4, "value"),
        (0.5, 0.5 + 1e-12, "within"),
        ("a", "b", "value"),
    ],
)
def test_kinds(got: Any, expected: Any, kind: str) -> None:
    gap = gap_of(got, expected, DEFAULT)
    assert gap.kind == kind, gap
    assert gap.is_bad == (kind not in ("equal", "within"))


def test_worst_element_is_told() -> None:
    gap = gap_of(torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.tensor([[1.0, 2.5], [3.0, 4.0]]), DEFAULT)
    assert (gap.absolute, gap.relative) == (1.0, 0.25)
    assert gap.text == "5 instead of 4 at [1, 1]"


def test_own_tolerances() -> None:
    got, expected = torch.tensor([1.001]), torch.tensor([1.0])
    assert not gap_of(got, expected, Tolerances(rtol=0.01)).is_bad
    assert not gap_of(got, expected, Tolerances(atol=0.01)).is_bad
    assert gap_of(torch.tensor([1.0 + 2**-20]), expected, Tolerances(rtol=0.0, atol=0.0)).is_bad
    # Integers are exact unless an absolute tolerance says otherwise.
    assert gap_of(torch.tensor([3]), torch.tensor([4]), Tolerances(rtol=0.5)).is_bad
    assert not gap_of(torch.tensor([3]), torch.tensor([4]), Tolerances(atol=1)).is_bad

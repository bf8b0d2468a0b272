"""Choices of seeds are the same everywhere, and requests are granted evenly."""

from __future__ import annotations

import pytest

from exirkit.fuzz.generation import FLOORS, DrawnChoices, SeededChoices


def test_choices_of_a_seed() -> None:
    one, other = SeededChoices(7), SeededChoices(7)
    assert [one.integer(0, 99) for _ in range(20)] == [other.integer(0, 99) for _ in range(20)]
    assert {SeededChoices(seed).integer(3, 5) for seed in range(50)} == {3, 4, 5}
    assert sorted(SeededChoices(1).shuffled(range(9))) == list(range(9))
    assert {SeededChoices(seed).weighted((1.0, 1.0, 3.0)) for seed in range(80)} == {0, 2}


@pytest.mark.parametrize("share", [0.03, 0.2, 0.5, 0.9])
def test_requests_are_granted_as_often_as_they_shall_be_over_any_row_of_seeds(share: float) -> None:
    for feature in FLOORS:
        for first in (0, 10**15):
            granted = sum(SeededChoices(seed).request(feature, share) for seed in range(first, first + 1000))
            assert abs(granted - 1000 * share) < 25


def test_drawn_choices_are_simplest_where_the_draws_are() -> None:
    least = DrawnChoices(lambda low, high: low)
    assert least.integer(2, 9) == 2
    assert least.pick("abc") == "a"
    assert not least.chance(0.99)
    assert least.chance(1)
    assert least.shuffled([1, 2, 3]) == [1, 2, 3]
    greatest = DrawnChoices(lambda low, high: high)
    assert greatest.integer(2, 9) == 9
    assert greatest.chance(0.01)

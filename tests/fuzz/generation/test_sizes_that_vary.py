"""Calls that make a value fit leave open what symbols are."""

from __future__ import annotations

import pytest
import torch

from exirkit.fuzz.generation import Policy, SeededChoices
from exirkit.fuzz.generation.method.building import Building
from exirkit.fuzz.generation.method.extents import plus, symbolic
from exirkit.fuzz.generation.method.guards import sized
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.policy import draw_plan
from exirkit.fuzz.programs import Symbol


@pytest.mark.parametrize(("less", "is_made"), [(0, True), (1, True), (2, False), (3, False)])
def test_one_element_is_expanded_only_to_sizes_that_cannot_be_one(less: int, is_made: bool) -> None:
    choices = SeededChoices(1)
    scope = Scope(Building(choices, draw_plan(choices, Policy())))
    size = plus(symbolic(Symbol("s0", 3, 12)), -less)
    value = scope.new_input(torch.float32, (1,), scope.building.contents(torch.float32))
    made = sized(scope, value, (size,))
    assert (made is not None) is is_made
    assert made is None or made.sizes == (size,)

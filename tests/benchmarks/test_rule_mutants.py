"""The list of mutants fits the rules of backends; the checks reject mutants and accept the rules."""

from __future__ import annotations

import pytest
from benchmarks.rules.mutants import checked, mutants


def test_list_has_sixty_rules() -> None:
    assert len({one["rule"] for one in mutants()}) == len(mutants()) == 60


@pytest.mark.parametrize("mutant", mutants(), ids=lambda one: one["rule"])
def test_mutant_is_rejected(mutant: dict[str, str]) -> None:
    assert checked(mutant)["rejected"]


@pytest.mark.parametrize("mutant", mutants()[::15], ids=lambda one: one["rule"])
def test_rule_itself_is_accepted(mutant: dict[str, str]) -> None:
    assert checked(mutant, is_control=True)["codes"] == []

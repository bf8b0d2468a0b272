"""Calls that compilers merge, and what nearly equals something else, are in programs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from exirkit.fuzz.generation import Policy, SeededChoices
from exirkit.fuzz.generation.acts import (
    bounds,
    chains,
    comparing,
    factors,
    nearly_equal,
    overlapping,
    ties,
    windows,
    wrapping,
)
from exirkit.fuzz.generation.generating import _of_families, fill_method, finished
from exirkit.fuzz.generation.method.building import Building
from exirkit.fuzz.generation.method.finishing import runs_of
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.operators.control_flow import BODY_FAMILIES, propose_control_flow
from exirkit.fuzz.generation.operators.images import pooled_side
from exirkit.fuzz.generation.patterns import shipped_rules
from exirkit.fuzz.generation.policy import Plan
from exirkit.fuzz.programs import Call, Program, Ref, run_eagerly


def program_with(act: Callable[[Scope], None], seed: int, *features: str) -> Program:
    """Return a program of one act, and of features that it needs."""
    building = Building(SeededChoices(seed), Plan(Policy(), frozenset(features), (torch.float32,), 0, 0.1, seed % 64))
    scope = Scope(building)
    method = fill_method(scope, "forward", is_first=True, extra=(lambda: act(scope),))
    return finished(building, runs_of(building, {"forward": scope}), [method])


def chained(act: Callable[[Scope], None], seeds: int) -> Iterator[tuple[Call, Call]]:
    """Yield calls, each with the call that makes its first operand."""
    for seed in range(seeds):
        steps = program_with(act, seed).methods[0].steps
        made = {name: call for call in steps for name in call.results}
        for call in steps:
            first = call.args[0] if call.args else None
            if isinstance(first, Ref) and first.name in made:
                yield made[first.name], call


def test_limits_lie_within_beyond_and_at_others() -> None:
    pairs: list[tuple[Any, Any]] = [
        (one.args[1:], other.args[1:])
        for one, other in chained(chains.numbered_calls, 150)
        if one.op == other.op == "aten.hardtanh.default"
    ]
    assert any(two[0] > one[1] for one, two in pairs)
    assert any(two[1] < one[0] for one, two in pairs)
    assert any(one[0] <= two[0] <= two[1] <= one[1] for one, two in pairs)


def test_conversions_go_through_dtypes_that_hold_less() -> None:
    ways = {
        (dict(one.kwargs)["dtype"], dict(other.kwargs)["dtype"])
        for one, other in chained(chains.converted_again, 100)
        if one.op == other.op == "aten._to_copy.default"
    }
    assert {(torch.float16, torch.float32), (torch.bfloat16, torch.float16), (torch.int8, torch.int64)} <= ways


def test_stored_tensors_differ_inside_only() -> None:
    inside = 0
    for seed in range(80):
        stored = program_with(nearly_equal.nearly_equal_stored, seed).stored
        listed = [one.contents.numbers for one in stored if one.contents.kind == "numbers"]
        assert listed
        for first, second in itertools.pairwise(listed):
            same = [one == two for one, two in zip(first, second, strict=False)]
            inside += len(first) > 4 and same.count(False) == 1 and same[0] and same[-1]
    assert inside > 5


def test_loops_exchange_what_they_carry() -> None:
    policy = Policy()
    exchanged = passed_on = 0
    for seed in range(150):

        def act(scope: Scope, kind: str = ("while_loop", "scan")[seed % 2]) -> None:
            propose_control_flow(scope, kind, _of_families(policy, BODY_FAMILIES))

        program = program_with(act, seed)
        for call in (call for call in program.methods[0].steps if call.bodies):
            body = call.bodies[-1]
            names = [one.name for one in body.outputs if isinstance(one, Ref)]
            places = [(at, body.inputs.index(name)) for at, name in enumerate(names) if name in body.inputs]
            exchanged += any(at != place for at, place in places)
            passed_on += any(at == place for at, place in places)
    assert exchanged > 10
    assert passed_on > 10


@pytest.mark.parametrize(
    "act",
    [
        bounds.bounded_arithmetic,
        factors.layer_with_factors,
        chains.numbered_calls,
        overlapping.overlapping_operands,
        wrapping.wrapping_integers,
        comparing.comparisons,
        bounds.bounded_integers,
        ties.rounded_ties,
        windows.strided_windows,
    ],
)
def test_they_run(act: Callable[[Scope], None]) -> None:
    for seed in range(25):
        assert run_eagerly(program_with(act, seed))


def test_windows_that_end_behind_the_padding() -> None:
    for side in range(2, 8):
        for window in range(1, min(side, 3) + 1):
            for step in (1, 2, 3):
                for padding in range(window // 2 + 1):
                    found = torch.nn.functional.max_pool1d(
                        torch.zeros(1, 1, side), window, step, padding, ceil_mode=True
                    )
                    assert pooled_side(side, window, step, padding, is_ceiled=True) == found.shape[-1]


def test_near_misses_of_shipped_rules_are_inserted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_rules, "_WAYS", ("near",))
    programs = [program_with(shipped_rules.insert_shipped_rule, seed) for seed in range(60)]
    plain = [program_with(lambda scope: None, seed) for seed in range(60)]
    inserted = [
        one for one, other in zip(programs, plain, strict=True) if len(one.methods[0].steps) > 1 and one != other
    ]
    assert len(inserted) > 30
    assert all(map(run_eagerly, inserted))

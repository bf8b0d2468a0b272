"""Work grows with the number of tensors, not its square; counted in lines run, since time depends on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from exirkit.ir import TensorSpec
from exirkit.passes.memory.planners import portfolio
from exirkit.verifiers import check_memory_plan


def count_lines(function: Callable[[], object]) -> int:
    """Return how many lines of exirkit's own code a call executes, comprehensions included."""
    lines = 0

    def trace(frame: Any, event: str, arg: object) -> Any:
        nonlocal lines
        if "memory" not in frame.f_code.co_filename:
            return None
        lines += 1
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(previous)
    return lines


def chain(count: int) -> list[TensorSpec]:
    specs = []
    for step in range(count):
        spec = TensorSpec(torch.uint8, [64 + step * 7919 % 1000])
        spec.lifetime = [step, step + 1]
        specs.append(spec)
    return specs


def with_skips(count: int) -> list[TensorSpec]:
    specs = chain(count)
    for step, spec in enumerate(specs[::10]):
        spec.lifetime = [step * 10, step * 10 + 25]
    return specs


@pytest.mark.parametrize("make", [chain, with_skips])
def test_portfolio_is_near_linear_in_local_graphs(make: Callable[[int], list[TensorSpec]]) -> None:
    small, large = (
        count_lines(lambda count=count: portfolio(16, make(count), None, None))  # type: ignore[misc, arg-type]
        for count in (200, 800)
    )
    assert large < 4 * 1.6 * small


def test_many_buffers_that_live_throughout_do_not_multiply_the_work() -> None:
    state = []
    for _ in range(300):
        spec = TensorSpec(torch.uint8, [64])
        spec.lifetime = [0, 1000]
        state.append(spec)
    with_state = count_lines(lambda: portfolio(16, [*chain(1000), *state], None, None))  # type: ignore[arg-type]
    alone = count_lines(lambda: portfolio(16, chain(1000), None, None))  # type: ignore[arg-type]
    assert with_state < 2 * alone


def test_checker_is_near_linear(new_builder: Any) -> None:
    from exirkit.passes.memory.planning_pass import MemoryPlanningPass

    counts = []
    for length in (100, 400):
        builder = new_builder()
        value = builder.input("x", [4])
        for _ in range(length):
            value = builder.op(value, [4])
        module, signature = builder.finish(value)
        MemoryPlanningPass().run(module, signature)
        counts.append(count_lines(lambda m=module, s=signature: check_memory_plan(m, s)))  # type: ignore[misc]
    assert counts[1] < 4 * 1.6 * counts[0]

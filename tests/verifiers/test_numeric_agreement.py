"""Recorded values compared with what kernels give for numbers: never in order where fake tensors find a difference."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.fx import Node

from exirkit.fuzz.generation import generate
from exirkit.fuzz.programs import build
from exirkit.ir import Inference, fake_mode_of, sample_sizes, symbols_within, with_sizes
from exirkit.verifiers.recorded_values import Agreement, agreement

SEEDS = range(12)


def calls(seed: int) -> Iterator[tuple[Any, Node]]:
    for program in build(generate(seed)).values():
        mode = fake_mode_of(program.graph_module)
        for node in program.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                yield mode, node


def judged(mode: Any, node: Node, recorded: Any) -> Agreement:
    return agreement(mode, node.target, node.args, node.kwargs, recorded)


def wrong_values(mode: Any, value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield values with one thing wrong about them."""
    sizes = list(value.shape)
    other = torch.int16 if value.dtype is not torch.int16 else torch.float32
    with mode:
        yield torch.empty(sizes, dtype=other)
        yield torch.empty([*sizes, 1], dtype=value.dtype)
        for dim, size in enumerate(sizes):
            yield torch.empty([*sizes[:dim], size + 1, *sizes[dim + 1 :]], dtype=value.dtype)
            yield torch.empty([*sizes[:dim], size * size + 2, *sizes[dim + 1 :]], dtype=value.dtype)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_agrees_with_fake_tensors(seed: int) -> None:
    for mode, node in calls(seed):
        recorded = node.meta["val"]
        if judged(mode, node, recorded) is Agreement.UNKNOWN:
            continue
        computed, _ = Inference(mode).value(node.target, node.args, node.kwargs, node)
        known = mode.shape_env.var_to_range
        ranges = {one: (int(known[one].lower), int(known[one].upper)) for one in symbols_within((recorded, computed))}
        for point in sample_sizes(ranges, alone=True):
            said, found = with_sizes((recorded, computed), point)
            said, found = ([one] if isinstance(one, torch.Tensor) else list(one) for one in (said, found))
            assert [(one.dtype, one.shape) for one in said] == [(one.dtype, one.shape) for one in found], node


@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_values_are_never_in_order(seed: int) -> None:
    for mode, node in calls(seed):
        recorded = node.meta["val"]
        if isinstance(recorded, torch.Tensor):
            for wrong in wrong_values(mode, recorded):
                assert judged(mode, node, wrong) is Agreement.UNKNOWN, (node, wrong.shape)


def test_most_calls_are_told_by_their_kernels() -> None:
    known = [
        judged(mode, node, node.meta["val"]) is not Agreement.UNKNOWN for seed in SEEDS for mode, node in calls(seed)
    ]
    assert sum(known) > 0.7 * len(known) > 0

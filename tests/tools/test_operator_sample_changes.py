"""Calls that differ from recorded ones in an argument: which there are, and that eager PyTorch takes many of them."""

from __future__ import annotations

import json
import math

from tools.operator_samples.__main__ import FURTHER, checked, further_calls
from tools.operator_samples.changes import changed, twice_changed_calls

from exirkit.fuzz.generation.operators.samples import Sample, read_sample
from exirkit.fuzz.programs.inference import operator_named


def sample(op: str, *args: object) -> Sample:
    return read_sample(json.dumps({"op": op, "args": args, "results": [], "calls": 0}))


def arguments(one: Sample, place: int) -> list[object]:
    return [other.args[place] for _, other in changed(one)]


def test_one_number_of_a_list_is_changed_and_lists_are_left_out() -> None:
    pooled = sample("aten.avg_pool3d.default", "f32[1, 1, 4, 4, 4]", [2, 2, 2], [1, 2, 1])
    kernels, strides = arguments(pooled, 1), arguments(pooled, 2)
    assert all(one in kernels for one in ((3, 2, 2), (2, 1, 2), (2, 2, -1), (2, 2)))
    assert () in strides
    # In one argument at a time.
    assert all(other.args[1] == (2, 2, 2) or other.args[2] == (1, 2, 1) for _, other in changed(pooled))


def test_optional_tensors_are_left_out_and_numbers_are_not_finite() -> None:
    clamped = sample("aten.clamp.Tensor", "f32[2]", "f32[2]", "f32[2]")
    assert None in arguments(clamped, 1)
    limits = [one for one in arguments(sample("aten.clamp.default", "f32[2]", 0.5), 1) if isinstance(one, float)]
    assert math.inf in limits
    assert any(map(math.isnan, limits))


def test_two_arguments_are_changed() -> None:
    pooled = sample("aten.avg_pool3d.default", "f32[1, 1, 4, 4, 4]", [2, 2, 2], [1, 2, 1])
    singles = [[other] for _, other in changed(pooled)]
    pairs = twice_changed_calls({pooled.op: singles})[pooled.op]
    both = [one for group in pairs for one in group if one.args[1] != (2, 2, 2) and one.args[2] != (1, 2, 1)]
    assert len(both) > 10


def test_calls_that_are_written_by_hand_can_be_made() -> None:
    found = further_calls()
    assert sum(map(len, found.values())) == len(FURTHER.read_text(encoding="utf-8").splitlines())
    assert all(operator_named(op) is not None for op in found)
    made = [checked(one) for op, calls in found.items() if "quantized" in op for one in calls]
    assert all(one is not None for one in made)
    # Scales and zero points stay as they are.
    (by_channel,) = [one for one in made if one is not None and one.op.endswith("fake_quant_per_channel.default")]
    assert [one.is_free for one in by_channel.tensors] == [True, False, False]

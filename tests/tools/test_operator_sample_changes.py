"""Calls that differ from recorded ones: which there are, and that eager PyTorch takes many of them."""

from __future__ import annotations

import json
import math

from tools.operator_samples.__main__ import FURTHER, checked, further_calls
from tools.operator_samples.changes import changed, twice_changed_calls
from tools.operator_samples.variations import variations

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


def test_variations_differ_in_everything_and_are_the_same_each_time() -> None:
    numbers = {"tensor": "f32[2, 3]", "numbers": [0, 1, 2, 3, 4, 5]}
    summed = sample("aten.sum.dim_IntList", numbers, [1], False)
    made = list(variations([summed], 300))
    assert [one.pattern for one in made] == [one.pattern for one in variations([summed], 300)]
    assert len({one.pattern for one in (*made, summed)}) == len(made) + 1
    tensors = [one.tensors[0] for one in made]
    assert len({one.dtype for one in tensors}) > 4
    assert {0, 1, 2, 3} <= {len(one.sizes) for one in tensors}
    assert {(0,), (-1,), (2,)} <= {one.args[1] for one in made}
    assert any(one.args[2] for one in made)
    assert sum(math.prod(one.sizes) == 0 for one in tensors) < len(made) / 4
    taken = [one for one in made if checked(one, is_recorded=False)]
    assert len(taken) > len(made) / 4
    # Elements that could not be drawn before cannot be drawn now.
    assert not any(one.is_free for each in taken for one in each.tensors)

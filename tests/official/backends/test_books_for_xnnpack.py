"""XNNPACK's passes as a chain of books: its serialiser makes the same delegates as after its own classes."""

from __future__ import annotations

import pytest
import torch
from tests.official.backends import layouts
from tests.official.backends.migrated_worker import MODELS
from tests.official.backends.models import MODELS as BRIDGED
from tests.official.backends.process import ask_bridge
from tests.official.oracle import OfficialRuntime
from tests.official.quantization.models import QUANTIZED

pytestmark = [pytest.mark.executorch]

QUICK = [("small", one) for one in ("residual", "attention", "one_dimension", "joined")]
QUICK += [("exported", "without-bias")]
REST = [("small", one) for one in MODELS if ("small", one) not in QUICK]
REST += [("quantized", one) for one in QUANTIZED] + [
    ("exported", one) for one in BRIDGED if ("exported", one) not in QUICK
]
# Delegates in which books move fewer elements, and those that differ from the original's on that account.
LESS_MOVED = ("joined",)
QUICK_LAYOUTS = (
    "softmax-of-rows",
    "largest-and-places",
    "made-channels-last",
    "sequences/static",
    "padded",
    "pooled/dynamic",
    "squeeze/any-batch",
)
# Here bytes are saved: more integers are moved, and fewer floats.
NARROWER = ("pair/static",)


@pytest.mark.parametrize(("kind", "name"), QUICK)
def test_delegates_are_those_of_the_original_passes(kind: str, name: str) -> None:
    _compare(kind, name)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), REST)
def test_more_delegates_are_those_of_the_original_passes(kind: str, name: str) -> None:
    _compare(kind, name)


def _compare(kind: str, name: str) -> None:
    answer, (before, after) = ask_bridge({"op": "lower_with_books", "kind": kind, "model": name})
    assert answer["delegates"] > 0
    if name in LESS_MOVED:
        assert answer["moved"][1][1] < answer["moved"][0][1]
        return
    assert answer["same"]
    assert before == after


@pytest.mark.parametrize("case", QUICK_LAYOUTS)
def test_tensors_are_laid_out_at_no_more_cost(case: str) -> None:
    _compare_layouts(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [one for one in layouts.CASES if one not in QUICK_LAYOUTS])
def test_more_tensors_are_laid_out_at_no_more_cost(case: str) -> None:
    _compare_layouts(case)


def _compare_layouts(case: str) -> None:
    """Compare results with eager, and what is moved with the original classes.

    A softmax along the last dim has the chain in any case: docs/upstream/79_softmax_after_convolution.py.
    """
    answer, _ = ask_bridge({"op": "lower_with_books", "kind": "layouts", "model": case})
    theirs, ours = answer["moved"]
    scale = 2e-2 if "/" in case or "half" in case else 1e-5
    assert max(answer["error"]) <= scale
    if case not in NARROWER:
        assert ours[1] <= theirs[1]


def test_no_class_of_the_original_runs() -> None:
    answer, _ = ask_bridge({"op": "run_no_class", "model": "residual"})
    assert "ChannelsLastTaggedReshapePass" in answer["None"]["ran"]
    assert answer["xnnpack"] == {"ran": [], "delegates": 1}


def test_programs_compute_what_they_did(official_runtime: OfficialRuntime) -> None:
    answer, (before, after) = ask_bridge({"op": "lower_with_books", "kind": "small", "model": "residual"})
    inputs = tuple(torch.tensor(one) for one in answer["inputs"])
    (mine,), (other,) = (official_runtime.run(one, [inputs]).unwrap() for one in (after, before))
    for got, want in zip(mine, other, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("model", ["linear-per-channel", "convolution-1d"])
def test_weights_in_another_file_go_there(model: str) -> None:
    answer, _ = ask_bridge({"op": "lower_with_books", "kind": "quantized", "model": model, "tag": "weights"})
    assert answer["tags"] == ["weights"]
    assert answer["same"]

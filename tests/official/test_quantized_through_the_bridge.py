"""Quantised models for XNNPACK: what our chain hands to its backend is what the official chain hands to it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tests.official.bridge_process import ask_bridge
from tests.official.oracle import OfficialRuntime
from tests.official.quantized_models import QUANTIZED
from tests.thoroughness import TRIES_ALL

pytestmark = [pytest.mark.executorch, pytest.mark.slow]

# Copies that change nothing are not there in our Edge programs.
GONE = {"dim_order_ops._clone_dim_order.default", "aten.expand_copy.default"}


# One of each kind is enough where the partitioner sees the same graphs.
AFTER = QUANTIZED if TRIES_ALL else ("linear-per-channel", "linear-dynamic", "residual", "convolution-1d")
CASES = [(name, way) for way, names in (("at once", QUANTIZED), ("after to_edge", AFTER)) for name in names]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_quantised_operators_are_delegated_as_in_the_official_chain(
    name: str, way: str, official_runtime: OfficialRuntime
) -> None:
    answer, (ours, theirs) = ask_bridge({"op": "lower_quantized", "model": name, "way": way})
    taken = {one: Counter(answer[one]["taken"]) for one in ("ours", "theirs")}
    assert set(taken["theirs"] - taken["ours"]) <= GONE
    assert answer["ours"]["left"] <= answer["theirs"]["left"]
    assert 0 < answer["ours"]["delegates"] <= answer["theirs"]["delegates"]
    inputs = tuple(torch.tensor(one) for one in answer["inputs"])
    (mine,), (other,) = (official_runtime.run(pte, [inputs]).unwrap() for pte in (ours, theirs))
    for got, want, eager in zip(mine, other, answer["eager"], strict=True):
        assert isinstance(got, torch.Tensor)
        assert isinstance(want, torch.Tensor)
        # The same delegate: not a bit may differ.
        assert torch.equal(got, want)
        # One step of the output, whose range was calibrated to about -3 .. 3; XNNPACK rounds in its own way.
        torch.testing.assert_close(got, torch.tensor(eager), rtol=0.02, atol=0.06)

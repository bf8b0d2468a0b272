"""Official partitioners and backends in our chain: what they take, and what the files compute."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tests.official.bridge_models import MODELS, exported
from tests.official.bridge_process import ask_bridge
from tests.official.oracle import OfficialRuntime

pytestmark = [pytest.mark.executorch, pytest.mark.slow]


@pytest.mark.parametrize("name", MODELS)
def test_xnnpack_through_our_chain(name: str, official_runtime: OfficialRuntime) -> None:
    answer, (ours, theirs) = ask_bridge({"op": "lower", "model": name})
    ours_taken, theirs_taken = (Counter(answer[one]["taken"]) for one in ("ours", "theirs"))
    # Copies that change nothing are not there in our Edge programs, so nobody can take them.
    assert set(theirs_taken - ours_taken) <= {"dim_order_ops._clone_dim_order.default"}
    assert answer["ours"]["left"] <= answer["theirs"]["left"]
    assert 0 < answer["ours"]["delegates"] <= answer["theirs"]["delegates"]
    calls = _calls(name)
    module = exported(name).module()
    wanted = [module(*inputs) for inputs in calls]
    for pte in (ours, theirs):
        for got, want in zip(official_runtime.run(pte, calls).unwrap(), wanted, strict=True):
            for mine, other in zip(got, [want] if isinstance(want, torch.Tensor) else want, strict=True):
                torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["convolutions", "any-batch"])
def test_cheap_tracing_changes_nothing_that_a_backend_makes(name: str) -> None:
    answer, _ = ask_bridge({"op": "compare", "model": name})
    assert answer["count"]
    assert answer["same"]


def _calls(name: str) -> list[tuple[torch.Tensor, ...]]:
    """Return inputs of two calls, so that state of the first reaches the second; of two sizes where these vary."""
    _, inputs, sizes = MODELS[name]()
    return [inputs, tuple(torch.cat([one, one]) for one in inputs) if sizes else inputs]

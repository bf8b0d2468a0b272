"""XNNPACK's passes as a chain of books: its serialiser makes the same delegates as after its own classes."""

from __future__ import annotations

import pytest
import torch
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
    assert all(answer["same"])
    assert before == after


def test_programs_compute_what_they_did(official_runtime: OfficialRuntime) -> None:
    answer, (before, after) = ask_bridge({"op": "lower_with_books", "kind": "small", "model": "residual"})
    inputs = tuple(torch.tensor(one) for one in answer["inputs"])
    (mine,), (other,) = (official_runtime.run(one, [inputs]).unwrap() for one in (after, before))
    for got, want in zip(mine, other, strict=True):
        torch.testing.assert_close(got, want)

"""The quantizer `xnnpack` beside the official one: the same annotations, on models that were not written for it."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from benchmarks.models import MODELS
from tests.thoroughness import some_of

pytestmark = pytest.mark.executorch
ROOT = Path(__file__).resolve().parents[3]
QUICK = ("mlp", "mobilenet_v2")
REST = tuple(some_of([name for name in MODELS if name not in QUICK], (), 0, 1))

# What the official quantizer annotates alone: classifiers that nothing uses, which it removes where parameters are not
# dynamic; and a table of logarithms that holds -inf, of which there is no histogram.
LISTED = {
    ("vit", "dynamic"): ("linear_72", 2),
    ("bert", "dynamic"): ("linear_72", 2),
    ("t5_encoder", "per tensor"): ("mul_3", 3),
    ("t5_encoder", "per channel"): ("mul_3", 3),
}


@cache
def answer(models: tuple[str, ...]) -> Any:
    command = [sys.executable, "-m", "tests.official.quantization.quantizer_worker", *models]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert made.returncode == 0, made.stderr[-3000:]
    return json.loads(made.stdout.splitlines()[-1])


def check(model: str, models: tuple[str, ...]) -> None:
    for scheme, found in answer(models)[model].items():
        assert found["ours"] == [], scheme
        call, count = LISTED.get((model, scheme), ("", 0))
        assert all(call in str(places) for _, places in found["theirs"]), (scheme, found["theirs"])
        assert len(found["theirs"]) == count
    assert model in ("lstm", "gpt2") or all(found["same"] > 10 for found in answer(models)[model].values())


@pytest.mark.parametrize("model", QUICK)
def test_annotations_are_those_of_the_official_quantizer(model: str) -> None:
    check(model, QUICK)


@pytest.mark.parametrize("model", REST)
def test_more_annotations_are_those_of_the_official_quantizer(model: str) -> None:
    check(model, (*REST, "tiny llama"))


def test_a_llama_can_be_prepared() -> None:
    found = answer((*REST, "tiny llama"))["tiny llama"]
    assert found["official"].startswith("RuntimeError: Tensor dtype mismatch")
    assert float(found["ours"]) > 15

"""Programs that return gradients train in the official training module as their models do in torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.official.oracle import ROOT
from tests.official.training_worker import MODELS

pytestmark = [pytest.mark.executorch]


def answers(*names: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.official.training_worker", *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]


def check(found: list[dict[str, Any]]) -> None:
    for one in found:
        if "level" in one:
            assert one["ours"] == pytest.approx(one["torch"], abs=1e-5), one["name"]
            assert one["torch"][-1] < one["torch"][0]
            assert max(one["runtimes"]) < 1e-5
            assert one["external"] == pytest.approx([one["torch"][0]] * 2, abs=1e-5)


def test_a_perceptron_is_trained() -> None:
    found = answers("mlp")
    assert [one.get("level") for one in found] == [0, 1, 2, None]
    check(found)
    assert found[-1]["official"] == pytest.approx(found[0]["ours"], abs=1e-5)


def test_all_models_are_trained() -> None:
    others = [name for name in MODELS if name != "mlp"]
    found = answers(*others)
    assert sorted({one["name"] for one in found}) == sorted(others)
    assert len(found) == 4 * len(others)
    check(found)

"""Passes of the official package, and passes derived from its classes, in our `transform`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.executorch
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def answer() -> Any:
    """What a process of its own says, which imports the official package."""
    command = [sys.executable, "-m", "tests.official.passes.official_passes_worker"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert made.returncode == 0, made.stderr[-3000:]
    return json.loads(made.stdout.splitlines()[-1])


def test_results_are_those_of_eager_and_handles_are_ours(answer: Any) -> None:
    assert len(answer["found"]) == 11
    for name, found in answer["found"].items():
        assert found["foreign"] == [], name


def test_they_find_what_they_look_for(answer: Any) -> None:
    counts = {
        name: {op: found["operators"].count(op) for op in set(found["operators"])}
        for name, found in answer["found"].items()
    }
    idle = counts["idle"]
    assert counts["relu-twice"]["aten.relu.default"] == 2 * idle["aten.relu.default"]
    assert counts["fuse-views"]["aten.view_copy.default"] < idle["aten.view_copy.default"]
    assert "aten.mean.dim" not in counts["mean"]
    assert counts["linear"]["aten.linear.default"] == 1
    assert counts["in a list"]["aten.relu.default"] == 2 * idle["aten.relu.default"]
    assert counts["in a function"] == counts["in a default"] == counts["relu-twice"]
    assert idle["aten.relu.default"] < counts["by hand"]["aten.relu.default"]
    assert "aten.mean.dim" not in counts["in a manager"]
    assert counts["dynamic"]["aten.relu.default"] == 2 * idle["aten.relu.default"]


def test_one_that_raises_is_named_with_its_line(answer: Any) -> None:
    found = answer["failing"]
    assert found["code"] == "EK447"
    assert found["message"].startswith("pass Fails failed: RuntimeError: scale")
    assert found["location"]["file"].endswith("official_passes_worker.py")
    assert "exirkit.ExportPass" in found["hint"]

"""Samples of PyTorch's own list of operators: those once wrong and, with EXIRKIT_TESTS=all, one of ten others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.thoroughness import TRIES_ALL

ROOT = Path(__file__).resolve().parents[2]
ONCE_WRONG = (
    "nn.functional.pad",
    "take",
    "masked_select",
    "addbmm",
    "copysign",
    "gather",
    "narrow_copy",
    "to",
    "unique",
)


@pytest.mark.slow
@pytest.mark.executorch
@pytest.mark.parametrize("chosen", [list(ONCE_WRONG), *([["--every", "10"]] if TRIES_ALL else [])])
def test_samples_are_right_or_rejected(chosen: list[str], tmp_path: Path) -> None:
    out = tmp_path / "outcomes.json"
    command = [sys.executable, "-m", "benchmarks.operator_samples", *chosen, "--json", str(out), "--samples", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {one["verdict"] for one in json.loads(out.read_text(encoding="utf-8"))}
    assert "right" in verdicts
    assert verdicts <= {"right", "rejected", "left out"}

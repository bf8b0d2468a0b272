"""Books made from ten classes of the official package: each has rules, and the checks tell the right ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.executorch
def test_ten_classes_become_books() -> None:
    command = [sys.executable, "-m", "tests.official.backend_books.ported_worker"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)
    assert made.returncode == 0, made.stderr[-3000:]
    verdicts = json.loads(made.stdout.splitlines()[-1])
    assert len(verdicts) == 10
    assert all(verdicts.values())
    assert all(verdicts["ReplaceMMWithAddMMPass"])
    # Rules about any permutation, or any expansion, are wrong, and the checks say so.
    assert not any(verdicts["ReplacePermuteWithTransposePass"] + verdicts["RemoveNopExpandOpPass"])

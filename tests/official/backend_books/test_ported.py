"""Books made from ten classes of the official package: each has rules, and the checks tell the right ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.thoroughness import TRIES_ALL

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.executorch
def test_classes_become_books() -> None:
    # Fifteen seconds a class; EXIRKIT_TESTS=all makes books of all ten.
    chosen = [] if TRIES_ALL else ["ReplaceMMWithAddMMPass", "RemoveNopExpandOpPass"]
    command = [sys.executable, "-m", "tests.official.backend_books.ported_worker", *chosen]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)
    assert made.returncode == 0, made.stderr[-3000:]
    verdicts = json.loads(made.stdout.splitlines()[-1])
    assert len(verdicts) == (len(chosen) or 10)
    assert all(verdicts.values())
    assert all(verdicts["ReplaceMMWithAddMMPass"])
    # Rules about any permutation, or any expansion, are wrong, and the checks say so.
    wrong = {"ReplacePermuteWithTransposePass", "RemoveNopExpandOpPass"} & set(verdicts)
    assert not any(any(verdicts[name]) for name in wrong)

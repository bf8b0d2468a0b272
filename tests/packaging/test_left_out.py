"""The table of tests that `make test` leaves out lists tests that exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.quick_selection import stale_patterns

ROOT = Path(__file__).resolve().parents[2]


def test_every_pattern_matches_a_test() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [line.removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line]
    assert len(names) > 5000
    assert stale_patterns(names) == []

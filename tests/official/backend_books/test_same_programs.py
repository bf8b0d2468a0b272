"""Classes of the official package, and the rules that do their work, on the same programs."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
from tests.official.backend_books.same_programs import CASES
from tests.thoroughness import TRIES_ALL

from exirkit.patterns import backend_classes

# What a class gets wrong on its program: the result has a dim more.
WRONG_THERE = {"DecomposeAny"}


@cache
def answers(side: str) -> list[dict[str, Any]]:
    """Return what one side made of every program."""
    worker = [sys.executable, "-m", "tests.official.backend_books.compare_worker", side]
    lines = "\n".join(str(number) for number in range(0, len(CASES), 1 if TRIES_ALL else 8))
    done = subprocess.run(worker, input=lines, capture_output=True, text=True, check=True, timeout=900)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_programs_are_for_what_is_done() -> None:
    for case in CASES:
        (entry,) = [one for one in backend_classes(case.book).entries if one.name == case.class_name]
        assert entry.extent != "nothing", case.class_name


@pytest.mark.slow
@pytest.mark.executorch
@pytest.mark.skipif(find_spec("executorch") is None, reason="the official package is not installed")
def test_rules_take_away_what_classes_take_away() -> None:
    found = [
        f"{here['class']}: there {there}, here {here}"
        for there, here in zip(answers("there"), answers("here"), strict=True)
        if not _agree(there, here)
    ]
    assert not found, "\n".join(found)


def _agree(there: dict[str, Any], here: dict[str, Any]) -> bool:
    if "error" in there or "error" in here or here["wrong"]:
        return False
    if bool(there["wrong"]) and there["class"] not in WRONG_THERE:
        return False
    return all(call in here["went"] or call not in here["before"] for call in there["went"])

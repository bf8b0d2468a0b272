"""Mutants that a machine draws: where, and that each can be switched on in the tree that has them all."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tools.selection_power.sites import draw, write_tree

ROOT = Path(__file__).resolve().parents[2]


def test_mutants_are_drawn_in_the_folders_that_are_asked_for() -> None:
    drawn = draw(ROOT, 12, 5, ("emit",))
    assert len(drawn) == 12
    assert all(one.file.startswith("emit/") for one in drawn)
    assert drawn == draw(ROOT, 12, 5, ("emit",))
    assert drawn != draw(ROOT, 12, 6, ("emit",))


def test_each_mutant_of_a_tree_is_switched_on_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "emit"
    folder.mkdir()
    text = "from __future__ import annotations\ndef larger(x: int, y: int) -> bool:\n    return x > y\n"
    (folder / "comparing.py").write_text(text)
    sites = draw(tmp_path, 1, 1, ("emit",))
    write_tree(tmp_path, sites)
    hook: Any = ModuleType("exirkit_mutants")
    monkeypatch.setitem(sys.modules, "exirkit_mutants", hook)
    found = []
    for active in (-1, 0):
        hook.active = active.__eq__
        larger = runpy.run_path(str(folder / "comparing.py"))["larger"]
        found.append([larger(*pair) for pair in ((1, 2), (2, 2), (3, 2))])
    assert found == [[False, False, True], [False, True, True]]

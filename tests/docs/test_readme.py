"""The Python blocks of the README run when they are pasted one after the other, and its rule book is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exirkit import load_book

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_python_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}
    ran = 0
    for block in blocks("python"):
        if "executorch.backends" in block:
            # Needs the official package and a partitioning; docs/how_to/official_backends.md has its test.
            continue
        exec(compile(block, "README.md", "exec"), namespace)
        ran += 1
    assert ran >= 2
    assert (tmp_path / "model.pte").stat().st_size > 0


def test_rule_block(tmp_path: Path) -> None:
    (book,) = blocks("yaml")
    path = tmp_path / "book.yaml"
    path.write_text(book)
    assert [rule.id for rule in load_book(path).require_valid().rules] == ["fuse.silu"]

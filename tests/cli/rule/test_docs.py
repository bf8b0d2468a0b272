"""`exirkit rule docs`: pages in a directory, the same ones every time, all of them or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke, Spawn

BOOK = """rulebook: 1
rules:
- id: it
  doc: Removes two changes of sign.
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(aten.neg.default(x))
  replace: return x
"""


def test_pages_are_written(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(BOOK)
    result = invoke("rule", "docs", "mine.yaml", "algebra", "-o", "pages", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["pages"], report["output"]) == (["mine.md", "algebra.md", "index.md"], "pages")
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == sorted(report["pages"])
    assert "Removes two changes of sign." in (tmp_path / "pages" / "mine.md").read_text()
    # What is there already is replaced, and what is not ours stays.
    (tmp_path / "pages" / "mine.md").write_text("old")
    (tmp_path / "pages" / "other.md").write_text("other")
    again = invoke("rule", "docs", "mine.yaml", "-o", "pages")
    assert again.stdout == "pages: 2 pages, rules: 1\n"
    assert (tmp_path / "pages" / "mine.md").read_text() != "old"
    assert (tmp_path / "pages" / "other.md").read_text() == "other"


def test_nothing_is_written_if_a_book_is_wrong(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(BOOK)
    (tmp_path / "wrong.yaml").write_text(BOOK.replace("neg", "negg"))
    result = invoke("rule", "docs", "mine.yaml", "wrong.yaml", "-o", "pages")
    assert result.exit_code == 1
    assert "EK213" in result.stderr
    assert not (tmp_path / "pages").exists()


@pytest.mark.parametrize("output", ["mine.yaml", "none/pages"])
def test_where_nothing_can_be_written(output: str, invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(BOOK)
    result = invoke("rule", "docs", "mine.yaml", "-o", output)
    assert result.exit_code == 1
    assert "error[EK712]" in result.stderr


@pytest.mark.slow
def test_pages_do_not_depend_on_the_seed_of_hashes(spawn: Spawn, tmp_path: Path) -> None:
    for seed in ("1", "2"):
        assert spawn("rule", "docs", "-o", f"pages{seed}", PYTHONHASHSEED=seed).returncode == 0
    for page in (tmp_path / "pages1").iterdir():
        assert page.read_bytes() == (tmp_path / "pages2" / page.name).read_bytes()

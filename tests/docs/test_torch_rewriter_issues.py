"""Wishes of users of torch's rewriter: each entry of the page runs as it stands, after the definitions on top."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "torch_rewriter_issues.md"
ENTRIES = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
THREADS = {"100419", "143147", "159613", "104775", "108163", "143841"}


def code_of(text: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))


@pytest.mark.parametrize("entry", ENTRIES[1:], ids=[entry.partition("\n")[0] for entry in ENTRIES[1:]])
def test_entry(entry: str) -> None:
    assert "assert" in code_of(entry)
    names: dict[str, Any] = {}
    exec(compile(code_of(ENTRIES[0]), str(PAGE), "exec"), names)
    exec(compile(code_of(entry), str(PAGE), "exec"), names)


def test_every_thread_has_an_entry() -> None:
    titles = [entry.partition("\n")[0] for entry in ENTRIES[1:]]
    assert {number for title in titles for number in re.findall(r"\d+", title)} == THREADS

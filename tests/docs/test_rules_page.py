"""The page about rules: its Python runs."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from exirkit.patterns.functions import registered
from exirkit.patterns.functions.words import WORDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
# The others say where a name comes from that the reader has.
WHOLE = [block for block in BLOCKS if not re.search(r"\b(exported|mine)\b", block)]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    words, builders = dict(WORDS), dict(registered._BUILDERS)
    yield
    WORDS.clear()
    WORDS.update(words)
    registered._BUILDERS.clear()
    registered._BUILDERS.update(builders)


def test_most_blocks_are_whole() -> None:
    assert len(WHOLE) >= max(4, len(BLOCKS) - 3)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(WHOLE)))
def test_block_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "block.py"
    file.write_text(WHOLE[number])
    linecache.checkcache()
    exec(compile(WHOLE[number], str(file), "exec"), {"__name__": "block"})

"""The pages about memory: their policies are read, and their Python runs."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest

from exirkit.passes import MemoryPolicy, load_memory_policy
from exirkit.passes.memory.policy import MemoryPool, PlacementRule

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "memory_policies.md").read_text(encoding="utf-8")
BLOCKS = [
    *re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL),
    *re.findall(r"```python\n(.*?)```", (DOCS / "memory_planning.md").read_text(encoding="utf-8"), re.DOTALL),
]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (text,) = re.findall(r"```yaml\n# board.yaml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "board.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_policy_is_what_the_page_says(board: Path) -> None:
    policy = load_memory_policy(board)
    assert policy.way_of("sram") == ("sram", "dram")
    assert len(policy.rules) == 3


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number: int, board: Path) -> None:
    file = board.with_name("block.py")
    file.write_text(BLOCKS[number], encoding="utf-8")
    linecache.checkcache()
    exec(compile(BLOCKS[number], str(file), "exec"), {"__name__": "block"})


def test_every_key_is_on_the_page() -> None:
    for model in (MemoryPolicy, MemoryPool, PlacementRule):
        for key in model.model_fields:
            assert re.search(rf"\b{key}\b", PAGE), key

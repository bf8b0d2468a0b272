"""The page about memory policies: the policy on it is read, and its Python runs."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest

from exirkit.passes import MemoryPolicy, load_memory_policy
from exirkit.passes.memory.policy import MemoryPool, PlacementRule

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how_to" / "memory_policies.md").read_text(encoding="utf-8")


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


def test_blocks_run_in_order(board: Path) -> None:
    names = {"__name__": "block"}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)):
        file = board.with_name(f"block_{number}.py")
        file.write_text(block, encoding="utf-8")
        linecache.checkcache()
        exec(compile(block, str(file), "exec"), names)
    assert len(names) > 10


def test_every_key_is_on_the_page() -> None:
    for model in (MemoryPolicy, MemoryPool, PlacementRule):
        for key in model.model_fields:
            assert re.search(rf"\b{key}\b", PAGE), key

"""The blocks of the pages for authors of passes run when they are pasted one after the other."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["how_to/weights.md", "how_to/normalized_arguments.md", "how_to/editor.md"])
def test_blocks_run(page: str) -> None:
    namespace: dict[str, object] = {"__name__": "page"}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert len(blocks) > 1
    with warnings.catch_warnings():
        # Of torch, by `run_decompositions`.
        warnings.simplefilter("ignore", FutureWarning)
        for block in blocks:
            exec(compile(block, page, "exec"), namespace)

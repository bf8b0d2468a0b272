"""The page of the editor names every public method, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

from exirkit import GraphEditor

PAGE = (Path(__file__).parents[2] / "docs" / "editor.md").read_text()


def test_every_method_is_on_the_page() -> None:
    named = set(re.findall(r"^\| `(\w+)", PAGE, re.MULTILINE))
    assert {
        name for name in dir(GraphEditor) if not name.startswith("_") and callable(getattr(GraphEditor, name))
    } <= named


def test_example_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "editor.md", "exec"), {"__name__": "editor_page"})

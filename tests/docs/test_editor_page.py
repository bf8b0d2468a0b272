"""The page of the editor names every public method and shows an example; that they run is tested with other pages."""

from __future__ import annotations

import re
from pathlib import Path

from exirkit import GraphEditor

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "editor.md").read_text()


METHODS = {name for name in dir(GraphEditor) if not name.startswith("_") and callable(getattr(GraphEditor, name))}


def test_every_method_is_on_the_page() -> None:
    assert set(re.findall(r"^\| `(\w+)", PAGE, re.MULTILINE)) == METHODS


def test_every_method_has_an_example() -> None:
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    assert set(re.findall(r"\beditor\.(\w+)\(", blocks)) >= METHODS

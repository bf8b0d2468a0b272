"""The Python of the page about official backends runs, in a process that may import them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.official.bridge_process import ask_bridge

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how_to" / "official_backends.md"


@pytest.mark.executorch
@pytest.mark.slow
def test_blocks_run_in_their_order() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    answer, _ = ask_bridge({"op": "page", "blocks": blocks})
    assert {"edge", "program"} <= set(answer["names"])

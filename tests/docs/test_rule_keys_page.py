"""The page about the keys of a rule is what the model says, and says something of every key."""

from __future__ import annotations

from pathlib import Path

from exirkit.patterns import rule_keys_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rule_keys.md"


def test_page_is_made_from_the_model() -> None:
    assert PAGE.read_text() == rule_keys_page(), "write rule_keys_page() to docs/reference/rule_keys.md"

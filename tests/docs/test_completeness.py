"""Pages that list something list all of it, and generated pages are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from exirkit import GraphEditor, MemoryPolicy
from exirkit.passes import Minimum, Partitioning, TakingRule
from exirkit.passes.memory.policy.model import MemoryPool, PlacementRule
from exirkit.patterns import rule_keys_page

DOCS = Path(__file__).parents[2] / "docs"
THREADS_ABOUT_TORCH_S_REWRITER = {"100419", "143147", "159613", "104775", "108163", "143841"}


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_every_method_of_the_editor_is_listed_and_has_an_example() -> None:
    methods = {name for name in dir(GraphEditor) if not name.startswith("_") and callable(getattr(GraphEditor, name))}
    text = page("how_to/editor.md")
    assert set(re.findall(r"^\| `(\w+)", text, re.MULTILINE)) == methods
    examples = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert set(re.findall(r"\beditor\.(\w+)\(", examples)) >= methods


@pytest.mark.parametrize(
    ("name", "model"),
    [
        *(("how_to/memory_policies.md", model) for model in (MemoryPolicy, MemoryPool, PlacementRule)),
        *(("how_to/partitioning.md", model) for model in (Partitioning, TakingRule, Minimum)),
    ],
)
def test_every_key_of_a_file_is_on_its_page(name: str, model: type[BaseModel]) -> None:
    text = page(name)
    assert [key for key in model.model_fields if not re.search(rf"\b{key}\b", text)] == []


def test_every_thread_has_an_entry_that_asserts_something() -> None:
    entries = re.split(r"^## ", page("explanation/torch_rewriter_issues.md"), flags=re.MULTILINE)[1:]
    assert {number for entry in entries for number in re.findall(r"\d{6}", entry.partition("\n")[0])} == (
        THREADS_ABOUT_TORCH_S_REWRITER
    )
    assert all("assert" in entry for entry in entries)


def test_page_of_rule_keys_is_up_to_date() -> None:
    assert page("reference/rule_keys.md") == rule_keys_page(), "write rule_keys_page() to docs/reference/rule_keys.md"

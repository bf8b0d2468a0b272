"""The keys of a rule as a page, made from the model that reads rules, so that the page cannot fall behind."""

from __future__ import annotations

import inspect
import re

from .model import Rule

_HEAD = """# The keys of a rule

Made from the model that reads rule books; `exirkit.patterns.rule_keys_page` makes it again.
[Rules](rules.md) explains the language.

| key | needed | what it says |
|---|---|---|
"""


def rule_keys_page() -> str:
    """Return the page, as Markdown."""
    texts = key_texts()
    rows = [
        f"| `{name}` | {'yes' if field.is_required() else ''} | {texts[name].replace('|', chr(92) + '|')} |"
        for name, field in Rule.model_fields.items()
    ]
    return _HEAD + "\n".join(rows) + "\n"


def key_texts() -> dict[str, str]:
    """Return the documentation of every key of a rule."""
    _, _, attributes = (inspect.getdoc(Rule) or "").partition("Attributes:\n")
    found = re.findall(r"^    (\w+): ((?:.*\n?)(?:^        .*\n?)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}

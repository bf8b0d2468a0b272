"""From a book to YAML that reads back as an equal book."""

from __future__ import annotations

from typing import Any

import yaml

from .model import RuleBook


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value.strip("\n") or value.endswith("\n") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def write_book(book: RuleBook) -> str:
    """Return a book as YAML; what has its default is left out."""
    data = book.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.dump(_ordered({"rulebook": 1, **data}), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=116)


def _ordered(data: dict[str, Any]) -> dict[str, Any]:
    rules = data.pop("rules", None)
    return data if rules is None else {**data, "rules": rules}

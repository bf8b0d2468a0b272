"""The JSON Schema of memory policies, with which editors complete and check them; it is made from the models."""

from __future__ import annotations

import inspect
import json
from importlib.resources import files
from typing import Any

from pydantic import BaseModel

from . import model
from .model import NBYTES_PATTERN, MemoryPolicy

SCHEMA_FILE = "policy.schema.json"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_SIZES = ("limit", "alignment", "at_least", "at_most")
_LISTS = ("op", "user", "dtype", "module", "value", "kind", "where")


def memory_policy_schema() -> dict[str, Any]:
    """Return the JSON Schema of memory policies, made from the models.

    It knows what the models accept besides what they hold: sizes like `256 KiB`, and one element instead of a list.
    """
    schema = MemoryPolicy.model_json_schema()
    for name, entry in {**schema["$defs"], "MemoryPolicy": schema}.items():
        _describe(entry, getattr(model, name))
        for key in _SIZES:
            if key in entry["properties"]:
                entry["properties"][key] = _or_text(entry["properties"][key])
        for key in _LISTS if name == "PlacementRule" else ():
            entry["properties"][key] = _or_one(entry["properties"][key])
    return {"$schema": _DRAFT, **schema, "title": "A memory policy for exirkit"}


def memory_policy_schema_text() -> str:
    """Return the JSON Schema of memory policies as the text of the file that comes with exirkit."""
    return files(__package__ or "exirkit.passes.memory.policy").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def made_text() -> str:
    """Return the text that the file must have."""
    return json.dumps(memory_policy_schema(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _or_text(entry: dict[str, Any]) -> dict[str, Any]:
    """Accept a text with a unit where a number of bytes stands."""
    number = {key: value for key, value in entry.items() if key not in ("description", "default")}
    kept = {key: value for key, value in entry.items() if key in ("description", "default")}
    choices = number.get("anyOf", [number])
    return {**kept, "anyOf": [*choices, {"type": "string", "pattern": NBYTES_PATTERN}]}


def _or_one(entry: dict[str, Any]) -> dict[str, Any]:
    """Accept one element instead of a list of them."""
    rest = {key: value for key, value in entry.items() if key not in ("type", "items")}
    return {**rest, "anyOf": [entry["items"], {"type": "array", "items": entry["items"]}]}


def _describe(entry: dict[str, Any], documented: type[BaseModel]) -> None:
    """Put what the docstring of a model says where editors show it."""
    head, _, attributes = inspect.cleandoc(documented.__doc__ or "").partition("\nAttributes:\n")
    entry["description"] = " ".join(head.split())
    told: dict[str, str] = {}
    name = ""
    for line in attributes.splitlines():
        if line.startswith("    ") and not line.startswith("     ") and ":" in line:
            name, _, said = line.strip().partition(":")
            told[name] = said.strip()
        elif line.strip():
            told[name] += f" {line.strip()}"
    for key, each in entry["properties"].items():
        each["description"] = told[key]
        each.pop("title", None)

"""JSON Schemas of policies, with which editors complete and check them; they are made from the models."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

from exirkit.patterns import describe_model

from .policy_words import NBYTES_PATTERN

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def policy_schema(
    root: type[BaseModel],
    models: Mapping[str, type[BaseModel]],
    title: str,
    *,
    sizes: Mapping[str, Collection[str]],
    lists: Mapping[str, Collection[str]],
) -> dict[str, Any]:
    """Return the JSON Schema of a policy.

    It knows what the models accept besides what they hold: sizes like `256 KiB`, and one element instead of a list.

    Args:
        root: Model of the whole file.
        models: All models by name; their docstrings describe every key.
        title: What the file is.
        sizes: For each model, keys whose numbers of bytes may be texts with a unit.
        lists: For each model, keys whose lists may be one element.
    """
    schema = root.model_json_schema()
    for name, entry in {**schema.get("$defs", {}), root.__name__: schema}.items():
        describe_model(entry, models[name])
        for key in sizes.get(name, ()):
            entry["properties"][key] = _or_text(entry["properties"][key])
        for key in lists.get(name, ()):
            entry["properties"][key] = _or_one(entry["properties"][key])
    return {"$schema": _DRAFT, **schema, "title": title}


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


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

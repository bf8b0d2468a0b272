"""The JSON Schema of rule books, with which editors complete and check them.

It is made from the models, and knows what those accept besides: a guard that is a plain text, one pattern instead of a
list of them, a dialect that is one word. What the models say of their fields is what an editor shows.
"""

from __future__ import annotations

import inspect
import json
from importlib.resources import files
from typing import Any

from pydantic import BaseModel

from . import model
from .model import RuleBook

SCHEMA_FILE = "rulebook.schema.json"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def rulebook_schema() -> dict[str, Any]:
    """Return the JSON Schema of rule books, made from the models."""
    schema = RuleBook.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    for name, entry in {**definitions, "RuleBook": schema}.items():
        documented = getattr(model, name)
        assert issubclass(documented, BaseModel), f"{name} is a model"
        describe_model(entry, documented)
        for each in entry["properties"].values():
            if "patternProperties" in each:
                each["additionalProperties"] = False
    rule = definitions["Rule"]["properties"]
    for key in ("where", "unless", "keep", "tags"):
        rule[key] = _or_one(rule[key])
    one_word = definitions["DialectScope"]["properties"]["from"]
    rule["dialect"] = {
        **{key: value for key, value in rule["dialect"].items() if key != "$ref"},
        "anyOf": [{"type": "string", "pattern": one_word["pattern"]}, {"$ref": "#/$defs/DialectScope"}],
    }
    return {"$schema": _DRAFT, **schema, "title": "A book of rules for exirkit"}


def rulebook_schema_text() -> str:
    """Return the JSON Schema of rule books as the text of the file that comes with exirkit."""
    return files("exirkit.patterns").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def made_text() -> str:
    """Return the text that the file must have."""
    return json.dumps(rulebook_schema(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _or_one(entry: dict[str, Any]) -> dict[str, Any]:
    """Accept one element instead of a list of them; and a text where a guard stands."""
    element = entry["items"]
    if "$ref" in element:
        element = {"anyOf": [{"type": "string", "minLength": 1}, element]}
    rest = {key: value for key, value in entry.items() if key not in ("type", "items")}
    return {**rest, "anyOf": [element, {"type": "array", "items": element}]}


def describe_model(entry: dict[str, Any], documented: type[BaseModel]) -> None:
    """Put what the docstring of a model says where editors show it: one sentence for the model, and one per field."""
    text = inspect.cleandoc(documented.__doc__ or "")
    head, _, attributes = text.partition("\nAttributes:\n")
    entry["description"] = " ".join(head.split())
    told: dict[str, str] = {}
    name = ""
    for line in attributes.splitlines():
        if line.startswith("    ") and not line.startswith("     ") and ":" in line:
            name, _, said = line.strip().partition(":")
            told[name] = said.strip()
        elif line.strip():
            told[name] += f" {line.strip()}"
    for name, field in documented.model_fields.items():
        if name in told:
            entry["properties"][field.alias or name]["description"] = told[name]
    for each in entry.get("properties", {}).values():
        each.pop("title", None)

"""The JSON Schema of rule books, with which editors complete and check them."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from exirkit.ir import document_schema, or_one, schema_text

from .model import RuleBook

SCHEMA_FILE = "rulebook.schema.json"


def rulebook_schema() -> dict[str, Any]:
    """Return the JSON Schema of rule books.

    It knows what the models accept besides their fields: a guard that is a string, one pattern instead of a list, a
    dialect that is one word.
    """
    schema = document_schema(RuleBook, "A book of rules for exirkit")
    definitions = schema["$defs"]
    for entry in (schema, *definitions.values()):
        for each in entry["properties"].values():
            if "patternProperties" in each:
                each["additionalProperties"] = False
    rule = definitions["Rule"]["properties"]
    for key in ("unless", "keep", "tags"):
        rule[key] = or_one(rule[key])
    guard = {"anyOf": [{"type": "string", "minLength": 1}, rule["where"]["items"]]}
    rule["where"] = or_one({**rule["where"], "items": guard})
    one_word = definitions["DialectScope"]["properties"]["from"]
    rule["dialect"] = {
        **{key: value for key, value in rule["dialect"].items() if key != "$ref"},
        "anyOf": [{"type": "string", "pattern": one_word["pattern"]}, {"$ref": "#/$defs/DialectScope"}],
    }
    return schema


def rulebook_schema_text() -> str:
    """Return the JSON Schema of rule books as the text of the file that comes with exirkit."""
    return files("exirkit.patterns").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def made_text() -> str:
    """Return the text that the file must have."""
    return schema_text(rulebook_schema())

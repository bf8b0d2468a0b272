"""The JSON Schema that is shipped: made from the models, and of one opinion with them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from exirkit.ir import read_yaml
from exirkit.patterns import load_book, parse_book, rulebook_schema, rulebook_schema_text, shipped_books
from exirkit.patterns.books.model import made_text

HERE = Path(__file__).parents[1]
BOOKS = [*shipped_books(), str(HERE / "example_rules.yaml"), str(HERE / "sound_rules.yaml")]
WHOLE = """rulebook: 1
rules:
- id: it
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(x)
  replace: return aten.abs.default(x)
"""
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


def fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether a value is of a schema, for the keywords that this schema uses."""
    known = {
        "$ref", "anyOf", "type", "const", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "items",
        "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "default",
        "description", "title", "$defs", "$schema", "minItems", "maxItems", "prefixItems",
        "exclusiveMinimum",
    }  # fmt: skip
    assert schema.keys() <= known, schema.keys() - known
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema and not any(fits(value, one, root) for one in schema["anyOf"]):
        return False
    if "type" in schema and not isinstance(value, TYPES[schema["type"]]):
        return False
    if isinstance(value, bool) and schema.get("type") in ("integer", "number"):
        return False
    if ("const" in schema and value != schema["const"]) or value not in schema.get("enum", [value]):
        return False
    if isinstance(value, str):
        return (
            re.search(schema.get("pattern", ""), value) is not None
            and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 30)
        )  # fmt: skip
    if isinstance(value, list):
        length_fits = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        first = schema.get("prefixItems", [])
        kinds = [*first, *[schema.get("items", {})] * max(0, len(value) - len(first))]
        return length_fits and all(fits(one, kind, root) for one, kind in zip(value, kinds, strict=False))
    if isinstance(value, dict):
        return fits_object(value, schema, root)
    if value is not None and value <= schema.get("exclusiveMinimum", float("-inf")):
        return False
    return "minimum" not in schema or schema["minimum"] <= value <= schema.get("maximum", value)


def fits_object(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> bool:
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    if any(key not in value for key in schema.get("required", ())):
        return False
    for key, one in value.items():
        if not fits(key, schema.get("propertyNames", {}), root):
            return False
        found = [properties[key]] if key in properties else []
        found += [each for pattern, each in patterns.items() if re.search(pattern, key)]
        rest = schema.get("additionalProperties", True)
        if not found and rest is not True:
            found = [rest] if isinstance(rest, dict) else []
            if not found:
                return False
        if not all(fits(one, each, root) for each in found):
            return False
    return True


def test_the_file_is_what_the_models_make() -> None:
    made = made_text()
    assert rulebook_schema_text() == made, "write made_text() to patterns/rulebook.schema.json"
    assert json.loads(made) == rulebook_schema()


@pytest.mark.parametrize("book", BOOKS)
def test_books_fit(book: str) -> None:
    source = load_book(book).source
    assert source is not None
    assert fits(source.data, rulebook_schema(), rulebook_schema())


@pytest.mark.parametrize(
    "change",
    [
        ("rulebook: 1", "rulebook: 2"),
        ("  match:", "  matches:"),
        ("- id: it", "- id: 7"),
        ("  replace:", "  where: {exp: a}\n  replace:"),
        ("  replace:", "  where: [{expr: a, kind: sonud}]\n  replace:"),
        ("  replace:", "  dialect: eedge\n  replace:"),
        ("  replace:", "  measure: {bound: 0}\n  replace:"),
        ("  replace:", "  priority: high\n  replace:"),
        ("{x:", "{0x:"),
        ("  match: return aten.neg.default(x)\n", ""),
    ],
)
def test_what_the_models_reject_does_not_fit(change: tuple[str, str]) -> None:
    text = WHOLE.replace(*change)
    assert text != WHOLE
    assert parse_book(text).book is None
    assert not fits(read_yaml(text, "book").data, rulebook_schema(), rulebook_schema())


@pytest.mark.parametrize(
    "more",
    [
        "  where: rank(x) == 2\n",
        '  where: ["rank(x) == 2", {expr: "rank(x) == 2", why: so}]\n',
        "  where: {expr: rank(x) == 2, kind: profit}\n",
        "  unless: return aten.neg.default(aten.neg.default(x))\n",
        "  dialect: edge\n",
        "  dialect: {from: aten, to: edge}\n",
        "  tags: one\n",
        "  equiv: {rtol: {f16: 0.1}, atol: 1.0e-3}\n",
    ],
)
def test_short_and_long_forms_fit(more: str) -> None:
    text = WHOLE + more
    assert parse_book(text).book is not None
    assert fits(read_yaml(text, "book").data, rulebook_schema(), rulebook_schema())


def test_fields_are_described() -> None:
    rule = rulebook_schema()["$defs"]["Rule"]
    assert rule["description"] == "One rewrite."
    assert rule["properties"]["match"]["description"].startswith("Pattern: a program that ends")
    assert "schema_" not in rulebook_schema()["$defs"]["OperatorDefinition"]["properties"]

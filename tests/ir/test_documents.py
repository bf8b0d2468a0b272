"""Reading YAML with places: both parsers say the same, and neither falls over what is too deep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from exirkit.ir import DocumentCodes, ModelError, YamlError, document_schema, read_document, read_yaml
from exirkit.ir import documents as reader

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(ROOT.glob("patterns/**/*.yaml")) + sorted(ROOT.glob("passes/**/*.yaml"))
ODD = [
    "a: [",
    "a: 1\na: 2",
    "&x a",
    "é: [ü, 'ñ",
    "a:\tb",
    "a: |\n  x\n  y\nb: >-\n z",
    "{a: {b: [1, 'x']}}",
    "--- 1\n--- 2",
    "\x07",
]


def read(text: str) -> Any:
    try:
        source = read_yaml(text, "file")
    except YamlError as error:
        return error.message, error.line, error.column
    places = {**source.places, **{("key", *path): node for path, node in source.keys.items()}}
    marks = {path: (node.tag, node.start_mark.line, node.start_mark.column) for path, node in places.items()}
    texts = {path: (source.text(path).location(), source.text(path).value) for path in source.places}
    return source.data, marks, texts


@pytest.mark.parametrize("text", [*(file.read_text() for file in SHIPPED), *ODD])
def test_both_parsers_say_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(reader, "_FAST", yaml.CSafeLoader)
    fast = read(text)
    monkeypatch.setattr(reader, "_FAST", None)
    assert read(text) == fast


@pytest.mark.parametrize("text", ["[" * 50_000, "- " * 50_000, "{a: " * 50_000, "[" * 40 + "]" * 40])
def test_what_nests_too_deeply_is_rejected(text: str) -> None:
    with pytest.raises(YamlError, match="nests too deeply"):
        read_yaml(text, "file")


class Inner(BaseModel):
    """A part.

    Attributes:
        size: How large.
    """

    model_config = ConfigDict(extra="forbid")

    size: int = Field(alias="from")


class Outer(BaseModel):
    """The whole."""

    model_config = ConfigDict(extra="forbid")

    parts: tuple[Inner, ...] = Field(min_length=1)


CODES = DocumentCodes(syntax="EK201", form="EK202")


def test_a_document_has_its_model_and_its_places() -> None:
    document = read_document("parts:\n- {from: 3}\n", Outer, CODES, file="f")
    assert document.model.parts[0].size == 3
    assert document.source.text(("parts", 0, "from")).location().line == 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("parts: [{from: x}, {form: 1}]", ["EK202 1:16 input should be", "EK202 1:20 missing key 'from'",
                                           "EK202 1:21 unknown key 'form'"]),
        ("parts: []", ["EK202 1:8 the list 'parts' is empty"]),
        ("parts: [", ["EK201 1:9 expected the node content"]),
        ("# " + "x" * (1 << 20), ["EK201 None:None the file has more than 1 Mi characters"]),
    ],
)  # fmt: skip
def test_everything_wrong_is_reported_with_its_place(text: str, found: list[str]) -> None:
    with pytest.raises(ModelError) as raised:
        read_document(text, Outer, CODES)
    shown = [f"{one.code} {one.location.line}:{one.location.column} {one.message}" for one in raised.value.diagnostics]
    assert len(shown) == len(found)
    for one, start in zip(shown, found, strict=True):
        assert one.startswith(start), one
    if "form" in text:
        assert raised.value.diagnostics[-1].hint == "did you mean from?"


def test_schemas_describe_every_field() -> None:
    schema = document_schema(Outer, "Things")
    assert schema["title"] == "Things"
    assert schema["$defs"]["Inner"]["properties"]["from"]["description"] == "How large."

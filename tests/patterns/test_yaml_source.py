"""Reading YAML with places: both parsers say the same, and neither falls over what is too deep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from exirkit.patterns import YamlError, read_yaml
from exirkit.patterns.syntax import yaml_source as reader

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
def test_what_nests_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(YamlError, match="nests too deeply"):
        read_yaml(text, "file")

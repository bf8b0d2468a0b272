"""Every code that the readers and writers of files raise is explained, and nothing else is."""

from __future__ import annotations

import re
from importlib.resources import files

import yaml

EMIT = files("exirkit.emit")


def test_codes_and_explanations_match() -> None:
    sources = "".join(file.read_text() for file in EMIT.iterdir() if file.name.endswith(".py"))
    explained = yaml.safe_load((EMIT / "codes.yaml").read_text())
    of_files = {code for code in explained if code < "EK550"}
    assert set(re.findall(r'"(EK5[0-4]\d)"', sources)) == of_files
    for code in of_files:
        assert set(explained[code]) == {"title", "text"}
        assert not explained[code]["title"].endswith(".")

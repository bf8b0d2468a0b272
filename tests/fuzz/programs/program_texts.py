"""Programs as text that tests share: `texts/NAME.txt`, each shows what it is named after."""

from __future__ import annotations

from pathlib import Path

HEAD = "program(1)\n"

TEXTS = {file.stem: file.read_text() for file in sorted(Path(__file__).with_name("texts").glob("*.txt"))}

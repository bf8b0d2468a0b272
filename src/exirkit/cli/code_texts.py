"""The long texts of diagnostic codes, read as data: the rooms that raise them are not imported."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

import yaml

from .failures import CommandError
from .reports import CodeReport

FILE_NAME = "codes.yaml"


def read_code_texts() -> dict[str, CodeReport]:
    """Return what every code means, in the order of the codes."""
    package = files("exirkit")
    sources = [package, *sorted((each for each in package.iterdir() if each.is_dir()), key=lambda each: each.name)]
    found = [text for source in sources for text in _read(source.joinpath(FILE_NAME))]
    return {text.code: text for text in sorted(found, key=lambda text: text.code)}


def code_text(code: str) -> CodeReport:
    """Return what one code means.

    Args:
        code: `EK341`; lower case and the digits alone will do.

    Raises:
        CommandError: EK719, there is no such code.
    """
    texts = read_code_texts()
    wanted = code.strip().upper()
    wanted = wanted if wanted.startswith("EK") else f"EK{wanted}"
    if wanted not in texts:
        raise CommandError(
            code="EK719",
            message=f"there is no diagnostic code {code!r}",
            hint="`exirkit explain` lists all",
            exit_code=2,
        )
    return texts[wanted]


def _read(file: Traversable) -> list[CodeReport]:
    if not file.is_file():
        return []
    entries = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    return [CodeReport(code=code, title=entry["title"], text=entry["text"].strip()) for code, entry in entries.items()]

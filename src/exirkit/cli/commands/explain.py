"""`exirkit explain`: the long texts of diagnostic codes, read as data: the rooms that raise them are not imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Any

import typer

from exirkit.cli.console import print_json, print_line, print_table, print_text
from exirkit.cli.errors import WRONG_USAGE, CommandError
from exirkit.cli.options import Json
from exirkit.cli.root import app

_FILE_NAME = "codes.yaml"


@dataclass(frozen=True)
class CodeText:
    """One diagnostic code and what it means."""

    code: str
    title: str
    text: str


@dataclass(frozen=True)
class ExplainReport:
    """The document of `exirkit explain`: the code asked for, or all codes."""

    codes: list[CodeText]
    ok: bool = True


@app.command()
def explain(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", show_default=False)] = None, json: Json = False
) -> None:
    """Explain a diagnostic code such as EK101; without one, list all."""
    codes = [code_text(code)] if code is not None else list(read_code_texts().values())
    if json:
        print_json(ExplainReport(codes))
    elif code is None:
        print_table(["code", "title"], [(each.code, each.title) for each in codes])
    else:
        print_line(f"{codes[0].code}: {codes[0].title}")
        print_line()
        print_text(codes[0].text)


def read_code_texts() -> dict[str, CodeText]:
    """Return what every code means, in the order of the codes."""
    found = [
        CodeText(code, one["title"], one["text"].strip())
        for file in _files()
        for code, one in _entries(file.read_text(encoding="utf-8"))
    ]
    return {text.code: text for text in sorted(found, key=lambda text: text.code)}


def code_text(code: str) -> CodeText:
    """Return what one code means.

    Args:
        code: `EK341`; lower case and the digits alone will do.

    Raises:
        CommandError: EK719, there is no such code.
    """
    wanted = code.strip().upper()
    wanted = wanted if wanted.startswith("EK") else f"EK{wanted}"
    for file in _files():
        # The entry alone is parsed: the files are long, and PyYAML is slow.
        found = re.search(rf"^{re.escape(wanted)}:\n(?:[ \n].*\n?)*", file.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            entry = dict(_entries(found[0]))[wanted]
            return CodeText(wanted, entry["title"], entry["text"].strip())
    raise CommandError(
        code="EK719",
        message=f"there is no diagnostic code {code!r}",
        hint="`exirkit explain` lists all",
        exit_code=WRONG_USAGE,
    )


def _files() -> list[Traversable]:
    package = files("exirkit")
    folders = [package, *sorted((each for each in package.iterdir() if each.is_dir()), key=lambda each: each.name)]
    return [file for folder in folders if (file := folder.joinpath(_FILE_NAME)).is_file()]


def _entries(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    import yaml

    # A safe loader, in C where PyYAML was built with it.
    entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
    yield from entries.items()

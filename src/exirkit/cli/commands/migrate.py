"""`exirkit migrate`: imports of `executorch.exir` become imports of `exirkit.exir`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import counted, print_json, print_line, print_text
from exirkit.cli.errors import usage_error
from exirkit.cli.files import write_whole
from exirkit.cli.options import Json
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.exir import Migration

_SKIPPED = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class MissingName:
    """A name that is mentioned and has no counterpart.

    Attributes:
        file: The file.
        line: Its line, counted from 1.
        name: The name in full.
        why: Why there is none, and what to use instead; empty if nothing is known of it.
    """

    file: str
    line: int
    name: str
    why: str


@dataclass(frozen=True)
class MigrateReport:
    """The document of `exirkit migrate`.

    Attributes:
        files: How many files were read.
        changed: Paths of those whose imports change.
        missing: What they name that has no counterpart.
        notes: What was left as it is although it may have to change: `file:line: what`.
        unread: Files that are not Python, with the reason.
        written: Whether the changes were written.
    """

    files: int
    changed: list[str]
    missing: list[MissingName]
    notes: list[str]
    unread: list[str]
    written: bool
    ok: bool = True


@app.command()
def migrate(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with Python code, or a file.")],
    write: Annotated[bool, typer.Option("--write", help="Change the files; otherwise they are only read.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print the changes.")] = False,
    renames: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OLD=NEW", help="Another prefix of names of modules to rewrite; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Rewrite imports of `executorch.exir` to `exirkit.exir`, and list what has no counterpart.

    Nothing but names of modules changes: comments, layout and line ends stay. Without `--write`, no file is changed.
    """
    # The table of names is read with the package: no other command needs it.
    from exirkit.exir import TO_EXIRKIT, migrate_source

    if not folder.exists():
        raise usage_error("there is no such file or folder", file=str(folder))
    prefixes = {**TO_EXIRKIT, **dict(_rename(one) for one in renames or ())}
    found: list[tuple[Path, Migration]] = []
    unread: list[str] = []
    for path in python_files(folder):
        try:
            found.append((path, migrate_source(path.read_bytes(), prefixes)))
        except (SyntaxError, ValueError) as error:
            unread.append(f"{path}: {error}")
    if write:
        _write([(path, one) for path, one in found if one.is_changed])
    report = _report(found, unread, write)
    if json:
        print_json(report)
        return
    if diff:
        for path, one in found:
            print_text(_diff(path, one))
    _print(report)


def python_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files in a folder and below, in order; hidden folders and links are left out.

    Args:
        folder: The folder; a file stands for itself.
    """
    if folder.is_file():
        yield folder
        return
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for name in sorted(files):
            path = Path(root, name)
            if path.suffix in (".py", ".pyi") and not path.is_symlink():
                yield path


def _rename(given: str) -> tuple[str, str]:
    old, _, new = given.partition("=")
    if not all(part.isidentifier() for name in (old, new) for part in name.split(".")):
        raise usage_error(
            f"--map {given}", hint="write --map OLD=NEW, both names of modules: --map their.backends=mine"
        )
    return old, new


def _write(changes: Sequence[tuple[Path, Migration]]) -> None:
    for path, one in changes:
        mode = path.stat().st_mode
        text = one.after
        write_whole(path, lambda file, text=text: file.write(text))  # type: ignore[misc]
        path.chmod(mode)


def _report(found: Sequence[tuple[Path, Migration]], unread: list[str], written: bool) -> MigrateReport:
    from exirkit.exir import Absence, counterpart

    missing = []
    for path, one in found:
        for mention in one.missing:
            absence = counterpart(mention)
            why = f"{absence.reason}; {absence.instead}" if isinstance(absence, Absence) else ""
            missing.append(MissingName(str(path), mention.line, mention.qualified, why))
    return MigrateReport(
        files=len(found),
        changed=[str(path) for path, one in found if one.is_changed],
        missing=missing,
        notes=[f"{path}:{line}: {note}" for path, one in found for line, note in one.notes],
        unread=unread,
        written=written,
    )


def _diff(path: Path, one: Migration) -> str:
    before, after = (text.decode(errors="replace").splitlines(keepends=True) for text in (one.before, one.after))
    return "".join(difflib.unified_diff(before, after, str(path), str(path)))


def _print(report: MigrateReport) -> None:
    for one in report.missing:
        print_line(f"{one.file}:{one.line}: {one.name} has no counterpart{f': {one.why}' if one.why else ''}")
    for line in [*report.notes, *(f"not read: {one}" for one in report.unread)]:
        print_line(line)
    changed = counted(len(report.changed), "file")
    what = "changed" if report.written else "would change; `--write` changes them, `--diff` shows how"
    print_line(f"{counted(report.files, 'file')} read, {changed} {what}")
    print_line(f"{counted(len(report.missing), 'name')} without a counterpart")

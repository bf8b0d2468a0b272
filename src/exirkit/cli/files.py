"""Files that options name: outputs, checked before the work begins and written completely or not at all; rule books."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from .errors import WRONG_USAGE, CommandError, usage_error


def check_writable(path: Path | None, suffix: str) -> None:
    """Reject a file that could not be written at the end of the work.

    Raises:
        CommandError: EK712, the path does not end in `suffix`, is a directory, or is in no directory.
    """
    if path is None:
        return
    if path.suffix != suffix:
        raise CommandError(
            code="EK712",
            message=f"the name of this file has to end in {suffix}",
            file=str(path),
            hint=f"write to {path.with_suffix(suffix)}" if path.name else None,
            exit_code=WRONG_USAGE,
        )
    if path.is_dir():
        raise CommandError(code="EK712", message="is a directory", file=str(path))
    if not path.parent.is_dir():
        raise CommandError(code="EK712", message="there is no such directory", file=str(path.parent))
    if not os.access(path.parent, os.W_OK):
        raise CommandError(code="EK712", message="the directory cannot be written to", file=str(path.parent))


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that at every time there is the old file, or none, or the whole new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file as `write_whole` does."""
    write_whole(path, lambda file: file.write(text.encode()))


def expand_books(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return names of rule books; a directory is replaced by the sorted rule books in it and below it.

    A name of a shipped book means that book, even where there is a directory of that name; `backends`, where there is
    none, means the books of all backends. YAML files that are not rule books, such as pipelines, are left out.

    Raises:
        CommandError: EK711, there is no rule book in a directory, or a backend's book is named without `backends/`.
        OSError: A directory cannot be read.
    """
    from exirkit.patterns import backend_books, is_shipped

    found: list[str] = []
    for name in names or ():
        folder = Path(name)
        if is_shipped(name) or (folder.exists() and not folder.is_dir()):
            found.append(name)
            continue
        if not folder.exists():
            found += backend_books() if name == "backends" else (_not_short(name),)
            continue
        books = sorted(str(one) for one in folder.rglob("*") if one.suffix in (".yaml", ".yml") and _is_book(one))
        if not books:
            hint = "a rule book is a .yaml file with the key `rulebook`"
            raise usage_error("there is no rule book in this directory", file=name, hint=hint)
        found += books
    return tuple(found)


def _not_short(name: str) -> str:
    """Return the name of a book, unless it is the last part of the name of a backend's book."""
    from exirkit.patterns import backend_books

    full = f"backends/{name}"
    if full in backend_books():
        raise usage_error("there is no such file, and no general rule book of this name", file=name, hint=f"say {full}")
    return name


def _is_book(path: Path) -> bool:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return False
    return any(line.startswith("rulebook:") for line in lines)

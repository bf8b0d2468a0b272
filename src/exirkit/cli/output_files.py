"""Files that commands write: looked at before the work begins, and written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from .failures import WRONG_USAGE, CommandError


def check_writable(path: Path, suffix: str) -> None:
    """Refuse a file that could not be written at the end of the work.

    Raises:
        CommandError: EK712, the path does not end in `suffix`, is a directory, or is in no directory.
    """
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

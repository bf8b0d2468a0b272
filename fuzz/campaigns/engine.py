"""Which compiler a campaign has tested: results of another one are not mixed with them."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import torch

_READ = (".py", ".yaml")


@functools.cache
def engine_text() -> str:
    """Return what names this version of exirkit: a digest of its sources, and the version of torch."""
    return f"exirkit {source_digest(Path(__file__).parents[2])}, torch {torch.__version__}"


def source_digest(package: Path) -> str:
    """Return 12 digits that change with any source file of a package.

    Git is not asked: sources may be changed, or installed, without it.
    """
    digest = hashlib.blake2b(digest_size=6)
    files = []
    for directory, folders, names in os.walk(package, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        files += [Path(directory, name) for name in sorted(names) if name.endswith(_READ)]
    for file in files:
        digest.update(f"{file.relative_to(package).as_posix()}\0".encode())
        digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()

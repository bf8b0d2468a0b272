"""Archives of `torch.export.save`: tensors stay in the file until something reads them, and nothing is unpickled."""

from __future__ import annotations

import mmap
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .torch_internals import fields_known_once, payloads_from

_HEADER_NBYTES: Final = 30
_HEADER_MAGIC: Final = b"PK\x03\x04"
_WEIGHTS_ONLY: Final = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


@contextmanager
def mapped_archive(path: str | os.PathLike[str]) -> Iterator[None]:
    """Map the tensors of an archive that torch loads inside the block, and do not read them.

    What is compressed is read as ever, and so is everything if the file is not an archive; what is wrong with it,
    torch says. Writing to a tensor changes the memory of this process alone.

    Where torch would unpickle any object, so that the author of the file decides what is run, it raises an error.
    """
    try:
        records = _records(path)
    except (OSError, zipfile.BadZipFile):
        records = {}
    with payloads_from(records), fields_known_once(), _weights_only():
        yield


@contextmanager
def _weights_only() -> Iterator[None]:
    """Let `torch.load` read nothing but tensors and plain data, whatever its callers in torch ask for."""
    before = os.environ.get(_WEIGHTS_ONLY)
    os.environ[_WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_WEIGHTS_ONLY]
        else:
            os.environ[_WEIGHTS_ONLY] = before


def _records(path: str | os.PathLike[str]) -> dict[str, memoryview]:
    """Return where records that are stored as they are lie in a mapped archive, by name."""
    found: dict[str, memoryview] = {}
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        for entry in archive.infolist():
            start = entry.header_offset
            header = bytes(whole[start : start + _HEADER_NBYTES])
            is_stored = entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size
            if not is_stored or len(header) < _HEADER_NBYTES or not header.startswith(_HEADER_MAGIC):
                continue
            start += _HEADER_NBYTES + sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
            # In an archive, names begin with that of a folder, which torch leaves out.
            name = entry.filename.partition("/")[2]
            if entry.file_size and start + entry.file_size <= len(whole) and name not in found:
                found[name] = whole[start : start + entry.file_size]
    return found

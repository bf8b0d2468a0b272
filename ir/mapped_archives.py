"""Archives of `torch.export.save` whose tensors stay in the file until something reads them."""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Final

from .torch_internals import payloads_from

_HEADER_NBYTES: Final = 30
_HEADER_MAGIC: Final = b"PK\x03\x04"


@contextmanager
def mapped_archive(path: str | PathLike[str]) -> Iterator[None]:
    """Map the tensors of an archive that torch loads inside the block, and do not read them.

    What is compressed is read as ever, and so is everything if the file is not an archive; what is wrong with it,
    torch says. Writing to a tensor changes the memory of this process alone.
    """
    try:
        records = _records(path)
    except (OSError, zipfile.BadZipFile):
        records = {}
    with payloads_from(records):
        yield


def _records(path: str | PathLike[str]) -> dict[str, memoryview]:
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

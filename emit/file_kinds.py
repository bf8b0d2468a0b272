"""The kinds of files of the ecosystem, told by their first bytes."""

from __future__ import annotations

from enum import Enum
from typing import Final


class FileKind(Enum):
    """What a file is, as a noun with its article."""

    PROGRAM = "a program (.pte)"
    TENSOR_DATA = "a tensor data file (.ptd)"
    BUNDLED_PROGRAM = "a bundled program (.bpte)"
    TRACE = "an execution trace (.etdp)"
    ARCHIVE = "a zip archive, as torch.save, torch.export.save and ETRecord.save write"


_IDENTIFIERS: Final = {
    b"ET": FileKind.PROGRAM,
    b"FT": FileKind.TENSOR_DATA,
    b"BP": FileKind.BUNDLED_PROGRAM,
    b"ED": FileKind.TRACE,
}
# Of an execution trace the size comes first, so that its identifier is further on.
_PLACES: Final = {FileKind.TRACE: 8}
_PLACE: Final = 4


def file_kind(data: memoryview | bytes) -> FileKind | None:
    """Return the kind of a file of any version, or None for one that is not known here."""
    if bytes(data[:4]) == b"PK\x03\x04":
        return FileKind.ARCHIVE
    for kind, place in ((FileKind.TRACE, 8), (None, _PLACE)):
        identifier = bytes(data[place : place + 4])
        found = _IDENTIFIERS.get(identifier[:2]) if identifier[2:].isdigit() and len(identifier) == 4 else None
        if found is not None and (kind is None or found is kind) and _PLACES.get(found, _PLACE) == place:
            return found
    return None


def not_of_kind(data: memoryview | bytes, wanted: str) -> str:
    """Return the message about a file that is not what is wanted: `the file is a zip archive, not a program`."""
    kind = file_kind(data)
    if kind is not None:
        return f"the file is {kind.value}, not {wanted}"
    return f"the file is not {wanted}: it has {bytes(data[_PLACE : _PLACE + 4])!r}"

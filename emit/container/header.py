"""The first bytes of a program file: identifier, and the extended header that says where the segments are."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from exirkit.emit.errors import ProgramFormatError
from exirkit.emit.flatbuffer import PREFIX_NBYTES
from exirkit.emit.schema import IDENTIFIER
from exirkit.ir import Diagnostic, Location

HEADER_NBYTES: Final = 32
# Headers without the last field, the size of the segments, are older but legal.
MINIMUM_HEADER_NBYTES: Final = 24

_MAGIC: Final = b"eh00"
_HEADER: Final = Struct("<4sIQQQ")
_LENGTH: Final = Struct("<I")
_OLD_FIELDS: Final = Struct("<QQ")
_NEW_FIELD: Final = Struct("<Q")

_OTHER_FORMATS: Final = {
    b"FT01": "a tensor data file (.ptd)",
    b"BP08": "a bundled program (.bpte)",
    b"ED00": "an execution trace (.etdp)",
}


@dataclass(frozen=True)
class ExtendedHeader:
    """Where program and segments are in the file, in bytes.

    Attributes:
        program_size: Size of the flatbuffer, counted from the start of the file, so this header included.
        segment_base_offset: Where the segments start in the file; 0 if there are none.
        segment_data_size: Size of all segments with the padding between them; `None` in files that do not say.
    """

    program_size: int
    segment_base_offset: int
    segment_data_size: int | None

    def pack(self, nbytes: int) -> bytes:
        """Return the header, padded with zeros to `nbytes` bytes."""
        header = _HEADER.pack(
            _MAGIC, HEADER_NBYTES, self.program_size, self.segment_base_offset, self.segment_data_size or 0
        )
        return header.ljust(nbytes, b"\0")


def check_identifier(data: memoryview) -> None:
    """Reject a file that is not a program of the version that this library knows.

    Raises:
        ProgramFormatError: EK504 if the file is too short, EK503 for another version, EK502 for other files.
    """
    if len(data) < PREFIX_NBYTES:
        message = f"a file of {len(data)} bytes is too short to be a program"
        raise _malformed("EK504", message, 0, f"at least {PREFIX_NBYTES} bytes")
    identifier = bytes(data[4:8])
    if identifier == IDENTIFIER:
        return
    expected = IDENTIFIER.decode()
    if identifier[:2] == b"ET" and identifier[2:].isdigit():
        message = f"the file is a program of version {identifier.decode()}"
        raise _malformed("EK503", message, 4, expected, "export the model again with a matching version")
    what = _OTHER_FORMATS.get(identifier)
    if bytes(data[:4]) == b"PK\x03\x04":
        what = "a zip archive, as torch.save and torch.export.save write"
    message = f"the file is {what}, not a program" if what else f"the file is not a program: it has {identifier!r}"
    raise _malformed("EK502", message, 4, expected)


def read_header(data: memoryview) -> ExtendedHeader | None:
    """Return the extended header of a file that has one.

    Raises:
        ProgramFormatError: EK505 if its sizes do not fit each other or the file.
    """
    if bytes(data[PREFIX_NBYTES : PREFIX_NBYTES + 4]) != _MAGIC:
        return None
    if len(data) < PREFIX_NBYTES + MINIMUM_HEADER_NBYTES:
        raise _malformed("EK505", "the file ends inside its extended header", len(data))
    (length,) = _LENGTH.unpack_from(data, PREFIX_NBYTES + 4)
    if length < MINIMUM_HEADER_NBYTES or PREFIX_NBYTES + length > len(data):
        message = f"the extended header gives itself {length} bytes"
        expected = f"{MINIMUM_HEADER_NBYTES} to {len(data) - PREFIX_NBYTES}"
        raise _malformed("EK505", message, PREFIX_NBYTES + 4, expected)
    program_size, base = _OLD_FIELDS.unpack_from(data, PREFIX_NBYTES + 8)
    size = _NEW_FIELD.unpack_from(data, PREFIX_NBYTES + 24)[0] if length >= HEADER_NBYTES else None
    header = ExtendedHeader(program_size, base, size)
    _check_header(header, length, len(data))
    return header


def _check_header(header: ExtendedHeader, length: int, file_nbytes: int) -> None:
    first = PREFIX_NBYTES + length
    if not first <= header.program_size <= file_nbytes:
        message = f"the extended header gives the program {header.program_size} bytes"
        raise _malformed("EK505", message, PREFIX_NBYTES + 8, f"{first} to {file_nbytes}")
    base = header.segment_base_offset
    if base and not header.program_size <= base <= file_nbytes:
        message = f"the extended header places the segments at byte {base}"
        raise _malformed("EK505", message, PREFIX_NBYTES + 16, f"{header.program_size} to {file_nbytes}, or 0")
    if header.segment_data_size is not None and base + header.segment_data_size > file_nbytes:
        message = f"the extended header gives the segments {header.segment_data_size} bytes"
        expected = f"at most {file_nbytes - base}: the file may be cut short"
        raise _malformed("EK505", message, PREFIX_NBYTES + 24, expected)


def _malformed(
    code: str, message: str, offset: int, expected: str | None = None, hint: str | None = None
) -> ProgramFormatError:
    where = Location(node="header", offset_bytes=offset)
    return ProgramFormatError(Diagnostic(code=code, message=message, location=where, expected=expected, hint=hint))

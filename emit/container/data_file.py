"""Data files (`.ptd`): data that delegates find by a key and that does not lie in the program file.

    root offset, identifier FT01 | header | flatbuffer | padding | segment 0 | padding | segment 1 | ...

The flatbuffer names the segments: `FlatTensor {version, segments: [DataSegment], named_data: [NamedData]}` with
`DataSegment {offset, size}` and `NamedData {key, segment_index, tensor_layout}`. Delegates read bytes, so that no entry
has a tensor layout.

Source: the flat tensor schema of ExecuTorch, file identifier `FT01`, version 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from exirkit.emit.flatbuffer import Table, UInt32, encode
from exirkit.emit.schema import FORCE_ALIGN_BYTES, DataSegment, NamedData

from .writer import SEGMENT_ALIGNMENT, NamedBlob, align_up

_IDENTIFIER: Final = b"FT01"
# Magic, length of the header, offset and size of the flatbuffer, offset and size of the segments.
_HEADER: Final = Struct("<4sIQQQQ")
_HEADER_NBYTES: Final = 48


class FlatTensor(Table):
    """The flatbuffer of a data file; offsets of segments count from the first."""

    version: UInt32 = 0
    segments: list[DataSegment]
    named_data: list[NamedData]


def data_file(entries: Mapping[str, NamedBlob], *, segment_alignment: int = SEGMENT_ALIGNMENT) -> bytes:
    """Return the bytes of a data file.

    Args:
        entries: Data by key, in the order in which it is written; equal data is written once.
        segment_alignment: Alignment of the data in bytes, a power of two; more where an entry asks for more.
    """
    numbers: dict[bytes, int] = {}
    chunks: list[bytes] = []
    segments: list[DataSegment] = []
    end = 0
    for blob in entries.values():
        data = bytes(blob.data)
        if data in numbers:
            continue
        numbers[data] = len(segments)
        # Both are powers of two.
        start = align_up(end, max(segment_alignment, blob.alignment))
        chunks += (bytes(start - end), data)
        segments.append(DataSegment(offset=start, size=len(data)))
        end = start + len(data)
    named = [NamedData(key=key, segment_index=numbers[bytes(blob.data)]) for key, blob in entries.items()]
    root = FlatTensor(segments=segments, named_data=named)
    encoded = encode(root, _IDENTIFIER, alignment=FORCE_ALIGN_BYTES, alignments={})
    nbytes = encoded.nbytes(_HEADER_NBYTES)
    base = align_up(nbytes, segment_alignment)
    header = _HEADER.pack(b"FH01", _HEADER.size, _HEADER_NBYTES, nbytes - _HEADER_NBYTES, base, end)
    table = b"".join(encoded.chunks(header.ljust(_HEADER_NBYTES, b"\0")))
    return table.ljust(base, b"\0") + b"".join(chunks)

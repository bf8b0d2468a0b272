"""Data files (`.ptd`): data that delegates find by a key and that does not lie in the program file.

    root offset, identifier FT01 | header | flatbuffer | padding | segment 0 | padding | segment 1 | ...

The flatbuffer names the segments: `FlatTensor {version, segments: [DataSegment], named_data: [NamedData]}` with
`DataSegment {offset, size}` and `NamedData {key, segment_index, tensor_layout}`. Delegates read bytes, so that no entry
has a tensor layout.

Source: the flat tensor schema of ExecuTorch, file identifier `FT01`, version 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

import flatbuffers

from .writer import SEGMENT_ALIGNMENT, NamedBlob, align_up

_IDENTIFIER: Final = b"FT01"
_VERSION: Final = 0
# Root offset and identifier come before the header.
_PREFIX_NBYTES: Final = 8
# Magic, length of the header, offset and size of the flatbuffer, offset and size of the segments.
_HEADER: Final = Struct("<4sIQQQQ")
_HEADER_NBYTES: Final = 48
_ROOT: Final = Struct("<I")


def data_file(entries: Mapping[str, NamedBlob], *, segment_alignment: int = SEGMENT_ALIGNMENT) -> bytes:
    """Return the bytes of a data file.

    Args:
        entries: Data by key, in the order in which it is written; equal data is written once.
        segment_alignment: Alignment of the data in bytes, a power of two; more where an entry asks for more.
    """
    segments: list[bytes] = []
    numbers: dict[bytes, int] = {}
    extents: list[tuple[int, int]] = []
    end = 0
    for blob in entries.values():
        data = bytes(blob.data)
        if data in numbers:
            continue
        numbers[data] = len(extents)
        # Both are powers of two.
        start = align_up(end, max(segment_alignment, blob.alignment))
        segments += (bytes(start - end), data)
        extents.append((start, len(data)))
        end = start + len(data)
    table = _table(extents, {key: numbers[bytes(blob.data)] for key, blob in entries.items()})
    base = align_up(_HEADER_NBYTES + len(table), segment_alignment)
    header = _HEADER.pack(b"FH01", _HEADER.size, _HEADER_NBYTES, len(table), base, end).ljust(_HEADER_NBYTES, b"\0")
    # The header stands within the flatbuffer, behind the root offset, which grows by it.
    (root,) = _ROOT.unpack_from(table)
    prefix = _ROOT.pack(root + _HEADER_NBYTES) + _IDENTIFIER
    return b"".join((prefix, header, table[_PREFIX_NBYTES:])).ljust(base, b"\0") + b"".join(segments)


def _table(extents: Sequence[tuple[int, int]], segment_by_key: Mapping[str, int]) -> bytes:
    """Return the flatbuffer; offsets of segments count from the first."""
    builder = flatbuffers.Builder(256)
    segments = []
    for offset, size in extents:
        builder.StartObject(2)
        builder.PrependUint64Slot(0, offset, 0)
        builder.PrependUint64Slot(1, size, 0)
        segments.append(builder.EndObject())
    named = []
    for key, segment in segment_by_key.items():
        name = builder.CreateString(key)
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUint32Slot(1, segment, 0)
        named.append(builder.EndObject())
    segment_vector, named_vector = (_vector(builder, one) for one in (segments, named))
    builder.StartObject(3)
    builder.PrependUint32Slot(0, _VERSION, 0)
    builder.PrependUOffsetTRelativeSlot(1, segment_vector, 0)
    builder.PrependUOffsetTRelativeSlot(2, named_vector, 0)
    builder.Finish(builder.EndObject(), _IDENTIFIER)
    return bytes(builder.Output())


def _vector(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())

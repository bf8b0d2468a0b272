"""Data files: what is put in is found by its key, at the alignment that was asked for.

That the official runtime reads them is tested with `upstream_suites`, whose delegates keep weights there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from flatbuffers import number_types
from flatbuffers.table import Table
from hypothesis import given, settings
from hypothesis import strategies as st

from exirkit.emit import NamedBlob, data_file

BLOBS = st.builds(NamedBlob, st.binary(max_size=300), st.sampled_from([1, 16, 256]))


def read(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Return the key, start and size of each entry."""
    magic, length, table_start, table_nbytes, base, nbytes = struct.unpack_from("<4sIQQQQ", data, 8)
    assert (data[4:8], magic, length, base + nbytes) == (b"FT01", b"FH01", 40, len(data))
    assert table_start + table_nbytes <= base
    root: Any = Table(data, struct.unpack_from("<I", data)[0])
    segments, named = (list(_tables(root, slot)) for slot in (1, 2))
    for one in named:
        segment = segments[one.GetSlot(6, 0, number_types.Uint32Flags)]
        offset, size = (segment.GetSlot(slot, 0, number_types.Uint64Flags) for slot in (4, 6))
        yield one.String(one.Pos + one.Offset(4)).decode(), base + offset, size


def _tables(table: Any, slot: int) -> Iterator[Any]:
    field = table.Offset(4 + 2 * slot)
    start = table.Vector(field)
    for index in range(table.VectorLen(field)):
        yield Table(table.Bytes, table.Indirect(start + 4 * index))


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=9), BLOBS, max_size=5), st.sampled_from([16, 128, 4096]))
def test_entries_are_found_by_key(entries: dict[str, NamedBlob], alignment: int) -> None:
    written = data_file(entries, segment_alignment=alignment)
    found = {key: (start, size) for key, start, size in read(written)}
    assert {key: written[start : start + size] for key, (start, size) in found.items()} == {
        key: bytes(blob.data) for key, blob in entries.items()
    }
    assert all(start % alignment == 0 for start, _ in found.values())
    # Equal data is stored once.
    assert len({start for start, size in found.values() if size}) == len(
        {bytes(one.data) for one in entries.values() if one.data}
    )

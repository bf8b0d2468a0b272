"""Data files: what is put in is found by its key, at the alignment that was asked for.

That the official runtime reads them is tested with `upstream_suites`, whose delegates keep weights there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import torch
from flatbuffers import number_types
from flatbuffers.table import Table
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime_ref.damage_campaign import damaged_fields

from exirkit.emit import DataFile, NamedBlob, ProgramFormatError, ScalarType, TensorLayout, data_file, read_data_file

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
    written = data_file(entries, segment_alignment=alignment).to_bytes()
    found = {key: (start, size) for key, start, size in read(written)}
    assert {key: written[start : start + size] for key, (start, size) in found.items()} == {
        key: bytes(blob.data) for key, blob in entries.items()
    }
    assert all(start % alignment == 0 for start, _ in found.values())
    # Equal data is stored once.
    assert len({start for start, size in found.values() if size}) == len(
        {bytes(one.data) for one in entries.values() if one.data}
    )


def tensor_blob(tensor: torch.Tensor) -> NamedBlob:
    order = tensor.dim_order()
    layout = TensorLayout(
        scalar_type=ScalarType.from_dtype(tensor.dtype), sizes=list(tensor.shape), dim_order=list(order)
    )
    dense = tensor.permute(order).contiguous().flatten()
    return NamedBlob(dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b"", 16, layout)


TENSORS = {
    "plain": torch.randn(3, 5),
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "empty": torch.empty(0, 7),
    "number": torch.tensor(3, dtype=torch.int64),
    "narrow": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "flags": torch.tensor([True, False, True]),
}


def test_tensors_come_back_as_they_were() -> None:
    read = read_data_file(data_file({key: tensor_blob(one) for key, one in TENSORS.items()}).to_bytes())
    assert read.keys == list(TENSORS)
    for key, tensor in TENSORS.items():
        assert torch.equal(read.tensor(key), tensor)
        assert read.tensor(key).dim_order() == tensor.dim_order()


def test_a_file_that_was_read_gives_the_same_file() -> None:
    blobs = {key: tensor_blob(one) for key, one in TENSORS.items()} | {"blob": NamedBlob(b"123", 4)}
    first = data_file(blobs).to_bytes()
    assert data_file(read_data_file(first).entries()).to_bytes() == first


def load(data: bytes) -> DataFile | None:
    """Read a damaged file; only the documented error may come."""
    try:
        read = read_data_file(data)
    except ProgramFormatError:
        return None
    for key in read.keys:
        layout = read.layout(key)
        if layout is not None and layout.scalar_type.is_plain:
            read.tensor(key)
    return read


def test_each_damaged_word_ends_with_a_file_or_with_the_documented_error() -> None:
    data = data_file({key: tensor_blob(one) for key, one in TENSORS.items()}).to_bytes()
    end = read_data_file(data).header.segment_base_offset
    loaded = 0
    for damaged in damaged_fields(data, end):
        loaded += load(bytes(damaged)) is not None
    # Values of segments, keys and padding may be anything.
    assert 0 < loaded < end
    assert all(load(data[:size]) is None for size in range(0, len(data), 7))

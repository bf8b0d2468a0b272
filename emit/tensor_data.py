"""Tensor data files (`.ptd`): tensors and blobs by key, beside a program.

    root offset, identifier FT01 | header | flatbuffer | padding | segment 0 | padding | segment 1 | ...

The flatbuffer says which segment holds what; keys with equal data share a segment. An entry without a layout is a blob
that only a backend can read.

Source: the flat tensor schema of ExecuTorch, file identifier `FT01`, version 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from struct import Struct
from typing import Final

import torch
from pydantic import Field

from exirkit.ir import Diagnostic, ModelError, UsageError

from .file_kinds import FileKind, file_kind, not_of_kind
from .flatbuffer import PREFIX_NBYTES, Fault, Table, UInt32, decode, encode
from .schema import FORCE_ALIGN_BYTES, DataSegment, ProgramFormatError
from .segments import (
    SEGMENT_ALIGNMENT,
    FileImage,
    NamedBlob,
    Segments,
    TensorLayout,
    align_up,
    broken,
    bytes_view,
    check_alignment,
    check_layout,
    check_reference,
    in_file,
    malformed,
    map_file,
    segment_views,
    stored_tensor,
)

_IDENTIFIER: Final = b"FT01"
_MAGIC: Final = b"FH01"
# Magic, length of the header, offset and size of the flatbuffer, offset and size of the segments.
_HEADER: Final = Struct("<4sIQQQQ")
_HEADER_NBYTES: Final = 48
_VERSION: Final = 0


class NamedTensorData(Table):
    """One entry: the segment that a key stands for, and how it is laid out if it is a tensor."""

    key: str
    segment_index: UInt32 = 0
    tensor_layout: TensorLayout | None = None


class FlatTensor(Table):
    """The flatbuffer of a data file; offsets of segments count from the first."""

    version: UInt32 = 0
    segments: list[DataSegment] = Field(default_factory=list)
    named_data: list[NamedTensorData] = Field(default_factory=list)


@dataclass(frozen=True)
class DataFileHeader:
    """Where flatbuffer and segments are, in bytes from the start of the file.

    Attributes:
        table_offset: Where the flatbuffer goes on behind the header.
        table_nbytes: How many bytes of it follow there, the 8 bytes of root offset and identifier counted as well.
        segment_base_offset: Where the first segment starts.
        segment_nbytes: Size of all segments with the padding between them.
    """

    table_offset: int
    table_nbytes: int
    segment_base_offset: int
    segment_nbytes: int


def data_file(entries: Mapping[str, NamedBlob], *, segment_alignment: int = SEGMENT_ALIGNMENT) -> FileImage:
    """Return a data file, ready to be written; nothing is copied.

    Args:
        entries: Data by key, in the order in which it is written; equal data is written once.
        segment_alignment: Alignment of the data in bytes, a power of two; more where an entry asks for more.

    Raises:
        UsageError: EK521, an alignment is not a power of two.
        ModelError: EK520, a value does not fit its field.
    """
    segments = Segments(check_alignment("segment_alignment", segment_alignment))
    numbers = segments.add_named(entries)
    root = FlatTensor(
        version=_VERSION,
        segments=segments.table,
        named_data=[
            NamedTensorData(key=key, segment_index=numbers[key], tensor_layout=blob.layout)
            for key, blob in entries.items()
        ],
    )
    encoded = encode(root, _IDENTIFIER, alignment=FORCE_ALIGN_BYTES, alignments={})
    nbytes = encoded.nbytes(_HEADER_NBYTES)
    base = align_up(nbytes, segments.alignment)
    header = _HEADER.pack(_MAGIC, _HEADER.size, _HEADER_NBYTES, nbytes - _HEADER_NBYTES, base, segments.nbytes)
    chunks = (*encoded.chunks(header.ljust(_HEADER_NBYTES, b"\0")), bytes(base - nbytes), *segments.chunks)
    return FileImage(base + segments.nbytes, chunks)


class DataFile:
    """A data file in memory or mapped from disk; nothing of its data is copied.

    Attributes:
        table: The flatbuffer as it stands in the file.
        header: Where its parts are.
        segments: The bytes of `table.segments`.
        path: The file, if it was opened by name.
    """

    def __init__(
        self, table: FlatTensor, header: DataFileHeader, segments: list[memoryview], path: str | None = None
    ) -> None:
        self.table = table
        self.header = header
        self.segments = segments
        self.path = path
        # The first of several entries with one key counts, as in the official runtime.
        self._entries = {entry.key: entry for entry in reversed(table.named_data)}

    def __contains__(self, key: object) -> bool:
        """Return whether there is an entry with this key."""
        return key in self._entries

    @property
    def keys(self) -> list[str]:
        """The keys, in the order of the file."""
        return list(dict.fromkeys(entry.key for entry in self.table.named_data))

    def data(self, key: str) -> memoryview:
        """Return the bytes of an entry (raises EK524 if there is none)."""
        return self.segments[self._entry(key).segment_index]

    def layout(self, key: str) -> TensorLayout | None:
        """Return how an entry is laid out, None for a blob (raises EK524 if there is none)."""
        return self._entry(key).tensor_layout

    def tensor(self, key: str) -> torch.Tensor:
        """Return a copy of a tensor.

        Raises:
            UsageError: EK524, there is no such entry; EK535, it is a blob, or torch cannot hold its elements.
        """
        layout = self.layout(key)
        if layout is None or not layout.scalar_type.is_plain:
            what = "a blob" if layout is None else f"a tensor of {layout.scalar_type.name}"
            raise UsageError(Diagnostic.of("EK535", f"{key!r} is {what}"))
        return stored_tensor(layout, self.data(key))

    def entries(self) -> dict[str, NamedBlob]:
        """Return the entries as `data_file` takes them; a file forgets what alignment they asked for."""
        return {key: NamedBlob(self.data(key), layout=self.layout(key)) for key in self.keys}

    def _entry(self, key: str) -> NamedTensorData:
        if key not in self._entries:
            message = f"the data file has no entry {key!r}"
            raise UsageError(Diagnostic.of("EK524", message, expected=f"one of {len(self._entries)} keys"))
        return self._entries[key]


def read_data_file(data: object, *, path: str | None = None) -> DataFile:
    """Read a data file that is in memory (bytes, bytearray, mmap or a memoryview), of which tensors stay views.

    Requires: `data` does not change as long as the result is in use.
    Ensures: every index, offset and layout fits the file.

    Raises:
        ProgramFormatError: EK506 to EK516, EK529 to EK532, saying what is wrong, at which byte and in which field.
        UsageError: EK521 if `data` is not contiguous bytes.
    """
    view = bytes_view(data)
    header = _read_header(view)
    try:
        # Offsets count from the start of the file: the header is a gap in the flatbuffer.
        table = decode(FlatTensor, view[: header.table_offset + header.table_nbytes], what="data file")
    except Fault as fault:
        raise ProgramFormatError(fault.diagnostic("data file")) from None
    if table.version != _VERSION:
        raise broken("EK531", f"the file is of version {table.version}", "version", str(_VERSION))
    end = header.segment_base_offset + header.segment_nbytes
    segments = segment_views(table.segments, view, header.segment_base_offset, end)
    for index, entry in enumerate(table.named_data):
        check_reference(entry.segment_index, len(segments), f"named_data[{index}].segment_index")
        if entry.tensor_layout is not None:
            check_layout(entry.tensor_layout, len(segments[entry.segment_index]), f"named_data[{index}].tensor_layout")
    return DataFile(table, header, segments, path)


def open_data_file(path: str | PathLike[str]) -> DataFile:
    """Map a data file into memory and read it; the mapping ends with the last view of it.

    Raises:
        ProgramFormatError: As `read_data_file`, with the path of the file.
        OSError: The file cannot be opened.
    """
    try:
        return read_data_file(map_file(path), path=str(path))
    except ModelError as error:
        raise in_file(error, path) from None


def _read_header(view: memoryview) -> DataFileHeader:
    if file_kind(view) is not FileKind.TENSOR_DATA:
        raise malformed("EK529", not_of_kind(view, "a tensor data file"), 4, _IDENTIFIER.decode())
    if bytes(view[4:8]) != _IDENTIFIER:
        message = f"the file is of version {bytes(view[4:8]).decode()}"
        raise malformed("EK531", message, 4, _IDENTIFIER.decode())
    if bytes(view[PREFIX_NBYTES : PREFIX_NBYTES + 4]) != _MAGIC or len(view) < PREFIX_NBYTES + _HEADER.size:
        expected = f"{_MAGIC.decode()} and {_HEADER.size - 4} more bytes"
        raise malformed("EK530", "the file has no complete header", PREFIX_NBYTES, expected)
    _, length, offset, nbytes, base, size = _HEADER.unpack_from(view, PREFIX_NBYTES)
    header = DataFileHeader(offset, nbytes, base, size)
    _check_header(header, length, len(view))
    return header


def _check_header(header: DataFileHeader, length: int, file_nbytes: int) -> None:
    if length < _HEADER.size or PREFIX_NBYTES + length > file_nbytes:
        message = f"the header gives itself {length} bytes"
        raise malformed("EK530", message, PREFIX_NBYTES + 4, f"at least {_HEADER.size}, inside the file")
    table_end = header.table_offset + header.table_nbytes
    if header.table_offset < length or table_end > file_nbytes:
        message = f"the header places the table at bytes {header.table_offset} to {table_end}"
        raise malformed("EK530", message, PREFIX_NBYTES + 8, f"{length} to {file_nbytes}")
    end = header.segment_base_offset + header.segment_nbytes
    # A file without data may give its base as 0.
    if end > file_nbytes or (header.segment_nbytes and header.segment_base_offset < table_end):
        message = f"the header places the segments at bytes {header.segment_base_offset} to {end}"
        raise malformed(
            "EK530", message, PREFIX_NBYTES + 24, f"{table_end} to {file_nbytes}: the file may be cut short"
        )

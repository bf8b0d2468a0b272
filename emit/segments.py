"""Files made of a flatbuffer and segments behind it: segments laid out one after another, and the bytes of the whole.

Nothing is copied: a file is a sequence of chunks, most of them views of the memory of their owner.
"""

from __future__ import annotations

import io
import mmap
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from errno import EISDIR
from math import lcm, prod
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final

import torch
from pydantic import Field

from exirkit.ir import Diagnostic, Location, ModelError, UsageError, stride_from_dim_order

from .flatbuffer import Chunk, Content, Int32, StreamedBytes, Table, UInt8, read_blob
from .schema import FORCE_ALIGN_BYTES, Buffer, DataSegment, ProgramFormatError, ScalarType, SubsegmentOffsets

SEGMENT_ALIGNMENT: Final = 128
# As many dimensions as the C++ runtime takes.
_MOST_DIMS: Final = 16
_MOST_ELEMENTS: Final = 2**59


class TensorLayout(Table):
    """How the elements of a stored tensor lie; `dim_order` runs from outermost to innermost."""

    scalar_type: ScalarType = ScalarType.BYTE
    sizes: list[Int32] = Field(default_factory=list)
    dim_order: list[UInt8] = Field(default_factory=list)


def check_layout(layout: TensorLayout, nbytes: int, where: str) -> None:
    """Reject a layout that is not one of a tensor with at most `nbytes` bytes of data (raises EK532)."""
    count = len(layout.sizes)
    if count > _MOST_DIMS or any(size < 0 for size in layout.sizes):
        message = (
            f"a tensor has the sizes {str(layout.sizes[:_MOST_DIMS])[:-1]}{', ...' if count > _MOST_DIMS else ''}]"
        )
        raise broken("EK532", message, f"{where}.sizes", f"at most {_MOST_DIMS} sizes of 0 or more")
    # Strides of a tensor without elements are computed as if its sizes of 0 were 1.
    if prod(max(size, 1) for size in layout.sizes) >= _MOST_ELEMENTS:
        raise broken("EK532", f"a tensor has the sizes {layout.sizes}", f"{where}.sizes", "strides within 64 bits")
    if sorted(layout.dim_order) != list(range(count)):
        message = f"dim order {layout.dim_order[:_MOST_DIMS]} is not a permutation of {count} dimensions"
        raise broken("EK532", message, f"{where}.dim_order", f"each of {list(range(count))} once")
    needed = prod(layout.sizes) * layout.scalar_type.itemsize
    if needed > nbytes:
        message = f"a tensor of sizes {layout.sizes} has {nbytes} bytes"
        raise broken("EK532", message, where, f"at least {needed}")


def stored_tensor(layout: TensorLayout, data: memoryview) -> torch.Tensor:
    """Return a copy of a tensor whose layout was checked against its data; torch can hold its elements."""
    nbytes = prod(layout.sizes) * layout.scalar_type.itemsize
    dtype = layout.scalar_type.dtype
    if not nbytes:
        return torch.empty(layout.sizes, dtype=dtype)
    strides = stride_from_dim_order(layout.sizes, layout.dim_order)
    return torch.frombuffer(bytearray(data[:nbytes]), dtype=dtype).as_strided(layout.sizes, strides)


@dataclass(frozen=True)
class NamedBlob:
    """Data that is found by a key, aligned to `alignment` bytes; with a layout if it is a tensor.

    Raises:
        UsageError: EK521 if `data` is not contiguous bytes.
    """

    data: Content
    alignment: int = 1
    layout: TensorLayout | None = None

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "data", read_blob(self.data))
        except ValueError as error:
            raise UsageError(Diagnostic.of("EK521", str(error))) from None


@dataclass(frozen=True)
class FileImage:
    """The bytes of a file, not yet in one place.

    Attributes:
        nbytes: Size of the file.
    """

    nbytes: int
    _chunks: tuple[Content, ...] = field(repr=False)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the bytes in the order of the file; weights and payloads are views, or made block by block."""
        for chunk in self._chunks:
            if isinstance(chunk, StreamedBytes):
                yield from chunk.blocks()
            else:
                yield chunk

    def to_bytes(self) -> bytes:
        """Return the file as bytes, a copy."""
        made = io.BytesIO()
        self.write_to(made)
        return made.getvalue()

    def write_to(self, file: BinaryIO, progress: Callable[[str], None] | None = None) -> int:
        """Write the file to a stream and return the number of bytes written.

        Args:
            file: Takes bytes.
            progress: Called with a line of text behind each gigabyte.
        """
        done, told = 0, _TOLD_NBYTES
        for chunk in self.chunks():
            rest = memoryview(chunk)
            if progress is not None and done >= told:
                progress(f"writing {self.nbytes / 1e9:.1f} GB: {100 * done // self.nbytes} %")
                told += _TOLD_NBYTES
            done += len(rest)
            while len(rest):
                # An unbuffered file may take less than it is given.
                rest = rest[file.write(rest) :]
        return self.nbytes


_TOLD_NBYTES = 10**9


def write_file(path: str | os.PathLike[str], image: FileImage, progress: Callable[[str], None] | None = None) -> None:
    """Write an image to a file, which appears (or changes) only when it is complete.

    Args:
        path: The file.
        image: What is in it.
        progress: Called with a line of text before each gigabyte.

    Raises:
        OSError: The file cannot be written; what was there before is untouched.
    """
    write_files({Path(path): image}, progress)


def write_files(images: Mapping[Path, FileImage], progress: Callable[[str], None] | None = None) -> None:
    """Write images to files, which appear (or change) only when all are complete; the first one last.

    Args:
        images: What is in them, by file.
        progress: Called with a line of text before each gigabyte.

    Raises:
        OSError: A file cannot be written; what was there before is untouched.
    """
    for path in images:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR), os.fspath(path))
    with ExitStack() as replaced:
        for path, image in images.items():
            with open(replaced.enter_context(replaced_file(path)), "xb") as file:
                image.write_to(file, progress)


@contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the name of a file to write, which takes the place of `path` when the block ends without an error."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        yield partial
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def map_file(path: str | PathLike[str]) -> mmap.mmap | bytes:
    """Map a file into memory; the mapping lives as long as a view of it.

    Raises:
        OSError: The file cannot be opened.
    """
    with open(path, "rb") as file:
        # An empty file cannot be mapped; reading it as no bytes gives the right diagnostic.
        empty = file.seek(0, 2) == 0
        return b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def in_file(error: ModelError, path: str | PathLike[str]) -> ProgramFormatError:
    """Return an error about bytes as one about the file that they come from."""
    where = str(path)
    return ProgramFormatError(
        each.model_copy(update={"location": each.location.model_copy(update={"file": where})})
        for each in error.diagnostics
    )


def bytes_view(data: object) -> memoryview:
    """Return `data` as a contiguous view of bytes.

    Raises:
        UsageError: EK521, it is something else.
    """
    try:
        view = memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        view = None
    if view is None or not view.c_contiguous:
        message = f"a program cannot be read from {type(data).__name__}"
        expected = "bytes, bytearray, mmap or a contiguous memoryview"
        raise UsageError(Diagnostic.of("EK521", message, expected=expected))
    return view.cast("B")


def segment_views(segments: Sequence[DataSegment], view: memoryview, base: int, end: int) -> list[memoryview]:
    """Return a view of each segment.

    Args:
        segments: Their places, relative to the first.
        view: The whole file.
        base: Where the first starts, in bytes.
        end: Where segment data ends, in bytes.

    Raises:
        ProgramFormatError: EK516, one is outside of the segment data.
    """
    found = []
    for index, segment in enumerate(segments):
        start = base + segment.offset
        if start + segment.size > end:
            message = f"segment of {segment.size} bytes at {segment.offset} is outside the segment data"
            expected = f"at most {end - base} bytes in all"
            raise broken("EK516", message, f"segments[{index}]", expected)
        found.append(view[start : start + segment.size])
    return found


def check_reference(index: int, count: int, where: str) -> None:
    """Reject an index that leads nowhere (raises EK513)."""
    if index >= count:
        raise broken("EK513", f"index {index} has no data", where, f"less than {count}")


def broken(code: str, message: str, where: str, expected: str | None = None) -> ProgramFormatError:
    """Return the error about a field of a file."""
    return ProgramFormatError(Diagnostic(code=code, message=message, location=Location(node=where), expected=expected))


def malformed(
    code: str, message: str, offset: int, expected: str | None = None, hint: str | None = None
) -> ProgramFormatError:
    """Return the error about the header of a file, at a byte."""
    where = Location(node="header", offset_bytes=offset)
    return ProgramFormatError(Diagnostic(code=code, message=message, location=where, expected=expected, hint=hint))


class Segments:
    """The segments laid out so far.

    Attributes:
        table: Place and size of each, relative to the start of the first.
        chunks: Their bytes with the padding between them.
        nbytes: Size of all that.
        alignment: What the start of the first must be aligned to, so that the alignment of every one is kept.
    """

    def __init__(self, alignment: int) -> None:
        self.table: list[DataSegment] = []
        self.chunks: list[Content] = []
        self.nbytes = 0
        self.alignment = alignment
        self._least_alignment = alignment

    def add(self, chunks: Sequence[Content], alignment: int) -> int:
        """Append a segment and return its index."""
        for chunk in chunks:
            check_bytes(chunk)
        alignment = lcm(self._least_alignment, alignment)
        self.alignment = lcm(self.alignment, alignment)
        start = align_up(self.nbytes, alignment)
        size = sum(len(chunk) for chunk in chunks)
        if start > self.nbytes:
            self.chunks.append(bytes(start - self.nbytes))
        self.chunks += (chunk for chunk in chunks if len(chunk))
        self.nbytes = start + size
        self.table.append(DataSegment(offset=start, size=size))
        return len(self.table) - 1

    def add_table(self, buffers: Sequence[Buffer], alignment: int) -> SubsegmentOffsets:
        """Append a segment of many buffers, each aligned, and return where they are."""
        chunks: list[Content] = []
        offsets: list[int] = []
        end = 0
        for buffer in buffers:
            start = align_up(end, alignment)
            chunks += (bytes(start - end), buffer.storage)
            offsets.append(start)
            end = start + len(buffer.storage)
        return SubsegmentOffsets(segment_index=self.add(chunks, alignment), offsets=offsets)

    def add_named(self, entries: Mapping[str, NamedBlob]) -> dict[str, int]:
        """Append a segment for each distinct content of named data, and return the segment of each key.

        Raises:
            UsageError: EK521, an alignment is not a power of two.
        """
        unique = UniqueBlobs()
        numbers = {key: unique.number(blob.data) for key, blob in entries.items()}
        alignments = [1] * len(unique.blobs)
        for key, blob in entries.items():
            alignment = check_alignment(f"the alignment of {key!r}", blob.alignment)
            alignments[numbers[key]] = lcm(alignments[numbers[key]], alignment)
        indices = [self.add([blob], each) for blob, each in zip(unique.blobs, alignments, strict=True)]
        return {key: indices[number] for key, number in numbers.items()}


class UniqueBlobs:
    """Numbers blobs such that equal ones have the same number."""

    def __init__(self) -> None:
        self.blobs: list[Content] = []
        self._by_start: dict[tuple[int, bytes], list[int]] = {}

    def number(self, blob: Content) -> int:
        """Return the number of a blob equal to `blob`."""
        # Hashing gigabytes of weights would take longer than writing them, and most differ in size or start.
        similar = self._by_start.setdefault((len(blob), bytes(blob[:64])), [])
        for number in similar:
            if self.blobs[number] is blob or self.blobs[number] == blob:
                return number
        self.blobs.append(blob)
        similar.append(len(self.blobs) - 1)
        return similar[-1]


def check_bytes(data: object) -> None:
    """Reject data that was put into a model after it was validated."""
    if not isinstance(data, bytes | memoryview | StreamedBytes):
        message = f"program data is {type(data).__name__}"
        raise ModelError(Diagnostic.of("EK520", message))


def check_alignment(name: str, alignment: int | None) -> int:
    """Return an alignment, 16 if there is none (raises EK521 unless it is a power of two)."""
    if alignment is None:
        return FORCE_ALIGN_BYTES
    if alignment < 1 or alignment & (alignment - 1):
        message = f"{name} is {alignment}"
        raise UsageError(Diagnostic.of("EK521", message, expected="a power of two"))
    return alignment


def align_up(nbytes: int, alignment: int) -> int:
    """Return the first multiple of an alignment that is not less than a number of bytes."""
    return nbytes + -nbytes % alignment

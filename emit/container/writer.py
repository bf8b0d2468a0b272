"""Lay a program out as a file: constants, initial values, payloads and named data move into segments.

    root offset, identifier ET12 | extended header | flatbuffer | padding | segment 0 | padding | segment 1 | ...

Segment 0 holds the constants, then follow the initial values of mutable buffers (if any), the payloads of delegates in
the order of their first use, and the named data. Nothing of that is copied; the file is a sequence of views.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from pathlib import Path
from typing import BinaryIO, Final

from exirkit.emit.flatbuffer import Chunk, EncodedTable, encode, read_blob
from exirkit.emit.schema import (
    FORCE_ALIGN_BYTES,
    IDENTIFIER,
    BackendDelegate,
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Buffer,
    DataLocation,
    DataSegment,
    ExecutionPlan,
    NamedData,
    Program,
    SubsegmentOffsets,
)
from exirkit.ir import Diagnostic, Location, ModelError, UsageError

from .header import HEADER_NBYTES, ExtendedHeader

SEGMENT_ALIGNMENT: Final = 128


@dataclass(frozen=True)
class NamedBlob:
    """Data that delegates find by a key, aligned to `alignment` bytes.

    Raises:
        UsageError: EK521 if `data` is not contiguous bytes.
    """

    data: Chunk
    alignment: int = 1

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "data", read_blob(self.data))
        except ValueError as error:
            raise UsageError(Diagnostic(code="EK521", message=str(error))) from None


@dataclass(frozen=True)
class PteImage:
    """The bytes of a program file, not yet in one place.

    Attributes:
        program: The program as it stands in the file.
        header: The extended header; `None` if no segment has a byte.
        nbytes: Size of the file.
    """

    program: Program
    header: ExtendedHeader | None
    nbytes: int
    _chunks: tuple[Chunk, ...] = field(repr=False)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the bytes in the order of the file; weights and payloads are views, not copies."""
        yield from self._chunks

    def to_bytes(self) -> bytes:
        """Return the file as bytes, a copy."""
        return b"".join(self._chunks)

    def write_to(self, file: BinaryIO) -> int:
        """Write the file to a stream and return the number of bytes written."""
        for chunk in self._chunks:
            rest = memoryview(chunk)
            while len(rest):
                # An unbuffered file may take less than it is given.
                rest = rest[file.write(rest) :]
        return self.nbytes


def lay_out(
    program: Program,
    *,
    mutable_data: Sequence[Buffer] | None = None,
    named_data: Mapping[str, NamedBlob] | None = None,
    segment_alignment: int = SEGMENT_ALIGNMENT,
    constant_tensor_alignment: int | None = None,
    delegate_alignment: int | None = None,
    extract_delegate_segments: bool = True,
) -> PteImage:
    """Return the file of a program that is in its in-memory form; the program is not changed.

    Requires: constants are in `constant_buffer` (entry 0 empty) and payloads in `backend_delegate_data`; nothing
    refers to segments yet.
    Ensures: equal programs give equal bytes; `restore` gives the program back.

    Args:
        program: The program.
        mutable_data: Initial values of mutable buffers, to which `Tensor.data_buffer_idx` refers; entry 0 empty.
        named_data: Data that delegates find by a key, in the order in which it is written; equal data is written
            once.
        segment_alignment: Alignment of every segment in bytes, as those below a power of two.
        constant_tensor_alignment: Alignment of every constant; by default 16.
        delegate_alignment: Alignment of payloads; by default 16.
        extract_delegate_segments: Whether payloads move into segments; empty ones never do.

    Raises:
        UsageError: EK521 for an alignment that is not a power of two, EK522 for a program that is not in memory form.
        ModelError: EK513 or EK526 for delegates and payloads that do not match, EK520 and EK525 as
            `encode_program`.
    """
    constant_alignment = _check_alignment("constant_tensor_alignment", constant_tensor_alignment)
    payload_alignment = _check_alignment("delegate_alignment", delegate_alignment)
    segments = _Segments(_check_alignment("segment_alignment", segment_alignment))
    _check_in_memory(program, mutable_data, named_data)
    update: dict[str, object] = {}
    if program.constant_buffer:
        update["constant_segment"] = segments.add_table(program.constant_buffer, constant_alignment)
        update["constant_buffer"] = []
    if mutable_data is not None and any(len(buffer.storage) for buffer in mutable_data):
        # The runtime copies initial values into its arenas, so they need no alignment of their own.
        update["mutable_data_segments"] = [segments.add_table(mutable_data, 1)]
    if extract_delegate_segments:
        update |= _extract_payloads(program, segments, payload_alignment)
    if named_data is not None:
        update["named_data"] = _add_named_data(named_data, segments)
    update["segments"] = segments.table
    in_file = program.model_copy(update=update)
    encoded = encode_program(in_file, constant_alignment=constant_alignment, delegate_alignment=payload_alignment)
    return _image(in_file, encoded, segments)


def encode_program(
    program: Program,
    *,
    constant_alignment: int = FORCE_ALIGN_BYTES,
    delegate_alignment: int = FORCE_ALIGN_BYTES,
) -> EncodedTable:
    """Return `program`, as it stands, as a flatbuffer.

    Args:
        program: Any program; it need not make sense to a runtime.
        constant_alignment: Alignment of the data of `constant_buffer` in bytes, a power of two.
        delegate_alignment: Alignment of the data of `backend_delegate_data` in bytes, a power of two.

    Raises:
        ModelError: EK520 for a value that its field cannot hold, EK525 for a program of 2 GiB or more.
    """
    alignments: dict[type, int] = {Buffer: constant_alignment, BackendDelegateInlineData: delegate_alignment}
    return encode(program, IDENTIFIER, alignment=FORCE_ALIGN_BYTES, alignments=alignments)


def write_file(path: str | os.PathLike[str], image: PteImage) -> None:
    """Write an image to a file, which appears (or changes) only when it is complete.

    Raises:
        OSError: The file cannot be written; what was there before is untouched.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with open(partial, "xb") as file:
            image.write_to(file)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _image(program: Program, encoded: EncodedTable, segments: _Segments) -> PteImage:
    """Put header, flatbuffer and segments together; without any segment data there is no header."""
    if segments.nbytes == 0:
        return PteImage(program, None, encoded.nbytes(), encoded.chunks())
    header_nbytes = align_up(HEADER_NBYTES, encoded.alignment)
    program_nbytes = encoded.nbytes(header_nbytes)
    base = align_up(program_nbytes, segments.alignment)
    header = ExtendedHeader(program_nbytes, base, segments.nbytes)
    chunks = (
        *encoded.chunks(header.pack(header_nbytes)),
        *([bytes(base - program_nbytes)] if base > program_nbytes else []),
        *segments.chunks,
    )
    return PteImage(program, header, base + segments.nbytes, chunks)


class _Segments:
    """The segments laid out so far.

    Attributes:
        table: Place and size of each, relative to the start of the first.
        chunks: Their bytes with the padding between them.
        nbytes: Size of all that.
        alignment: What the start of the first must be aligned to, so that the alignment of every one is kept.
    """

    def __init__(self, alignment: int) -> None:
        self.table: list[DataSegment] = []
        self.chunks: list[Chunk] = []
        self.nbytes = 0
        self.alignment = alignment
        self._least_alignment = alignment

    def add(self, chunks: Sequence[Chunk], alignment: int) -> int:
        """Append a segment and return its index."""
        for chunk in chunks:
            _check_bytes(chunk)
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
        chunks: list[Chunk] = []
        offsets: list[int] = []
        end = 0
        for buffer in buffers:
            start = align_up(end, alignment)
            chunks += (bytes(start - end), buffer.storage)
            offsets.append(start)
            end = start + len(buffer.storage)
        return SubsegmentOffsets(segment_index=self.add(chunks, alignment), offsets=offsets)


class _UniqueBlobs:
    """Numbers blobs such that equal ones have the same number."""

    def __init__(self) -> None:
        self.blobs: list[Chunk] = []
        self._by_start: dict[tuple[int, bytes], list[int]] = {}

    def number(self, blob: Chunk) -> int:
        """Return the number of a blob equal to `blob`."""
        # Hashing gigabytes of weights would take longer than writing them, and most differ in size or start.
        similar = self._by_start.setdefault((len(blob), bytes(blob[:64])), [])
        for number in similar:
            if self.blobs[number] is blob or self.blobs[number] == blob:
                return number
        self.blobs.append(blob)
        similar.append(len(self.blobs) - 1)
        return similar[-1]


def _extract_payloads(program: Program, segments: _Segments, alignment: int) -> dict[str, object]:
    """Move payloads into segments, those that are equal into one; return what changes in the program."""
    unique = _UniqueBlobs()
    segment_of: dict[int, int] = {}
    inline: dict[int, int] = {}
    used: set[int] = set()

    def place(delegate: BackendDelegate) -> BackendDelegate:
        index = delegate.processed.index
        data = program.backend_delegate_data[index].data
        used.add(index)
        if not len(data):
            where = BackendDelegateDataReference(index=inline.setdefault(index, len(inline)))
        else:
            number = unique.number(data)
            if number not in segment_of:
                segment_of[number] = segments.add([data], alignment)
            where = BackendDelegateDataReference(location=DataLocation.SEGMENT, index=segment_of[number])
        return delegate.model_copy(update={"processed": where})

    plans = [
        plan.model_copy(update={"delegates": [place(delegate) for delegate in plan.delegates]})
        for plan in program.execution_plan
    ]
    unused = sorted(set(range(len(program.backend_delegate_data))) - used)
    if unused:
        message = f"payload {unused[0]} belongs to no delegate"
        where = Location(node=f"backend_delegate_data[{unused[0]}]")
        raise ModelError(Diagnostic(code="EK526", message=message, location=where))
    empty = [BackendDelegateInlineData() for _ in inline]
    return {"execution_plan": plans, "backend_delegate_data": empty}


def _add_named_data(named_data: Mapping[str, NamedBlob], segments: _Segments) -> list[NamedData]:
    unique = _UniqueBlobs()
    numbers = {key: unique.number(blob.data) for key, blob in named_data.items()}
    alignments = [1] * len(unique.blobs)
    for key, blob in named_data.items():
        alignment = _check_alignment(f"the alignment of {key!r}", blob.alignment)
        alignments[numbers[key]] = lcm(alignments[numbers[key]], alignment)
    indices = [segments.add([blob], each) for blob, each in zip(unique.blobs, alignments, strict=True)]
    return [NamedData(key=key, segment_index=indices[number]) for key, number in numbers.items()]


def _check_in_memory(
    program: Program, mutable_data: Sequence[Buffer] | None, named_data: Mapping[str, NamedBlob] | None
) -> None:
    """Reject a program that is laid out already."""
    faults = {
        "segments": bool(program.segments),
        "constant_segment": bool(program.constant_segment.offsets),
        "mutable_data_segments": bool(program.mutable_data_segments),
        "named_data": bool(program.named_data),
        "constant_buffer[0]": bool(program.constant_buffer and len(program.constant_buffer[0].storage)),
        "mutable_data[0]": bool(mutable_data and len(mutable_data[0].storage)),
    }
    for where, is_faulty in faults.items():
        if is_faulty:
            raise _not_in_memory(f"{where} is not empty", where)
    count = len(program.backend_delegate_data)
    for number, plan in enumerate(program.execution_plan):
        _check_delegates(plan, count, f"execution_plan[{number}]")


def _check_delegates(plan: ExecutionPlan, count: int, where: str) -> None:
    for index, delegate in enumerate(plan.delegates):
        place = f"{where}.delegates[{index}].processed"
        if delegate.processed.location is not DataLocation.INLINE:
            raise _not_in_memory("a delegate refers to a segment", place)
        if delegate.processed.index >= count:
            message = f"a delegate refers to payload {delegate.processed.index}"
            location = Location(method=plan.name, node=place)
            diagnostic = Diagnostic(code="EK513", message=message, location=location, expected=f"less than {count}")
            raise ModelError(diagnostic)


def _check_bytes(data: object) -> None:
    """Reject data that was put into a model after it was validated."""
    if not isinstance(data, (bytes, memoryview)):
        message = f"program data is {type(data).__name__}"
        raise ModelError(Diagnostic(code="EK520", message=message, expected="bytes or a memoryview"))


def _not_in_memory(message: str, where: str) -> UsageError:
    hint = "give lay_out the result of the emitter or of restore"
    return UsageError(Diagnostic(code="EK522", message=message, location=Location(node=where), hint=hint))


def _check_alignment(name: str, alignment: int | None) -> int:
    if alignment is None:
        return FORCE_ALIGN_BYTES
    if alignment < 1 or alignment & (alignment - 1):
        message = f"{name} is {alignment}"
        raise UsageError(Diagnostic(code="EK521", message=message, expected="a power of two"))
    return alignment


def align_up(nbytes: int, alignment: int) -> int:
    """Return the first multiple of an alignment that is not less than a number of bytes."""
    return nbytes + -nbytes % alignment

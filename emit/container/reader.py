"""Open a program file: the program, its segments as views, and the data that each part of the program refers to."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from difflib import get_close_matches
from os import PathLike
from types import TracebackType
from typing import Self

from exirkit.emit.errors import ProgramFormatError
from exirkit.emit.flatbuffer import Fault, decode
from exirkit.emit.schema import BackendDelegate, DataLocation, Program, SubsegmentOffsets
from exirkit.ir import Diagnostic, Location, ModelError, UsageError

from .header import ExtendedHeader, check_identifier, read_header


class PteFile:
    """A program file in memory or mapped from disk; nothing of its data is copied.

    Attributes:
        program: The program as it stands in the file: constants and payloads are in segments.
        header: The extended header, if the file has one.
        segments: The bytes of `program.segments`.
    """

    def __init__(self, program: Program, header: ExtendedHeader | None, segments: Sequence[memoryview]) -> None:
        self.program = program
        self.header = header
        self.segments = list(segments)
        self._mapping: mmap.mmap | None = None
        self._is_closed = False
        self._segment_of_key: dict[str, int] | None = None

    def constant(self, index: int, nbytes: int | None = None) -> memoryview:
        """Return the bytes of constant `index`, as `Tensor.data_buffer_idx` counts them.

        The file does not record where a constant ends, only where the next one starts: without `nbytes` the bytes
        include the padding between the two.

        Raises:
            UsageError: EK523 if there is no such constant (0 means "no constant"), EK527 after `close`.
            ProgramFormatError: EK518 if it has fewer than `nbytes` bytes.
        """
        if not self.program.constant_segment.offsets:
            buffers = self.program.constant_buffer
            _check_index("constant", index, len(buffers))
            return _prefix(memoryview(buffers[index].storage), nbytes, f"constant {index}")
        return self._subsegment("constant", self.program.constant_segment, index, nbytes)

    def mutable_data(self, index: int, nbytes: int | None = None, *, segment: int = 0) -> memoryview:
        """Return the initial bytes of the buffer whose `data_buffer_idx` is `index`.

        Args:
            index: Position in the offsets; 0 means "no initial value".
            nbytes: Size that is wanted; by default all up to the next value.
            segment: `ExtraTensorInfo.mutable_data_segments_idx` of the tensor.

        Raises:
            UsageError: EK523 if there is no such value.
            ProgramFormatError: EK518 if it has fewer than `nbytes` bytes.
        """
        tables = self.program.mutable_data_segments or []
        _check_index("mutable data segment", segment, len(tables), first=0)
        return self._subsegment("initial value", tables[segment], index, nbytes)

    def delegate_payload(self, delegate: BackendDelegate) -> memoryview:
        """Return the payload of a delegate of one of the plans.

        Raises:
            UsageError: EK523 if the delegate refers to a payload that this file does not have.
        """
        reference = delegate.processed
        if reference.location is DataLocation.SEGMENT:
            return self._segment(reference.index)
        payloads = self.program.backend_delegate_data
        _check_index("inline payload", reference.index, len(payloads), first=0)
        return memoryview(payloads[reference.index].data)

    def named_data(self, key: str) -> memoryview:
        """Return the bytes that the program stores under `key`.

        Raises:
            UsageError: EK524 if there is no such key.
        """
        index = self._named().get(key)
        if index is not None:
            return self._segment(index)
        entries = self.program.named_data or []
        close = get_close_matches(key, [entry.key for entry in entries], 1)
        hint = f"did you mean {close[0]!r}?" if close else None
        message = f"the program has no named data {key!r}"
        raise UsageError(Diagnostic(code="EK524", message=message, expected=f"{len(entries)} keys", hint=hint))

    def has_named_data(self, key: str) -> bool:
        """Return whether the program stores bytes under `key`."""
        return key in self._named()

    def _named(self) -> dict[str, int]:
        """Return the segments of all keys: a file may have as many tensors that ask as it has keys."""
        if self._segment_of_key is None:
            entries = self.program.named_data or []
            # The first of several entries with one key counts.
            self._segment_of_key = {entry.key: entry.segment_index for entry in reversed(entries)}
        return self._segment_of_key

    def close(self) -> None:
        """Let go of the file. Views that were handed out stay valid; the mapping ends with the last of them."""
        self._is_closed = True
        self.segments = []
        mapping, self._mapping = self._mapping, None
        if mapping is None:
            return
        try:
            mapping.close()
        except BufferError:
            # There still is a view, for example a constant inside `program`; the mapping dies with it.
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _segment(self, index: int) -> memoryview:
        if self._is_closed:
            raise UsageError(Diagnostic(code="EK527", message="the program file is closed"))
        _check_index("segment", index, len(self.segments), first=0)
        return self.segments[index]

    def _subsegment(self, what: str, table: SubsegmentOffsets, index: int, nbytes: int | None) -> memoryview:
        _check_index(what, index, len(table.offsets))
        data = self._segment(table.segment_index)
        stop = table.offsets[index + 1] if index + 1 < len(table.offsets) else len(data)
        return _prefix(data[table.offsets[index] : stop], nbytes, f"{what} {index}")


def read_program(data: bytes | bytearray | memoryview | mmap.mmap) -> PteFile:
    """Read a program file that is in memory; constants and payloads stay views of `data`.

    Requires: `data` does not change as long as the result is in use.
    Ensures: every index and offset that leads from the program into the file is inside the file.

    Raises:
        ProgramFormatError: EK502 to EK518, saying what is wrong, at which byte and in which field.
        UsageError: EK521 if `data` is not contiguous bytes.
    """
    view = _bytes_view(data)
    check_identifier(view)
    header = read_header(view)
    program = decode_program(view[: header.program_size] if header else view)
    segments = _segments(program, header, view)
    _check_references(program, segments)
    return PteFile(program, header, segments)


def decode_program(data: memoryview) -> Program:
    """Return the program of a flatbuffer, a contiguous view of bytes of which blobs stay views.

    Raises:
        ProgramFormatError: EK506 to EK515, with the byte offset and the path of the field that is wrong.
    """
    try:
        return decode(Program, data)
    except Fault as fault:
        raise ProgramFormatError(fault.diagnostic()) from None


def open_program(path: str | PathLike[str]) -> PteFile:
    """Map a program file into memory and read it; use the result in a `with` statement, or close it.

    Raises:
        ProgramFormatError: EK502 to EK518, with the path of the file.
        OSError: The file cannot be opened.
    """
    with open(path, "rb") as file:
        # An empty file cannot be mapped; reading it as no bytes gives the right diagnostic.
        empty = file.seek(0, 2) == 0
        mapping = None if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        opened = read_program(b"" if mapping is None else mapping)
    except ModelError as error:
        where = str(path)
        raise ProgramFormatError(
            each.model_copy(update={"location": each.location.model_copy(update={"file": where})})
            for each in error.diagnostics
        ) from None
    opened._mapping = mapping
    return opened


def _bytes_view(data: object) -> memoryview:
    """Return `data` as a contiguous view of bytes."""
    try:
        view = memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        view = None
    if view is None or not view.c_contiguous:
        message = f"a program cannot be read from {type(data).__name__}"
        expected = "bytes, bytearray, mmap or a contiguous memoryview"
        raise UsageError(Diagnostic(code="EK521", message=message, expected=expected))
    return view.cast("B")


def _segments(program: Program, header: ExtendedHeader | None, view: memoryview) -> list[memoryview]:
    """Return a view of each segment after checking that it is inside the file."""
    base = header.segment_base_offset if header else 0
    end = base
    if header and base:
        size = header.segment_data_size
        end = len(view) if size is None else base + size
    found = []
    for index, segment in enumerate(program.segments):
        start = base + segment.offset
        if start + segment.size > end:
            message = f"segment of {segment.size} bytes at {segment.offset} is outside the segment data"
            expected = f"at most {end - base} bytes in all"
            raise _broken("EK516", message, f"segments[{index}]", expected)
        found.append(view[start : start + segment.size])
    return found


def _check_references(program: Program, segments: list[memoryview]) -> None:
    """Check all that leads from the program into its segments and payloads."""
    constants = program.constant_segment
    if constants.offsets and program.constant_buffer:
        message = "constants are both in the program and in a segment"
        raise _broken("EK519", message, "constant_segment", "one of the two to be empty")
    _check_offsets(constants, segments, "constant_segment")
    for index, table in enumerate(program.mutable_data_segments or []):
        _check_offsets(table, segments, f"mutable_data_segments[{index}]")
    for index, entry in enumerate(program.named_data or []):
        _check_reference(entry.segment_index, len(segments), f"named_data[{index}].segment_index")
    for number, plan in enumerate(program.execution_plan):
        for index, delegate in enumerate(plan.delegates):
            where = f"execution_plan[{number}].delegates[{index}].processed.index"
            inline = delegate.processed.location is DataLocation.INLINE
            count = len(program.backend_delegate_data if inline else segments)
            _check_reference(delegate.processed.index, count, where)


def _check_reference(index: int, count: int, where: str) -> None:
    if index >= count:
        raise _broken("EK513", f"index {index} has no data", where, f"less than {count}")


def _check_offsets(table: SubsegmentOffsets, segments: list[memoryview], where: str) -> None:
    if not table.offsets:
        return
    _check_reference(table.segment_index, len(segments), f"{where}.segment_index")
    floor, size = 0, len(segments[table.segment_index])
    for index, offset in enumerate(table.offsets):
        if not floor <= offset <= size:
            message = f"offset {offset} is outside its segment or before the one that precedes it"
            raise _broken("EK517", message, f"{where}.offsets[{index}]", f"{floor} to {size}")
        floor = offset


def _check_index(what: str, index: int, count: int, *, first: int = 1) -> None:
    if not first <= index < count:
        expected = f"{first} to {count - 1}" if count > first else f"the file has no {what}"
        raise UsageError(Diagnostic(code="EK523", message=f"there is no {what} {index}", expected=expected))


def _prefix(data: memoryview, nbytes: int | None, what: str) -> memoryview:
    if nbytes is None:
        return data
    if not 0 <= nbytes <= len(data):
        raise _broken("EK518", f"{what} has {len(data)} bytes, {nbytes} are wanted", what)
    return data[:nbytes]


def _broken(code: str, message: str, where: str, expected: str | None = None) -> ProgramFormatError:
    return ProgramFormatError(Diagnostic(code=code, message=message, location=Location(node=where), expected=expected))

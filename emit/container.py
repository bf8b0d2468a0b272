"""Program files: the extended header, a program laid out with its segments, and the way back.

Constants, initial values, payloads and named data move into segments; what is opened shows them as views.

    root offset, identifier ET12 | extended header | flatbuffer | padding | segment 0 | padding | segment 1 | ...

Segment 0 holds the constants, then follow the initial values of mutable buffers (if any), the payloads of delegates in
the order of their first use, and the named data. Nothing of that is copied; the file is a sequence of views.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from os import PathLike
from struct import Struct
from types import TracebackType
from typing import Final, Self

from exirkit.ir import Diagnostic, Location, ModelError, UsageError

from .file_kinds import not_of_kind
from .flatbuffer import PREFIX_NBYTES, EncodedTable, Fault, decode, encode
from .schema import (
    FORCE_ALIGN_BYTES,
    IDENTIFIER,
    BackendDelegate,
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Buffer,
    DataLocation,
    ExecutionPlan,
    NamedData,
    Program,
    ProgramFormatError,
    SubsegmentOffsets,
    Tensor,
)
from .segments import (
    SEGMENT_ALIGNMENT,
    FileImage,
    NamedBlob,
    Segments,
    UniqueBlobs,
    align_up,
    broken,
    bytes_view,
    check_alignment,
    check_reference,
    in_file,
    malformed,
    map_file,
    segment_views,
)
from .tensor_data import DataFile

HEADER_NBYTES: Final = 32
# Headers without the last field, the size of the segments, are older but legal.
MINIMUM_HEADER_NBYTES: Final = 24

_MAGIC: Final = b"eh00"
_HEADER: Final = Struct("<4sIQQQ")
_LENGTH: Final = Struct("<I")
_OLD_FIELDS: Final = Struct("<QQ")
_NEW_FIELD: Final = Struct("<Q")


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
        raise malformed("EK504", message, 0, f"at least {PREFIX_NBYTES} bytes")
    identifier = bytes(data[4:8])
    if identifier == IDENTIFIER:
        return
    expected = IDENTIFIER.decode()
    if identifier[:2] == b"ET" and identifier[2:].isdigit():
        message = f"the file is a program of version {identifier.decode()}"
        raise malformed("EK503", message, 4, expected, "export the model again with a matching version")
    raise malformed("EK502", not_of_kind(data, "a program"), 4, expected)


def read_header(data: memoryview) -> ExtendedHeader | None:
    """Return the extended header of a file that has one.

    Raises:
        ProgramFormatError: EK505 if its sizes do not fit each other or the file.
    """
    if bytes(data[PREFIX_NBYTES : PREFIX_NBYTES + 4]) != _MAGIC:
        return None
    if len(data) < PREFIX_NBYTES + MINIMUM_HEADER_NBYTES:
        raise malformed("EK505", "the file ends inside its extended header", len(data))
    (length,) = _LENGTH.unpack_from(data, PREFIX_NBYTES + 4)
    if length < MINIMUM_HEADER_NBYTES or PREFIX_NBYTES + length > len(data):
        message = f"the extended header gives itself {length} bytes"
        expected = f"{MINIMUM_HEADER_NBYTES} to {len(data) - PREFIX_NBYTES}"
        raise malformed("EK505", message, PREFIX_NBYTES + 4, expected)
    program_size, base = _OLD_FIELDS.unpack_from(data, PREFIX_NBYTES + 8)
    size = _NEW_FIELD.unpack_from(data, PREFIX_NBYTES + 24)[0] if length >= HEADER_NBYTES else None
    header = ExtendedHeader(program_size, base, size)
    _check_header(header, length, len(data))
    return header


def _check_header(header: ExtendedHeader, length: int, file_nbytes: int) -> None:
    first = PREFIX_NBYTES + length
    if not first <= header.program_size <= file_nbytes:
        message = f"the extended header gives the program {header.program_size} bytes"
        raise malformed("EK505", message, PREFIX_NBYTES + 8, f"{first} to {file_nbytes}")
    base = header.segment_base_offset
    if base and not header.program_size <= base <= file_nbytes:
        message = f"the extended header places the segments at byte {base}"
        raise malformed("EK505", message, PREFIX_NBYTES + 16, f"{header.program_size} to {file_nbytes}, or 0")
    if header.segment_data_size is not None and base + header.segment_data_size > file_nbytes:
        message = f"the extended header gives the segments {header.segment_data_size} bytes"
        expected = f"at most {file_nbytes - base}: the file may be cut short"
        raise malformed("EK505", message, PREFIX_NBYTES + 24, expected)


@dataclass(frozen=True)
class PteImage(FileImage):
    """The bytes of a program file, not yet in one place.

    Attributes:
        program: The program as it stands in the file.
        header: The extended header; `None` if no segment has a byte.
    """

    program: Program
    header: ExtendedHeader | None


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
    constant_alignment = check_alignment("constant_tensor_alignment", constant_tensor_alignment)
    payload_alignment = check_alignment("delegate_alignment", delegate_alignment)
    segments = Segments(check_alignment("segment_alignment", segment_alignment))
    _check_in_memory(program, mutable_data)
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
        numbers = segments.add_named(named_data)
        update["named_data"] = [NamedData(key=key, segment_index=index) for key, index in numbers.items()]
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


def _image(program: Program, encoded: EncodedTable, segments: Segments) -> PteImage:
    """Put header, flatbuffer and segments together; without any segment data there is no header."""
    if segments.nbytes == 0:
        return PteImage(encoded.nbytes(), encoded.chunks(), program, None)
    header_nbytes = align_up(HEADER_NBYTES, encoded.alignment)
    program_nbytes = encoded.nbytes(header_nbytes)
    base = align_up(program_nbytes, segments.alignment)
    header = ExtendedHeader(program_nbytes, base, segments.nbytes)
    chunks = (
        *encoded.chunks(header.pack(header_nbytes)),
        *([bytes(base - program_nbytes)] if base > program_nbytes else []),
        *segments.chunks,
    )
    return PteImage(base + segments.nbytes, chunks, program, header)


def _extract_payloads(program: Program, segments: Segments, alignment: int) -> dict[str, object]:
    """Move payloads into segments, those that are equal into one; return what changes in the program."""
    unique = UniqueBlobs()
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
        raise ModelError(Diagnostic.of("EK526", message, location=where))
    empty = [BackendDelegateInlineData() for _ in inline]
    return {"execution_plan": plans, "backend_delegate_data": empty}


def _check_in_memory(program: Program, mutable_data: Sequence[Buffer] | None) -> None:
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
            diagnostic = Diagnostic.of("EK513", message, location=location, expected=f"less than {count}")
            raise ModelError(diagnostic)


def _not_in_memory(message: str, where: str) -> UsageError:
    hint = "give lay_out the result of the emitter or of restore"
    return UsageError(Diagnostic.of("EK522", message, location=Location(node=where), hint=hint))


class PteFile:
    """A program file in memory or mapped from disk; nothing of its data is copied.

    Attributes:
        program: The program as it stands in the file: constants and payloads are in segments.
        header: The extended header, if the file has one.
        segments: The bytes of `program.segments`.
        data_files: Data files in which external tensors and named data are looked up, in their order.
    """

    def __init__(self, program: Program, header: ExtendedHeader | None, segments: Sequence[memoryview]) -> None:
        self.program = program
        self.header = header
        self.segments = list(segments)
        self.data_files: tuple[DataFile, ...] = ()
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

    def attach(self, data_files: Sequence[DataFile]) -> None:
        """Let external tensors and named data be found in data files, instead of those attached before.

        Raises:
            UsageError: EK534, the program and a data file, or two data files, have data under one key.
        """
        places = dict.fromkeys(self._named(), "the program")
        for number, file in enumerate(data_files):
            where = file.path or f"data file {number}"
            for key in file.keys:
                if key in places:
                    message = f"both {places[key]} and {where} have data under the key {key!r}"
                    raise UsageError(Diagnostic.of("EK534", message))
                places[key] = where
        self.data_files = tuple(data_files)

    def named_data(self, key: str) -> memoryview:
        """Return the bytes that the program, or a data file that is attached to it, stores under `key`.

        Raises:
            UsageError: EK524 if there is no such key.
        """
        index = self._named().get(key)
        if index is not None:
            return self._segment(index)
        file = self.data_file_of(key)
        if file is not None:
            return file.data(key)
        keys = [*self._named(), *(known for one in self.data_files for known in one.keys)]
        close = get_close_matches(key, keys, 1)
        hint = f"did you mean {close[0]!r}?" if close else None
        message = f"the program has no named data {key!r}"
        raise UsageError(Diagnostic.of("EK524", message, expected=f"{len(keys)} keys", hint=hint))

    def has_named_data(self, key: str) -> bool:
        """Return whether there are bytes under `key`, in the program or in a data file that is attached to it."""
        return key in self._named() or self.data_file_of(key) is not None

    def data_file_of(self, key: str) -> DataFile | None:
        """Return the attached data file that has an entry with this key, None if there is none."""
        return next((file for file in self.data_files if key in file), None)

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
            raise UsageError(Diagnostic.of("EK527", "the program file is closed"))
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
    view = bytes_view(data)
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
    mapping = map_file(path)
    try:
        opened = read_program(mapping)
    except ModelError as error:
        raise in_file(error, path) from None
    opened._mapping = mapping if isinstance(mapping, mmap.mmap) else None
    return opened


def _segments(program: Program, header: ExtendedHeader | None, view: memoryview) -> list[memoryview]:
    """Return a view of each segment after checking that it is inside the file."""
    base = header.segment_base_offset if header else 0
    end = base
    if header and base:
        size = header.segment_data_size
        end = len(view) if size is None else base + size
    return segment_views(program.segments, view, base, end)


def _check_references(program: Program, segments: list[memoryview]) -> None:
    """Check all that leads from the program into its segments and payloads."""
    constants = program.constant_segment
    if constants.offsets and program.constant_buffer:
        message = "constants are both in the program and in a segment"
        raise broken("EK519", message, "constant_segment", "one of the two to be empty")
    _check_offsets(constants, segments, "constant_segment")
    for index, table in enumerate(program.mutable_data_segments or []):
        _check_offsets(table, segments, f"mutable_data_segments[{index}]")
    for index, entry in enumerate(program.named_data or []):
        check_reference(entry.segment_index, len(segments), f"named_data[{index}].segment_index")
    for number, plan in enumerate(program.execution_plan):
        for index, delegate in enumerate(plan.delegates):
            where = f"execution_plan[{number}].delegates[{index}].processed.index"
            inline = delegate.processed.location is DataLocation.INLINE
            count = len(program.backend_delegate_data if inline else segments)
            check_reference(delegate.processed.index, count, where)


def _check_offsets(table: SubsegmentOffsets, segments: list[memoryview], where: str) -> None:
    if not table.offsets:
        return
    check_reference(table.segment_index, len(segments), f"{where}.segment_index")
    floor, size = 0, len(segments[table.segment_index])
    for index, offset in enumerate(table.offsets):
        if not floor <= offset <= size:
            message = f"offset {offset} is outside its segment or before the one that precedes it"
            raise broken("EK517", message, f"{where}.offsets[{index}]", f"{floor} to {size}")
        floor = offset


def _check_index(what: str, index: int, count: int, *, first: int = 1) -> None:
    if not first <= index < count:
        expected = f"{first} to {count - 1}" if count > first else f"the file has no {what}"
        raise UsageError(Diagnostic.of("EK523", f"there is no {what} {index}", expected=expected))


def _prefix(data: memoryview, nbytes: int | None, what: str) -> memoryview:
    if nbytes is None:
        return data
    if not 0 <= nbytes <= len(data):
        raise broken("EK518", f"{what} has {len(data)} bytes, {nbytes} are wanted", what)
    return data[:nbytes]


# A constant that is followed by more than this is larger than its tensor; alignments are not.
_MAXIMUM_PADDING_NBYTES: Final = 4096


def restore(file: PteFile) -> Program:
    """Return the program with its constants and payloads back in it, as views of the file.

    Ensures: `restore` of a file that `lay_out` made of a program gives that program, if its constants have the size of
    the tensors that use them and its payloads differ and are numbered in the order of their first use. Initial
    values and named data have no place in a program: see `restore_mutable_data` and `restore_named_data`.
    """
    program = file.program
    update: dict[str, object] = {"segments": [], "constant_segment": SubsegmentOffsets()}
    if program.constant_segment.offsets:
        update["constant_buffer"] = _restore_constants(file)
    if program.mutable_data_segments:
        update["mutable_data_segments"] = None
    if program.named_data:
        update["named_data"] = None
    return program.model_copy(update=update | _restore_payloads(file))


def restore_mutable_data(file: PteFile) -> list[Buffer] | None:
    """Return the initial values of mutable buffers as `lay_out` takes them, or `None` if there are none.

    Raises:
        ModelError: EK528 if they are in more than one segment.
    """
    tables = file.program.mutable_data_segments
    if not tables:
        return None
    if len(tables) > 1:
        message = f"the program has {len(tables)} segments of initial values"
        raise ModelError(Diagnostic.of("EK528", message))
    count = len(tables[0].offsets)
    return [Buffer(), *(Buffer(storage=file.mutable_data(index)) for index in range(1, count))]


def restore_named_data(file: PteFile) -> dict[str, NamedBlob] | None:
    """Return the named data as `lay_out` takes it, or `None` if there is none; a file forgets its alignment."""
    entries = file.program.named_data
    return {entry.key: NamedBlob(file.named_data(entry.key)) for entry in entries} if entries else None


def _restore_constants(file: PteFile) -> list[Buffer]:
    used = _used_nbytes(file.program)
    buffers = [Buffer()]
    for index in range(1, len(file.program.constant_segment.offsets)):
        data = file.constant(index)
        stop = used.get(index, len(data))
        buffers.append(Buffer(storage=data[:stop] if _is_padding(data[stop:]) else data))
    return buffers


def _is_padding(tail: memoryview) -> bool:
    return len(tail) < _MAXIMUM_PADDING_NBYTES and not any(tail)


def _used_nbytes(program: Program) -> dict[int, int]:
    """Return how many bytes of each constant the tensors of all plans use."""
    used: dict[int, int] = {}
    for plan in program.execution_plan:
        for value in plan.values:
            tensor = value.val
            if isinstance(tensor, Tensor) and _is_constant(tensor):
                nbytes = (tensor.storage_offset + prod(tensor.sizes)) * tensor.scalar_type.itemsize
                used[tensor.data_buffer_idx] = max(used.get(tensor.data_buffer_idx, 0), nbytes, 0)
    return used


def _is_constant(tensor: Tensor) -> bool:
    return tensor.data_buffer_idx > 0 and tensor.allocation_info is None and tensor.external_name is None


def _restore_payloads(file: PteFile) -> dict[str, object]:
    """Make all payloads inline, numbered in the order of their first use."""
    payloads: list[BackendDelegateInlineData] = []
    numbers: dict[tuple[DataLocation, int], int] = {}

    def place(delegate: BackendDelegate) -> BackendDelegate:
        key = (delegate.processed.location, delegate.processed.index)
        if key not in numbers:
            numbers[key] = len(payloads)
            payloads.append(BackendDelegateInlineData(data=file.delegate_payload(delegate)))
        return delegate.model_copy(update={"processed": BackendDelegateDataReference(index=numbers[key])})

    plans = [
        plan.model_copy(update={"delegates": [place(delegate) for delegate in plan.delegates]})
        for plan in file.program.execution_plan
    ]
    return {"execution_plan": plans, "backend_delegate_data": payloads}

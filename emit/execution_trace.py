"""Execution traces (`.etdp`, ETDump): what a runtime did, how long it took, and which values it computed.

A trace has runs, and a run has events in the order of their ends. Values lie in a second file, the debug buffer, which
has no format of its own: a tensor of the trace says where in it its elements are.

Source: the ETDump schema of ExecuTorch, file identifier `ED00`, which stands behind the size of the flatbuffer.
"""

from __future__ import annotations

from enum import IntEnum
from os import PathLike
from struct import pack, unpack_from
from typing import Annotated, Final

import torch
from pydantic import Field

from exirkit.ir import Diagnostic, ModelError, UsageError

from .file_kinds import FileKind, file_kind, not_of_kind
from .flatbuffer import (
    Absent,
    Fault,
    Flag,
    Float32,
    Float64,
    Int32,
    Int64,
    SmallBlob,
    Table,
    UInt32,
    UInt64,
    decode,
    encode,
)
from .schema import ProgramFormatError, ScalarType
from .segments import FileImage, broken, bytes_view, in_file, malformed, map_file

_IDENTIFIER: Final = b"ED00"
_WHAT: Final = "execution trace"
_SIZE_NBYTES: Final = 4
_ALIGNMENT: Final = 8
_MOST_DIMS: Final = 16
_MOST_ELEMENTS: Final = 2**59


class TraceValueType(IntEnum):
    """What a value of a trace is."""

    NULL = 0
    INT = 1
    BOOL = 2
    FLOAT = 3
    DOUBLE = 4
    TENSOR = 5
    TENSOR_LIST = 6
    STRING = 7


class TraceTensor(Table):
    """A tensor whose elements are in the debug buffer from byte `offset` on."""

    scalar_type: ScalarType = ScalarType.BYTE
    sizes: list[Int64] = Field(default_factory=list)
    strides: list[Int64] = Field(default_factory=list)
    offset: Int64 = 0


class TraceTensorList(Table):
    """A list of tensors."""

    tensors: list[TraceTensor] = Field(default_factory=list)


class TraceInt(Table):
    """An integer."""

    int_val: Int64 = 0


class TraceFloat(Table):
    """A floating-point number of 32 bits."""

    float_val: Float32 = 0.0


class TraceDouble(Table):
    """A floating-point number of 64 bits."""

    double_val: Float64 = 0.0


class TraceBool(Table):
    """A bool."""

    bool_val: Flag = False


class TraceValue(Table):
    """A value: `val` says which of the others is there; `output` is true for an output of the method."""

    val: TraceValueType = TraceValueType.NULL
    tensor: TraceTensor | None = None
    tensor_list: TraceTensorList | None = None
    int_value: TraceInt | None = None
    float_value: TraceFloat | None = None
    double_value: TraceDouble | None = None
    bool_value: TraceBool | None = None
    output: TraceBool | None = None


class DebugEvent(Table):
    """Values of an instruction, of a part of a delegate, or of the method."""

    chain_index: UInt64 = 0
    instruction_id: Annotated[Int32, Absent(-1)] = -1
    debug_entry: TraceValue | None = None
    delegate_debug_id_int: Annotated[Int32, Absent(-1)] = -1
    delegate_debug_id_str: str | None = None
    name: str | None = None


class AllocationEvent(Table):
    """Memory that an allocator gave."""

    allocator_id: Int32 = 0
    allocation_size: UInt64 = 0


class ProfileEvent(Table):
    """Something that took from `start_time` to `end_time`, in units of the runtime; nanoseconds, as a rule."""

    name: str | None = None
    chain_index: Int32 = 0
    instruction_id: Annotated[Int32, Absent(-1)] = -1
    delegate_debug_id_int: Annotated[Int32, Absent(-1)] = -1
    delegate_debug_id_str: str | None = None
    delegate_debug_metadata: SmallBlob = b""
    start_time: UInt64 = 0
    end_time: UInt64 = 0


class TraceEvent(Table):
    """One of three."""

    profile_event: ProfileEvent | None = None
    allocation_event: AllocationEvent | None = None
    debug_event: DebugEvent | None = None


class TraceAllocator(Table):
    """An allocator that is traced."""

    name: str | None = None


class TraceRun(Table):
    """What was traced from one start to its end; `bundled_input_index` is -1 unless a test case was run."""

    name: str | None = None
    bundled_input_index: Annotated[Int32, Absent(-1)] = -1
    allocators: list[TraceAllocator] = Field(default_factory=list)
    events: list[TraceEvent] = Field(default_factory=list)


class ExecutionTrace(Table):
    """The root."""

    version: UInt32 = 0
    run_data: list[TraceRun] = Field(default_factory=list)


def trace_file(trace: ExecutionTrace) -> FileImage:
    """Return a trace, ready to be written.

    Raises:
        ModelError: EK520, a value does not fit its field; EK525, 2 GiB or more.
    """
    encoded = encode(trace, _IDENTIFIER, alignment=_ALIGNMENT, alignments={})
    # Alignments count from the start of the file, as if the size were a part of the flatbuffer.
    chunks = encoded.chunks(bytes(_SIZE_NBYTES))
    first = bytes(chunks[0])
    nbytes = encoded.nbytes(_SIZE_NBYTES)
    (root,) = unpack_from("<I", first)
    start = pack("<II4s", nbytes - _SIZE_NBYTES, root - _SIZE_NBYTES, _IDENTIFIER)
    return FileImage(nbytes, (start + first[len(start) :], *chunks[1:]))


def read_trace(data: object) -> ExecutionTrace:
    """Read a trace that is in memory.

    Raises:
        ProgramFormatError: EK506 to EK515, EK529, EK531, saying what is wrong, at which byte and in which field.
        UsageError: EK521 if `data` is not contiguous bytes.
    """
    view = bytes_view(data)
    if file_kind(view) is not FileKind.TRACE:
        raise malformed("EK529", not_of_kind(view, f"an {_WHAT}"), 8, _IDENTIFIER.decode())
    if bytes(view[8:12]) != _IDENTIFIER:
        raise malformed("EK531", f"the file is of version {bytes(view[8:12]).decode()}", 8, _IDENTIFIER.decode())
    nbytes, root = unpack_from("<II", view)
    end = nbytes + _SIZE_NBYTES
    if end > len(view):
        message = f"the file gives itself {end} bytes, and has {len(view)}"
        raise malformed("EK509", message, 0, "a file that was not cut short")
    try:
        return decode(ExecutionTrace, view[:end], root + _SIZE_NBYTES, what=_WHAT)
    except Fault as fault:
        raise ProgramFormatError(fault.diagnostic(_WHAT)) from None


def open_trace(path: str | PathLike[str]) -> ExecutionTrace:
    """Map a trace into memory and read it.

    Raises:
        ProgramFormatError: As `read_trace`, with the path of the file.
        OSError: The file cannot be opened.
    """
    try:
        return read_trace(map_file(path))
    except ModelError as error:
        raise in_file(error, path) from None


def traced_tensor(stored: TraceTensor, buffer: memoryview | bytes | bytearray) -> torch.Tensor:
    """Return a copy of a tensor of a trace.

    Args:
        stored: What the trace says of it.
        buffer: The debug buffer.

    Raises:
        ProgramFormatError: EK532, it is not a tensor, or not in the buffer.
        UsageError: EK535, torch cannot hold its elements.
    """
    sizes, strides = stored.sizes, stored.strides
    expected = f"at most {_MOST_DIMS} sizes and as many strides, of 0 or more"
    if len(sizes) != len(strides) or len(sizes) > _MOST_DIMS or min((0, *sizes, *strides)) < 0:
        raise broken("EK532", "a traced tensor has wrong sizes or strides", "tensor", expected)
    if not stored.scalar_type.is_plain:
        raise UsageError(Diagnostic.of("EK535", f"a traced value is a tensor of {stored.scalar_type.name}"))
    dtype, elements = stored.scalar_type.dtype, 1
    for size in sizes:
        elements *= max(size, 1)
    if elements >= _MOST_ELEMENTS:
        raise broken("EK532", "a traced tensor is too large", "tensor.sizes", "strides within 64 bits")
    if 0 in sizes:
        return torch.empty(sizes, dtype=dtype)
    # No runtime records elements that share memory: a few bytes would become as many as the sizes ask for.
    if elements * dtype.itemsize > len(buffer):
        message = f"a traced tensor has {elements * dtype.itemsize} bytes, more than the debug buffer"
        raise broken("EK532", message, "tensor.sizes", f"at most {len(buffer)} bytes")
    used = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    start, nbytes = stored.offset, used * dtype.itemsize
    if start < 0 or start + nbytes > len(buffer):
        message = f"a traced tensor is at bytes {start} to {start + nbytes} of the debug buffer"
        raise broken("EK532", message, "tensor.offset", f"0 to {len(buffer)}")
    data = torch.frombuffer(bytearray(memoryview(buffer)[start : start + nbytes]), dtype=dtype)
    return data.as_strided(sizes, strides).clone()

"""The program model of the `.pte` format: one pydantic model per table of the flatbuffer schema, and element types.

The models are the single source of the wire layout. The slots of a table are the fields of its model in the
order in which they stand here (a union takes two), `Wire` gives the width of a scalar, and an omitted field
reads as zero, empty or `None`; the codec derives everything else. New fields go at the end.

Source: the ExecuTorch program schema, file identifier `ET12`.
"""

from __future__ import annotations

from enum import IntEnum
from math import prod
from typing import Annotated, Any, ClassVar, Final, Union

import torch
from pydantic import Discriminator, Field, Tag

from exirkit.ir import Diagnostic, ModelError, TensorShapeDynamism

from .flatbuffer import (
    Blob,
    Flag,
    Float64,
    Int8,
    Int32,
    Int64,
    SmallBlob,
    Table,
    UInt8,
    UInt32,
    UInt64,
    UnionTable,
    member_name,
)


class ProgramFormatError(ModelError):
    """The bytes are not a well-formed program file: nothing can be read from it."""


class ProgramVerifyError(ModelError):
    """The file is well formed, but the program in it breaks a rule of the format and cannot run."""


class ScalarType(IntEnum):
    """Element type of a tensor; the numbers are those of the format (and of torch's C++ `ScalarType`)."""

    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    QUINT4X2 = 16
    QUINT2X4 = 17
    BITS16 = 22
    FLOAT8E5M2 = 23
    FLOAT8E4M3FN = 24
    FLOAT8E5M2FNUZ = 25
    FLOAT8E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29

    @classmethod
    def from_dtype(cls, dtype: torch.dtype) -> ScalarType:
        """Return the element type that stands for `dtype`.

        Raises:
            ModelError: EK501 if the format has no such element type.
        """
        found = _FROM_DTYPE.get(dtype)
        if found is None:
            raise ModelError(
                Diagnostic.of(
                    "EK501",
                    f"the .pte format has no element type for {dtype}",
                    expected=", ".join(str(known).removeprefix("torch.") for known in _FROM_DTYPE),
                    hint="keep real and imaginary parts in two real tensors" if dtype.is_complex else None,
                )
            )
        return found

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype."""
        return _DTYPES[self]

    @property
    def is_plain(self) -> bool:
        """Whether each element lies in bytes of its own, and its value follows from these alone."""
        return self not in _NOT_PLAIN

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes."""
        return _DTYPES[self].itemsize


_DTYPES: Final[dict[ScalarType, torch.dtype]] = {
    ScalarType.BYTE: torch.uint8,
    ScalarType.CHAR: torch.int8,
    ScalarType.SHORT: torch.int16,
    ScalarType.INT: torch.int32,
    ScalarType.LONG: torch.int64,
    ScalarType.HALF: torch.float16,
    ScalarType.FLOAT: torch.float32,
    ScalarType.DOUBLE: torch.float64,
    ScalarType.BOOL: torch.bool,
    ScalarType.QINT8: torch.qint8,
    ScalarType.QUINT8: torch.quint8,
    ScalarType.QINT32: torch.qint32,
    ScalarType.BFLOAT16: torch.bfloat16,
    ScalarType.QUINT4X2: torch.quint4x2,
    ScalarType.QUINT2X4: torch.quint2x4,
    ScalarType.BITS16: torch.bits16,
    ScalarType.FLOAT8E5M2: torch.float8_e5m2,
    ScalarType.FLOAT8E4M3FN: torch.float8_e4m3fn,
    ScalarType.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    ScalarType.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    ScalarType.UINT16: torch.uint16,
    ScalarType.UINT32: torch.uint32,
    ScalarType.UINT64: torch.uint64,
}
# Torch keeps scales with them, or several elements in one byte.
_NOT_PLAIN: Final = frozenset(
    {
        ScalarType.QINT8,
        ScalarType.QUINT8,
        ScalarType.QINT32,
        ScalarType.QUINT4X2,
        ScalarType.QUINT2X4,
        ScalarType.BITS16,
    }
)
_FROM_DTYPE: Final[dict[torch.dtype, ScalarType]] = {dtype: scalar for scalar, dtype in _DTYPES.items()}


IDENTIFIER = b"ET12"
FORCE_ALIGN_BYTES = 16


class TensorDataLocation(IntEnum):
    """Where the data of a constant is: in a segment of this file, or in another file under its name."""

    SEGMENT = 0
    EXTERNAL = 1


class DataLocation(IntEnum):
    """Where the payload of a delegate is: in `Program.backend_delegate_data`, or in `Program.segments`."""

    INLINE = 0
    SEGMENT = 1


class DeviceType(IntEnum):
    """Kind of device that holds a tensor or an arena."""

    CPU = 0
    CUDA = 1


class ContainerMetadata(Table):
    """How inputs and outputs unflatten: pytree specs of `(args, kwargs)` and of the result, as JSON text."""

    encoded_inp_str: str = ""
    encoded_out_str: str = ""


class AllocationDetails(Table):
    """Place of a planned tensor: arena `memory_id` (from 1) and a 64-bit byte offset in two halves."""

    memory_id: UInt32
    memory_offset_low: UInt32 = 0
    memory_offset_high: UInt32 = 0

    @property
    def memory_offset(self) -> int:
        """Offset in bytes from the start of the arena."""
        return self.memory_offset_low | (self.memory_offset_high << 32)

    @classmethod
    def at(cls, memory_id: int, memory_offset: int) -> AllocationDetails:
        """Return the details of byte `memory_offset` (0 <= offset < 2**64) of arena `memory_id`."""
        low, high = memory_offset & 0xFFFFFFFF, memory_offset >> 32
        return cls(memory_id=memory_id, memory_offset_low=low, memory_offset_high=high)


class ExtraTensorInfo(Table):
    """What only few tensors need: a name, data outside the file, or a device."""

    mutable_data_segments_idx: UInt64 = 0
    fully_qualified_name: str | None = None
    location: TensorDataLocation = TensorDataLocation.SEGMENT
    device_type: DeviceType = DeviceType.CPU
    device_index: Int8 = 0


class Tensor(Table):
    """A tensor value; `sizes` are upper bounds unless static, `dim_order` runs from outermost to innermost.

    `data_buffer_idx` and `allocation_info` determine its role: only the index, a constant; only the allocation,
    an activation or a buffer that starts undefined; both, a buffer with an initial value; neither, memory
    that the caller supplies.
    """

    scalar_type: ScalarType
    storage_offset: Int32 = 0
    sizes: list[Int32]
    dim_order: list[UInt8]
    requires_grad: Flag = False
    data_buffer_idx: UInt32 = 0
    allocation_info: AllocationDetails | None = None
    layout: Int8 = 0
    shape_dynamism: TensorShapeDynamism = TensorShapeDynamism.STATIC
    extra_tensor_info: ExtraTensorInfo | None = None

    @property
    def nbytes(self) -> int:
        """Its size at its upper bound, in bytes; sizes below 0 of a file that was not checked count as 0."""
        return self.scalar_type.itemsize * prod(max(size, 0) for size in self.sizes)

    @property
    def external_name(self) -> str | None:
        """The name by which its data is found in another file; None if it is not in another."""
        extra = self.extra_tensor_info
        is_external = extra is not None and extra.location is TensorDataLocation.EXTERNAL
        return (extra.fully_qualified_name or "") if extra is not None and is_external else None


class Null(Table):
    """The value `None`."""


class Int(Table):
    """An integer; also a dtype, layout, memory format or device by its number."""

    int_val: Int64


class Bool(Table):
    """A bool."""

    bool_val: Flag


class Double(Table):
    """A floating-point number."""

    double_val: Float64


class String(Table):
    """A text."""

    string_val: str


class IntList(Table):
    """A list of integers, boxed: `items` are indices of `Int` values of the same plan."""

    items: list[Int64]


class DoubleList(Table):
    """A list of floating-point numbers, by value."""

    items: list[Float64]


class BoolList(Table):
    """A list of bools, by value."""

    items: list[Flag]


class TensorList(Table):
    """A list of tensors: `items` are indices of `Tensor` values."""

    items: list[Int32]


class OptionalTensorList(Table):
    """A list of tensors or `None`: `items` are indices of `Tensor` values, or -1."""

    items: list[Int32]


# The tag on the wire is the position in this union, from 1.
KernelTypes = Union[  # noqa: UP007 - the members are read with typing.get_args
    Annotated[Null, Tag("Null")],
    Annotated[Int, Tag("Int")],
    Annotated[Bool, Tag("Bool")],
    Annotated[Double, Tag("Double")],
    Annotated[Tensor, Tag("Tensor")],
    Annotated[String, Tag("String")],
    Annotated[IntList, Tag("IntList")],
    Annotated[DoubleList, Tag("DoubleList")],
    Annotated[BoolList, Tag("BoolList")],
    Annotated[TensorList, Tag("TensorList")],
    Annotated[OptionalTensorList, Tag("OptionalTensorList")],
]


class EValue(UnionTable):
    """One entry of the value table of a plan."""

    union_field: ClassVar[str] = "val"

    val: Annotated[KernelTypes, Discriminator(member_name)]


class Operator(Table):
    """A kernel by name (`aten::add`) and overload (`out`; empty for the default one)."""

    name: str
    overload: str = ""


class KernelCall(Table):
    """Run operator `op_index` of the plan on the values `args`, its return values last."""

    op_index: Int32
    args: list[Int32]


class DelegateCall(Table):
    """Run delegate `delegate_index` of the plan on the values `args`, inputs first, then outputs."""

    delegate_index: Int32
    args: list[Int32]


class MoveCall(Table):
    """Copy the value `move_from` to the place of value `move_to`."""

    move_from: Int32
    move_to: Int32


class JumpFalseCall(Table):
    """Go on at `destination_instruction` of the chain if the value `cond_value_index` is false."""

    cond_value_index: Int32
    destination_instruction: Int32


class FreeCall(Table):
    """Free the memory of the tensor `value_index`, which has no upper bound of its size."""

    value_index: Int32


InstructionArguments = Union[  # noqa: UP007 - the members are read with typing.get_args
    Annotated[KernelCall, Tag("KernelCall")],
    Annotated[DelegateCall, Tag("DelegateCall")],
    Annotated[MoveCall, Tag("MoveCall")],
    Annotated[JumpFalseCall, Tag("JumpFalseCall")],
    Annotated[FreeCall, Tag("FreeCall")],
]


class Instruction(UnionTable):
    """One step of a chain."""

    union_field: ClassVar[str] = "instr_args"

    instr_args: Annotated[InstructionArguments, Discriminator(member_name)]


class Frame(Table):
    """One frame of a stack trace."""

    filename: str = ""
    lineno: Int32 = 0
    name: str = ""
    context: str = ""


class FrameList(Table):
    """The stack trace of one instruction, outermost frame first."""

    items: list[Frame] = Field(default_factory=list)


class BackendDelegateDataReference(Table):
    """Where a payload is: `index` counts inline payloads or segments."""

    location: DataLocation = DataLocation.INLINE
    index: UInt32 = 0


class CompileSpec(Table):
    """One option that a backend was given when it compiled a delegate."""

    key: str
    value: SmallBlob = b""


class BackendDelegate(Table):
    """One delegate of a plan: the backend by its `id`, the payload it compiled and with which options."""

    id: str
    processed: BackendDelegateDataReference
    compile_specs: list[CompileSpec] = Field(default_factory=list)


class Chain(Table):
    """Instructions that run in order; `inputs` and `outputs` are not in use."""

    inputs: list[Int32] = Field(default_factory=list)
    outputs: list[Int32] = Field(default_factory=list)
    instructions: list[Instruction] = Field(default_factory=list)
    stacktrace: list[FrameList] | None = None


class NonConstBufferDevice(Table):
    """The device that holds arena `buffer_idx`."""

    buffer_idx: Int32 = 0
    device_type: DeviceType = DeviceType.CPU
    device_index: Int8 = 0


class ExecutionPlan(Table):
    """One method of a program; `non_const_buffer_sizes[i]` is the size of arena i in bytes, from 1."""

    name: str
    container_meta_type: ContainerMetadata = Field(default_factory=ContainerMetadata)
    values: list[EValue] = Field(default_factory=list)
    inputs: list[Int32] = Field(default_factory=list)
    outputs: list[Int32] = Field(default_factory=list)
    chains: list[Chain] = Field(default_factory=list)
    operators: list[Operator] = Field(default_factory=list)
    delegates: list[BackendDelegate] = Field(default_factory=list)
    non_const_buffer_sizes: list[Int64] = Field(default_factory=list)
    non_const_buffer_device: list[NonConstBufferDevice] | None = None


class Buffer(Table):
    """The bytes of one constant, never copied: a memoryview stays a view of the memory of its owner."""

    storage: Blob = b""

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Buffer:
        """Share the bytes: weights are read-only and too large to copy."""
        return self.model_copy()


class BackendDelegateInlineData(Table):
    """The payload of one delegate."""

    data: Blob = b""

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BackendDelegateInlineData:
        """Share the bytes."""
        return self.model_copy()


class DataSegment(Table):
    """A range of the file behind the flatbuffer, in bytes; `offset` counts from the segment base."""

    offset: UInt64 = 0
    size: UInt64 = 0


class SubsegmentOffsets(Table):
    """Byte offsets of the blobs inside segment `segment_index`; entry 0 is reserved for "no data"."""

    segment_index: UInt32 = 0
    offsets: list[UInt64] = Field(default_factory=list)


class NamedData(Table):
    """A segment that delegates find by `key`."""

    key: str
    segment_index: UInt32 = 0


class Program(Table):
    """A whole program.

    In memory constants are in `constant_buffer` (entry 0 reserved, empty) and payloads in
    `backend_delegate_data`; in a file both are in `segments`, to which `constant_segment`,
    `mutable_data_segments`, the delegates and `named_data` refer.
    """

    version: UInt32 = 0
    execution_plan: list[ExecutionPlan] = Field(default_factory=list)
    constant_buffer: list[Buffer] = Field(default_factory=list)
    backend_delegate_data: list[BackendDelegateInlineData] = Field(default_factory=list)
    segments: list[DataSegment] = Field(default_factory=list)
    constant_segment: SubsegmentOffsets = Field(default_factory=SubsegmentOffsets)
    mutable_data_segments: list[SubsegmentOffsets] | None = None
    named_data: list[NamedData] | None = None

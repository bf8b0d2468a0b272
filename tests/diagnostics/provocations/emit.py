"""Programs that cannot be written, and files that cannot be read."""

from __future__ import annotations

import functools
from mmap import mmap
from pathlib import Path
from struct import pack_into, unpack_from
from typing import Any

import torch
from tests.diagnostics.provocation import provokes
from tests.runtime_ref.assembly import Assembly

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.emit import (
    BackendDelegateInlineData,
    Buffer,
    Chain,
    DataSegment,
    ExecutionPlan,
    Instruction,
    Int,
    KernelCall,
    NamedBlob,
    Program,
    ProgramFormatError,
    PteFile,
    ScalarType,
    SubsegmentOffsets,
    TensorLayout,
    data_file,
    encode_program,
    lay_out,
    open_program,
    read_data_file,
    read_program,
    read_safetensors,
    restore_mutable_data,
)


def small() -> Program:
    """Return a program with one constant, one list, one text and one kernel call."""
    made = Assembly()
    weight, out = made.constant(torch.ones(2)), made.tensor([2])
    made.call("aten::sum.IntList_out", weight, made.argument([0]), made.argument(False), made.argument(None), out, out)
    made.argument("text")
    return made.program([], [out])


@functools.cache
def small_file() -> bytes:
    return lay_out(small()).to_bytes()


@functools.cache
def damaged() -> dict[str, bytes]:
    """Return for each code the first file, with one byte of the flatbuffer changed, that gives it."""
    found: dict[str, bytes] = {}
    (size,) = unpack_from("<Q", small_file(), 16)
    for position in range(40, size):
        for byte in (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF):
            data = bytearray(small_file())
            data[position] = byte
            try:
                read_program(bytes(data))
            except ProgramFormatError as error:
                found.setdefault(error.code, bytes(data))
    return found


def _register_damage(code: str) -> None:
    @provokes(code)
    def read_damaged(_: Path) -> None:
        read_program(damaged()[code])


for _code in ("EK506", "EK507", "EK508", "EK509", "EK510", "EK511", "EK512", "EK514"):
    _register_damage(_code)


@provokes("EK501")
def complex_tensor(_: Path) -> None:
    ScalarType.from_dtype(torch.complex64)


@provokes("EK502")
def file_of_another_kind(scratch: Path) -> None:
    path = scratch / "model.pt2"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    open_program(path)


@provokes("EK503")
def file_of_another_version(_: Path) -> None:
    data = bytearray(small_file())
    data[4:8] = b"ET99"
    read_program(data)


@provokes("EK504")
def file_without_content(_: Path) -> None:
    read_program(b"")


@provokes("EK505")
def file_cut_short(_: Path) -> None:
    read_program(small_file()[:-1])


@provokes("EK513")
def delegate_without_payload(_: Path) -> None:
    made = Assembly()
    made.delegate("SomeBackend")
    program = made.program()
    program.execution_plan[0].delegates[0].processed.index = 3
    read_program(b"".join(encode_program(program).chunks()))


@provokes("EK515")
def program_far_larger_than_its_file(_: Path) -> None:
    call = Instruction(instr_args=KernelCall(op_index=0, args=list(range(500))))
    large = ExecutionPlan(name="large", chains=[Chain(instructions=[call])])
    plans = [large, *(ExecutionPlan(name=f"small {index}") for index in range(500))]
    data = bytearray(b"".join(encode_program(Program(execution_plan=plans)).chunks()))
    # Every entry of the root's vector of plans is made to lead to the large one.
    (root,) = unpack_from("<I", data)
    vtable = root - unpack_from("<i", data, root)[0]
    field = root + unpack_from("<H", data, vtable + 4 + 2 * 1)[0]
    vector = field + unpack_from("<I", data, field)[0]
    target = vector + 4 + unpack_from("<I", data, vector + 4)[0]
    for index in range(len(plans)):
        entry = vector + 4 + 4 * index
        pack_into("<I", data, entry, target - entry)
    read_program(data)


def read_with(**fields: Any) -> PteFile:
    """Write a program just as it is, without segments behind it, and read it."""
    return read_program(b"".join(encode_program(Program(**fields)).chunks()))


@provokes("EK516")
def segment_outside_of_the_file(_: Path) -> None:
    read_with(segments=[DataSegment(offset=0, size=1 << 20)])


@provokes("EK517")
def constants_in_no_order(_: Path) -> None:
    read_with(segments=[DataSegment()], constant_segment=SubsegmentOffsets(offsets=[0, 64]))


@provokes("EK518")
def constant_with_fewer_bytes(_: Path) -> None:
    read_program(small_file()).constant(1, nbytes=100)


@provokes("EK519")
def constants_in_two_places(_: Path) -> None:
    read_with(
        constant_buffer=[Buffer(), Buffer(storage=bytes(4))],
        segments=[DataSegment()],
        constant_segment=SubsegmentOffsets(offsets=[0, 0]),
    )


@provokes("EK520")
def number_too_large_for_its_field(_: Path) -> None:
    made = Assembly()
    made.value(Int.model_construct(int_val=1 << 70))
    lay_out(made.program())


@provokes("EK521")
def alignment_that_is_not_a_power_of_two(_: Path) -> None:
    lay_out(small(), segment_alignment=48)


@provokes("EK522")
def program_already_in_segments(_: Path) -> None:
    lay_out(read_program(small_file()).program)


@provokes("EK523")
def constant_that_is_not_there(_: Path) -> None:
    read_program(small_file()).constant(7)


@provokes("EK524")
def named_data_that_is_not_there(_: Path) -> None:
    data = lay_out(small(), named_data={"weights": NamedBlob(b"1234")}).to_bytes()
    read_program(data).named_data("weight")


@provokes("EK525")
def program_of_two_gibibytes(_: Path) -> None:
    # Anonymous memory that nothing touches costs nothing, and the encoder does not copy it.
    view = memoryview(mmap(-1, 1 << 31))
    encode_program(Program(constant_buffer=[Buffer(storage=view)]))


@provokes("EK526")
def payload_of_no_delegate(_: Path) -> None:
    lay_out(small().model_copy(update={"backend_delegate_data": [BackendDelegateInlineData(data=b"1")]}))


@provokes("EK527")
def file_that_is_closed(scratch: Path) -> None:
    path = scratch / "small.pte"
    path.write_bytes(small_file())
    with open_program(path) as file:
        pass
    file.constant(1)


@provokes("EK528")
def two_segments_of_initial_values(_: Path) -> None:
    tables = [SubsegmentOffsets(offsets=[0]), SubsegmentOffsets(offsets=[0])]
    restore_mutable_data(read_with(segments=[DataSegment()], mutable_data_segments=tables))


@functools.cache
def small_data_file() -> bytes:
    layout = TensorLayout(scalar_type=ScalarType.FLOAT, sizes=[2, 3], dim_order=[0, 1])
    return data_file({"weight": NamedBlob(bytes(24), layout=layout), "blob": NamedBlob(b"1234")}).to_bytes()


@provokes("EK529")
def program_instead_of_data_file(_: Path) -> None:
    read_data_file(small_file())


@provokes("EK530")
def data_file_that_is_cut_short(_: Path) -> None:
    read_data_file(small_data_file()[:-1])


@provokes("EK531")
def data_file_of_a_later_version(_: Path) -> None:
    read_data_file(small_data_file().replace(b"FT01", b"FT02"))


@provokes("EK532")
def tensor_larger_than_its_data(_: Path) -> None:
    layout = TensorLayout(scalar_type=ScalarType.FLOAT, sizes=[2, 3], dim_order=[0, 1])
    read_data_file(data_file({"weight": NamedBlob(bytes(20), layout=layout)}).to_bytes())


class Scaled(torch.nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([scale]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


@provokes("EK533")
def constants_of_one_name(_: Path) -> None:
    methods = {
        name: torch.export.export(Scaled(scale), (torch.ones(2),)) for name, scale in (("one", 1.0), ("two", 2.0))
    }
    to_edge(methods).to_executorch(ExecutorchBackendConfig(external_constants=True))


@provokes("EK534")
def key_in_two_files(_: Path) -> None:
    file = read_program(small_file())
    file.attach([read_data_file(small_data_file()), read_data_file(small_data_file())])


@provokes("EK546")
def safetensors_file_of_no_bytes(scratch: Path) -> None:
    path = scratch / "weights.safetensors"
    path.write_bytes(b"nothing")
    read_safetensors(path)


@provokes("EK535")
def blob_as_a_tensor(_: Path) -> None:
    read_data_file(small_data_file()).tensor("blob")

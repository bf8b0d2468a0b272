"""Programs survive the way through bytes, and equal programs give equal bytes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.emit.sample_programs import full_program, plan, tables, tensor

from exirkit.emit import (
    Buffer,
    Chain,
    Double,
    EValue,
    ExecutionPlan,
    FreeCall,
    Instruction,
    Int,
    JumpFalseCall,
    KernelCall,
    Null,
    Program,
    PteFile,
    String,
    Tensor,
    encode_program,
    read_program,
)
from exirkit.ir import ModelError


def encode(program: Program, **alignments: int) -> bytes:
    return b"".join(encode_program(program, **alignments).chunks())


def decode(data: bytes) -> Program:
    return read_program(data).program


def without_references(program: Program) -> Program:
    """Drop what must lead into segments, which a generated program does not have."""
    plans = [each.model_copy(update={"delegates": []}) for each in program.execution_plan]
    nothing: dict[str, Any] = {"segments": [], "mutable_data_segments": None, "named_data": []}
    nothing["constant_segment"] = program.constant_segment.model_copy(update={"offsets": []})
    return program.model_copy(update={"execution_plan": plans, **nothing})


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(Program))
def test_any_program_survives(program: Program) -> None:
    program = without_references(program)
    data = encode(program)
    read = decode(data)
    assert read == program
    assert encode(read) == data


@settings(max_examples=150, deadline=None)
@given(tables(EValue))
def test_any_value_survives(value: EValue) -> None:
    program = Program(execution_plan=[ExecutionPlan(name="f", values=[value, value])])
    assert decode(encode(program)) == program


@settings(max_examples=60, deadline=None)
@given(tables(Instruction))
def test_any_instruction_survives(instruction: Instruction) -> None:
    program = Program(execution_plan=[ExecutionPlan(name="f", chains=[Chain(instructions=[instruction])])])
    assert decode(encode(program)) == program


def test_every_field_of_the_full_program_survives() -> None:
    program = full_program()
    assert decode(encode(program)) == program
    assert decode(encode(program)).model_dump_json() == program.model_dump_json()


def test_empty_program_survives() -> None:
    assert decode(encode(Program())) == Program()


def test_absent_and_empty_lists_stay_apart() -> None:
    empty, absent = Program(named_data=[], mutable_data_segments=[]), Program()
    assert decode(encode(empty)) == empty
    assert decode(encode(empty)) != absent


@pytest.mark.parametrize("bits", [0x8000000000000000, 0x7FF8000000000001, 0xFFF0000000000000, 1])
def test_bits_of_floats_survive(bits: int) -> None:
    (number,) = struct.unpack("<d", struct.pack("<Q", bits))
    values = [EValue(val=Double(double_val=each)) for each in (0.0, number, number)]
    read = decode(encode(Program(execution_plan=[ExecutionPlan(name="f", values=values)])))
    found = [value.val.double_val for value in read.execution_plan[0].values if isinstance(value.val, Double)]
    assert [struct.pack("<d", each) for each in found] == [struct.pack("<d", each) for each in (0.0, number, number)]


def test_equal_values_share_their_bytes() -> None:
    def size(values: list[Any]) -> int:
        return len(encode(Program(execution_plan=[plan(values, [])])))

    assert size([Int(int_val=1)] * 1000) - size([Int(int_val=1)]) < 4 * 1000 + 16
    distinct = [Int(int_val=number) for number in range(1000)]
    assert size(distinct) - size([Int(int_val=1)]) > 20 * 1000


def test_values_that_were_shared_in_the_file_are_objects_of_their_own() -> None:
    program = decode(encode(Program(execution_plan=[plan([Int(int_val=1), Int(int_val=1)], [])])))
    first, second = (value.val for value in program.execution_plan[0].values)
    assert isinstance(first, Int)
    first.int_val = 2
    assert second == Int(int_val=1)


@pytest.mark.parametrize("alignment", [16, 64, 1024])
def test_inline_data_is_aligned_and_not_copied(alignment: int) -> None:
    blobs = [Buffer(storage=b"x" * nbytes) for nbytes in (0, 1, 17, 9000)]
    encoded = encode_program(Program(constant_buffer=blobs), constant_alignment=alignment)
    assert any(chunk is blobs[-1].storage for chunk in encoded.chunks())
    data = b"".join(encoded.chunks())
    start = address(data)
    for blob, read in zip(blobs, read_program(data).program.constant_buffer, strict=True):
        assert read == blob
        assert not len(blob.storage) or (address(read.storage) - start) % alignment == 0


def address(data: bytes | memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)


def test_decoded_blobs_are_views() -> None:
    data = bytearray(encode(Program(constant_buffer=[Buffer(storage=b"weights!")])))
    storage = read_program(data).program.constant_buffer[0].storage
    at = data.index(b"weights!")
    data[at] = ord("W")
    assert bytes(storage) == b"Weights!"


def faulty(fault: str) -> Program:
    program = Program(execution_plan=[plan([tensor(2), Int(int_val=1)], [KernelCall(op_index=0, args=[0])])])
    program.constant_buffer.append(Buffer())
    first, second = (value.val for value in program.execution_plan[0].values)
    assert isinstance(first, Tensor)
    assert isinstance(second, Int)
    changes: dict[str, tuple[Any, str, Any]] = {
        "too large": (second, "int_val", 2**63),
        "float": (second, "int_val", 1.5),
        "element": (first, "sizes", [2**31]),
        "no list": (first, "sizes", 3),
        "enum": (first, "scalar_type", 8),
        "none": (first, "dim_order", None),
        "text": (program.execution_plan[0], "name", "\ud800"),
        "other table": (program.execution_plan[0].values[0], "val", KernelCall(op_index=0, args=[])),
        "table": (first, "allocation_info", String(string_val="")),
        "table element": (program.execution_plan[0], "operators", [3]),
        "bool": (first, "requires_grad", 2),
        "blob": (program.constant_buffer[0], "storage", "text"),
    }
    place, name, value = changes[fault]
    setattr(place, name, value)
    return program


@pytest.mark.parametrize(
    ("fault", "path"),
    [
        ("too large", "execution_plan[0].values[1].val.int_val"),
        ("float", "execution_plan[0].values[1].val.int_val"),
        ("element", "execution_plan[0].values[0].val.sizes"),
        ("no list", "execution_plan[0].values[0].val.sizes"),
        ("enum", "execution_plan[0].values[0].val.scalar_type"),
        ("none", "execution_plan[0].values[0].val.dim_order"),
        ("text", "execution_plan[0].name"),
        ("other table", "execution_plan[0].values[0]"),
        ("table", "execution_plan[0].values[0].val.allocation_info"),
        ("table element", "execution_plan[0].operators[0]"),
        ("bool", "execution_plan[0].values[0].val.requires_grad"),
        ("blob", "constant_buffer[0].storage"),
    ],
)
def test_what_the_format_cannot_hold_is_rejected(fault: str, path: str) -> None:
    with pytest.raises(ModelError) as error:
        encode_program(faulty(fault))
    assert error.value.code == "EK520"
    assert error.value.diagnostics[0].location.node == path


def test_too_large_programs_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exirkit.emit.flatbuffer.writer.MAXIMUM_NBYTES", 1000)
    with pytest.raises(ModelError) as error:
        encode_program(Program(constant_buffer=[Buffer(storage=bytes(990))]))
    assert error.value.code == "EK525"
    with pytest.raises(ModelError) as error:
        encode_program(Program(execution_plan=[plan([Int(int_val=each) for each in range(100)], [])]))
    assert error.value.code == "EK525"


@pytest.mark.parametrize("value", [Null(), Double(double_val=0.5)])
def test_values_that_are_shared_most_can_be_read(value: Any) -> None:
    calls = [FreeCall(value_index=3)] * 2000 + [JumpFalseCall(cond_value_index=1, destination_instruction=2)] * 2000
    program = Program(execution_plan=[plan([value] * 20_000, calls)])
    assert decode(encode(program)) == program


def test_result_is_a_file() -> None:
    assert isinstance(read_program(encode(full_program())), PteFile)

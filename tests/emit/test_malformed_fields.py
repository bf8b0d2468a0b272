"""Each way in which a flatbuffer can be malformed has its code, and the diagnostic says where."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.emit.sample_programs import plan, tensor

from exirkit.emit import (
    BoolList,
    DataSegment,
    Double,
    DoubleList,
    Int,
    KernelCall,
    Operator,
    Program,
    ProgramFormatError,
    ScalarType,
    String,
    Tensor,
    encode_program,
    read_program,
)
from exirkit.ir import Diagnostic


def encode(*values: Any, **fields: Any) -> bytes:
    program = Program(execution_plan=[plan(list(values), [], name="method", **fields)])
    return b"".join(encode_program(program).chunks())


def changed(data: bytes, position: int, new: bytes) -> bytes:
    assert 0 <= position <= len(data) - len(new)
    return data[:position] + new + data[position + len(new) :]


def only_difference(left: bytes, right: bytes) -> int:
    (position,) = (at for at, (one, other) in enumerate(zip(left, right, strict=True)) if one != other)
    return position


def fault_of(data: bytes) -> tuple[Diagnostic, str | None, int | None]:
    with pytest.raises(ProgramFormatError) as error:
        read_program(data)
    diagnostic = error.value.diagnostics[0]
    return diagnostic, diagnostic.location.node, diagnostic.location.offset_bytes


def check(data: bytes, code: str, path: str, offset: int) -> Diagnostic:
    diagnostic, node, at = fault_of(data)
    assert (diagnostic.code, node, at) == (code, path, offset)
    return diagnostic


VALUE = "execution_plan[0].values[0].val"
SIZES = struct.pack("<I3i", 3, 111, 222, 333)
TENSOR = encode(tensor(111, 222, 333))


def test_unknown_scalar_type() -> None:
    other = Tensor(scalar_type=ScalarType.DOUBLE, sizes=[111, 222, 333], dim_order=[0, 1, 2])
    position = only_difference(TENSOR, encode(other))
    diagnostic, node, _ = fault_of(changed(TENSOR, position, b"\x08"))
    assert (diagnostic.code, node) == ("EK512", f"{VALUE}.scalar_type")
    assert "8 is not a value of scalar_type" in diagnostic.message
    assert "6 (FLOAT)" in str(diagnostic.expected)


def test_bools_are_zero_or_one() -> None:
    data = encode(BoolList(items=[False]))
    position = only_difference(data, encode(BoolList(items=[True])))
    check(changed(data, position, b"\2"), "EK512", f"{VALUE}.items[0]", position)


@pytest.mark.parametrize("tag", [0, 12, 255])
def test_unknown_union_tag(tag: int) -> None:
    data = encode(Int(int_val=1))
    (tiny,) = struct.unpack("<d", struct.pack("<q", 1))
    position = only_difference(data, encode(Double(double_val=tiny)))
    check(changed(data, position, bytes([tag])), "EK511", VALUE, position)


@pytest.mark.parametrize("count", [2**32 - 1, 2**31, 1000])
def test_vector_past_the_end(count: int) -> None:
    position = TENSOR.index(SIZES)
    check(changed(TENSOR, position, struct.pack("<I", count)), "EK509", f"{VALUE}.sizes", position)


def test_text_that_is_not_a_unicode() -> None:
    position = TENSOR.index(b"method")
    check(changed(TENSOR, position + 2, b"\xff"), "EK514", "execution_plan[0].name", position + 2)


def test_text_without_its_end() -> None:
    data = encode(String(string_val="abcd"))
    position = data.index(b"abcd\0") + 4
    check(changed(data, position, b"e"), "EK514", f"{VALUE}.string_val", position)


def offset_to(data: bytes, target: int) -> int:
    """Return where the offset is that leads to byte `target`."""
    found = (at for at in range(8, target, 4) if at + int.from_bytes(data[at : at + 4], "little") == target)
    return next(found)


@pytest.mark.parametrize("offset", [0, 2**32 - 1, 2**31])
def test_offset_out_of_the_program(offset: int) -> None:
    at = offset_to(TENSOR, TENSOR.index(SIZES))
    check(changed(TENSOR, at, struct.pack("<I", offset)), "EK506", f"{VALUE}.sizes", at)


def test_vector_off_its_alignment() -> None:
    at = offset_to(TENSOR, TENSOR.index(SIZES))
    diagnostic, node, _ = fault_of(changed(TENSOR, at, struct.pack("<I", TENSOR.index(SIZES) - at + 2)))
    assert (diagnostic.code, node) == ("EK508", f"{VALUE}.sizes")


def vtable_of_operator(data: bytes) -> int:
    """Return where the vtable of a table of two fields is; the container metadata has the same, and is read first."""
    return data.index(struct.pack("<HHHH", 8, 12, 4, 8))


METADATA = "execution_plan[0].container_meta_type"
OPERATOR = encode(operators=[Operator(name="aten::add", overload="out")])


@pytest.mark.parametrize(
    ("place", "number", "code"),
    [
        (0, 3, "EK507"),
        (0, 2, "EK507"),
        (0, 9, "EK507"),
        (0, 0xFFFE, "EK507"),
        (2, 0, "EK507"),
        (2, 8, "EK507"),
        (4, 2, "EK507"),
        (4, 8, "EK507"),
        (4, 10, "EK507"),
        (6, 0xFFFF, "EK507"),
        (4, 0, "EK510"),
    ],
)
def test_malformed_vtable(place: int, number: int, code: str) -> None:
    vtable = vtable_of_operator(OPERATOR)
    diagnostic, node, at = fault_of(changed(OPERATOR, vtable + place, struct.pack("<H", number)))
    assert (diagnostic.code, at) == (code, vtable)
    assert str(node).startswith("execution_plan[0].operators[0]" if code == "EK510" else METADATA)


def test_table_past_the_end() -> None:
    vtable = vtable_of_operator(OPERATOR)
    diagnostic, _, _ = fault_of(changed(OPERATOR, vtable + 2, struct.pack("<H", 0x7000)))
    assert diagnostic.code == "EK509"


@pytest.mark.parametrize("distance", [-(2**31), 2**31 - 1, 5])
def test_vtable_out_of_the_program(distance: int) -> None:
    root = int.from_bytes(OPERATOR[:4], "little")
    diagnostic, node, at = fault_of(changed(OPERATOR, root, struct.pack("<i", distance)))
    assert diagnostic.code in ("EK506", "EK508")
    assert (node, at) == ("program", root)


def test_optional_field_at_the_end_may_be_absent() -> None:
    vtable = vtable_of_operator(OPERATOR)
    program = read_program(changed(OPERATOR, vtable + 6, b"\0\0")).program
    assert program.execution_plan[0].operators == [Operator(name="aten::add")]


def test_call_without_arguments() -> None:
    program = Program(execution_plan=[plan([], [KernelCall(op_index=7, args=[1])])])
    data = b"".join(encode_program(program).chunks())
    # Two fields of 4 bytes, like those of an operator.
    diagnostic, node, _ = fault_of(changed(data, vtable_of_operator(data) + 6, b"\0\0"))
    assert (diagnostic.code, node) == ("EK510", "execution_plan[0].chains[0].instructions[0].instr_args.args")


def test_fields_of_newer_versions_are_ignored() -> None:
    # The vtable grows over what follows it in the file, whatever that is: the new entries are not examined.
    grown = changed(OPERATOR, vtable_of_operator(OPERATOR), struct.pack("<H", 12))
    assert read_program(grown).program == read_program(OPERATOR).program


@pytest.mark.parametrize("value", [Int(int_val=1), DoubleList(items=[0.5])])
def test_wide_numbers_off_their_alignment(value: Any) -> None:
    data = encode(value)
    root = int.from_bytes(data[:4], "little")
    inserted = struct.pack("<I", root + 4) + data[4:8] + bytes(4) + data[8:]
    diagnostic, _, _ = fault_of(inserted)
    assert diagnostic.code == "EK508"
    twice = struct.pack("<I", root + 8) + data[4:8] + bytes(8) + data[8:]
    assert read_program(twice).program == read_program(data).program


def test_wide_fields_that_cannot_both_be_aligned() -> None:
    program = Program(segments=[DataSegment(offset=1, size=1)])
    data = b"".join(encode_program(program).chunks())
    vtable = data.index(struct.pack("<HHHH", 8, 20, 4, 12))
    check(changed(data, vtable + 2, struct.pack("<HHH", 24, 4, 16)), "EK508", "segments[0]", vtable)

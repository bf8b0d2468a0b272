"""The program model: what it accepts, its JSON form, and the element types."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from pydantic import ValidationError
from tests.emit.sample_programs import full_program, tables, tensor

from exirkit.emit import (
    AllocationDetails,
    Buffer,
    Double,
    EValue,
    Instruction,
    Int,
    IntList,
    KernelCall,
    NamedData,
    Null,
    Program,
    ScalarType,
    Tensor,
    TensorList,
)
from exirkit.ir import ModelError


def test_json_brings_a_program_back() -> None:
    program = full_program()
    assert Program.model_validate_json(program.model_dump_json()) == program
    assert Program.model_validate(program.model_dump()) == program


@settings(max_examples=60, deadline=None)
@given(tables(EValue))
def test_json_brings_any_value_back(value: EValue) -> None:
    assert (
        EValue.model_validate_json(value.model_dump_json()) == value
        or "Infinity" in repr(value)
        or "inf" in repr(value)
    )


def test_json_has_infinities() -> None:
    value = EValue(val=Double(double_val=float("-inf")))
    assert json.loads(value.model_dump_json())["val"] == {"double_val": "-Infinity"}
    assert EValue.model_validate_json(value.model_dump_json()) == value


def test_json_names_the_member_of_a_union() -> None:
    assert EValue(val=TensorList(items=[1])).model_dump() == {"val_type": "TensorList", "val": {"items": [1]}}
    with pytest.raises(ValidationError, match="val_type"):
        EValue.model_validate({"val_type": "Nothing", "val": {}})


def test_schema_can_be_written_as_json_schema() -> None:
    assert Program.model_json_schema()["title"] == "Program"


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (Int, {"int_val": 2**63}),
        (Int, {"int_val": True}),
        (Int, {"int_val": 1.0}),
        (Double, {"double_val": "1"}),
        (IntList, {"items": [1.5]}),
        (NamedData, {"key": "k", "segment_index": -1}),
        (AllocationDetails, {"memory_id": 1, "memory_offset_low": 2**32}),
        (Tensor, {"scalar_type": 8, "sizes": [], "dim_order": []}),
        (Tensor, {"scalar_type": 6, "sizes": [], "dim_order": [256]}),
        (KernelCall, {"op_index": 0, "args": [2**31]}),
        (EValue, {"val": KernelCall(op_index=0, args=[])}),
        (Instruction, {"instr_args": Null()}),
        (Null, {"unknown": 1}),
        (Buffer, {"storage": 3}),
    ],
)
def test_what_no_field_can_hold_is_rejected(model: type[Any], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model(**fields)


def test_sizes_may_be_a_torch_size() -> None:
    sizes: Any = torch.Size([2, 3])
    assert Tensor(scalar_type=ScalarType.INT, sizes=sizes, dim_order=[0, 1]).sizes == [2, 3]


def test_offsets_are_one_number_in_two_halves() -> None:
    details = AllocationDetails.at(3, 5 * 2**32 + 7)
    assert (details.memory_offset_low, details.memory_offset_high) == (7, 5)
    assert details.memory_offset == 5 * 2**32 + 7


def test_weights_are_never_copied() -> None:
    owner = bytearray(b"weights")
    buffer = Buffer(storage=memoryview(owner))
    program = copy.deepcopy(Program(constant_buffer=[buffer]))
    owner[0] = ord("W")
    assert bytes(program.constant_buffer[0].storage) == b"Weights"
    assert bytes(buffer.model_copy(deep=True).storage) == b"Weights"


def test_weights_of_other_formats_are_seen_as_bytes() -> None:
    array = memoryview(b"12345678").cast("i")
    assert len(Buffer(storage=array).storage) == 8
    with pytest.raises(ValidationError, match="contiguous"):
        Buffer(storage=memoryview(b"12345678")[::2])


def test_deep_copies_are_independent() -> None:
    program = full_program()
    other = copy.deepcopy(program)
    assert other == program
    other.execution_plan[0].inputs.append(9)
    assert other != program


@pytest.mark.parametrize("scalar_type", list(ScalarType))
def test_dtypes_and_element_types_match(scalar_type: ScalarType) -> None:
    assert ScalarType.from_dtype(scalar_type.dtype) is scalar_type
    assert scalar_type.itemsize == scalar_type.dtype.itemsize


def test_numbers_are_those_of_torch() -> None:
    assert {name: int(ScalarType[name]) for name in ("BYTE", "FLOAT", "BOOL", "BFLOAT16", "UINT64")} == {
        "BYTE": 0,
        "FLOAT": 6,
        "BOOL": 11,
        "BFLOAT16": 15,
        "UINT64": 29,
    }


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bits8, torch.float4_e2m1fn_x2])
def test_other_dtypes_are_rejected(dtype: torch.dtype) -> None:
    with pytest.raises(ModelError) as error:
        ScalarType.from_dtype(dtype)
    assert error.value.code == "EK501"
    assert str(dtype) in str(error.value)


def test_tensor_has_the_defaults_of_the_format() -> None:
    plain = tensor(2)
    assert (plain.data_buffer_idx, plain.allocation_info, plain.storage_offset) == (0, None, 0)

"""Listings of programs."""

from __future__ import annotations

import io

import pytest
from tests.emit.sample_programs import full_program, plan, tensor

from exirkit.emit import (
    AllocationDetails,
    BoolList,
    Double,
    FreeCall,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Null,
    Operator,
    OptionalTensorList,
    Program,
    ScalarType,
    String,
    Tensor,
    TensorList,
    format_program,
    print_program,
)
from exirkit.ir import TensorShapeDynamism


def listing(program: Program, **options: bool) -> str:
    out = io.StringIO()
    print_program(program, out=out, **options)
    return out.getvalue()


def planned(offset: int, *sizes: int, **fields: object) -> Tensor:
    return tensor(*sizes, allocation_info=AllocationDetails.at(1, offset), **fields)


def small_program() -> Program:
    values = [
        tensor(2, 4, data_buffer_idx=1),
        planned(0, 2, 4),
        planned(32, 2, 2),
        Tensor(
            scalar_type=ScalarType.LONG, sizes=[2, 2], dim_order=[1, 0], allocation_info=AllocationDetails.at(1, 48)
        ),
        Int(int_val=2),
        Int(int_val=-1),
        IntList(items=[4, 5]),
        TensorList(items=[2, 3]),
        Null(),
        Int(int_val=0),
        planned(0, 2, 4, shape_dynamism=TensorShapeDynamism.DYNAMIC_BOUND),
    ]
    calls = [
        KernelCall(op_index=0, args=[1, 0, 4, 1, 1]),
        KernelCall(op_index=1, args=[1, 4, 5, 2, 3, 7]),
        KernelCall(op_index=2, args=[1, 0, 8, 1]),
        KernelCall(op_index=3, args=[1, 4, 9]),
        KernelCall(op_index=4, args=[1, 6, 10, 10]),
        JumpFalseCall(cond_value_index=9, destination_instruction=0),
        MoveCall(move_from=1, move_to=2),
        FreeCall(value_index=3),
    ]
    names = [("add", "out"), ("topk", "values"), ("copy_", ""), ("sym_size", "int"), ("view_copy", "out")]
    operators = [Operator(name=f"aten::{name}", overload=overload) for name, overload in names]
    return Program(
        execution_plan=[
            plan(values, calls, inputs=[1], outputs=[2, 3], operators=operators, non_const_buffer_sizes=[0, 96])
        ]
    )


CONDENSED = """\
program of version 0: 1 method, 0 constants, 0 named blobs, 0 bytes of data

method forward(%1) -> (%2, %3)
  arena 1: 96 bytes
  values:
    %0: f32[2, 4], constant 1
    %1: f32[2, 4], arena 1 bytes 0..32, input
    %2: f32[2, 2], arena 1 bytes 32..48, output
    %3: i64[2, 2] dim order (1, 0), arena 1 bytes 48..80, output
    %9: Int 0
    %10: f32[2, 4] dynamic bound, arena 1 bytes 0..32
  instructions:
    0: aten::add.out(%1, %0, 2, out=%1)
    1: aten::topk.values(%1, 2, -1, out=(%2, %3))
    2: %1 = aten::copy_(%1, %0, None)
    3: aten::sym_size.int(%1, 2, %9)
    4: aten::view_copy.out(%1, [2, -1], out=%10)
    5: jump to 0 unless %9
    6: %2 = %1
    7: free %3
"""


def test_condensed_listing() -> None:
    assert listing(small_program()) == CONDENSED


def test_listing_without_memory() -> None:
    text = listing(small_program(), show_meminfo=False)
    assert "arena" not in text
    assert "%1: f32[2, 4], input" in text


def test_delegates_devices_names_and_initial_values() -> None:
    text = listing(full_program())
    assert "delegate 0 Backend(%0, %1)" in text
    assert "  delegate 1: Other, payload 1, level (2 bytes), empty (0 bytes)" in text
    assert "  arena 2: 64 bytes on cuda:1" in text
    assert '%3: f32[4], initial value 1, "layer.weight", arena 1 bytes 0..16' in text
    assert "2 methods, 2 constants" in text


def test_verbose_listing_has_every_field() -> None:
    text = listing(full_program(), verbose=True)
    for line in (
        "            sizes: [2, 3]",
        "            scalar_type: FLOAT (6)",
        "        [8] EValue\n          val: String\n            string_val: 'grüße'",
        "              args: [0, 1, 5, 2, 2]",
        "              memory_offset_high: 2",
        "                  lineno: 41",
        "          storage: 24 bytes".removeprefix("    "),
        "  named_data: None",
    ):
        assert line in text, line


def test_standard_output_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    print_program(small_program())
    assert capsys.readouterr().out == CONDENSED
    assert "\n".join(format_program(small_program())) + "\n" == CONDENSED


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Double(double_val=0.1), "0.1"),
        (String(string_val='a"b\n'), '"a\\"b\\n"'),
        (String(string_val="x" * 100), '"' + "x" * 55 + '..."'),
        (BoolList(items=[True, False]), "[True, False]"),
        (IntList(items=[1] * 40), "[7" + ", 7" * 15 + ", ... 40 in all]"),
        (IntList(items=[0, 9]), "[%0, %9?]"),
        (OptionalTensorList(items=[2, -1]), "[%2, None]"),
    ],
)
def test_literals(value: object, text: str) -> None:
    operators = [Operator(name="f", overload="out")]
    program = Program(
        execution_plan=[
            plan([value, Int(int_val=7), tensor(1)], [KernelCall(op_index=0, args=[0, 2, 2])], operators=operators)
        ]
    )
    assert listing(program).splitlines()[-1] == f"    0: f.out({text}, out=%2)"


def test_indices_that_lead_nowhere_are_marked() -> None:
    calls = [KernelCall(op_index=3, args=[5, 6]), MoveCall(move_from=-1, move_to=9), KernelCall(op_index=-1, args=[])]
    text = listing(Program(execution_plan=[plan([], calls, inputs=[4])]))
    assert "method forward(%4?) -> ()" in text
    assert "0: operator 3?(%5?, %6?)" in text
    assert "1: %9? = %-1?" in text
    assert "2: operator -1?()" in text

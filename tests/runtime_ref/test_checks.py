"""Everything that the static check rejects: one broken program per rule, and none of the good ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.runtime_ref.assembly import Assembly

from exirkit.emit import (
    AllocationDetails,
    DelegateCall,
    DeviceType,
    ExtraTensorInfo,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    NonConstBufferDevice,
    ProgramVerifyError,
    PteFile,
    ScalarType,
    TensorDataLocation,
    read_program,
)
from exirkit.runtime_ref import Limits, verify_program

# What each function does to a program that is right: see `good`.
Damage = Callable[[Assembly], None]
DAMAGE: dict[str, tuple[str, Damage]] = {}


def good() -> Assembly:
    """Return `y = x + weight; y += 1`, with values 0 x, 1 weight, 2 y, 3 alpha, 4 one, 6 int list, 7 tensor list."""
    asm = Assembly()
    x, weight, y = asm.tensor([2, 4]), asm.constant(torch.ones(4)), asm.tensor([2, 4])
    alpha, one = asm.argument(1), asm.argument(1.0)
    asm.argument([2])
    asm.tensor_list([x])
    asm.call("aten::add.out", x, weight, alpha, y, y)
    asm.call("aten::add_.Scalar", y, one, alpha, y)
    asm.program([x], [y])
    return asm


def damage(code: str) -> Callable[[Damage], Damage]:
    """Register a way to break the good program, and the code of what must be found."""

    def register(function: Damage) -> Damage:
        DAMAGE[function.__name__] = (code, function)
        return function

    return register


def first_call(asm: Assembly) -> KernelCall:
    step = asm.plan.chains[0].instructions[0].instr_args
    assert isinstance(step, KernelCall)
    return step


def value(asm: Assembly, index: int) -> Any:
    return asm.plan.values[index].val


@damage("EK601")
def input_out_of_table(asm: Assembly) -> None:
    asm.plan.inputs = [99]


@damage("EK601")
def output_is_negative(asm: Assembly) -> None:
    asm.plan.outputs = [-1]


@damage("EK601")
def argument_out_of_table(asm: Assembly) -> None:
    first_call(asm).args[1] = 10**6


@damage("EK601")
def argument_is_negative(asm: Assembly) -> None:
    first_call(asm).args[0] = -1


@damage("EK601")
def move_out_of_table(asm: Assembly) -> None:
    asm.add(MoveCall(move_from=0, move_to=50))


@damage("EK601")
def condition_out_of_table(asm: Assembly) -> None:
    asm.add(JumpFalseCall(cond_value_index=50, destination_instruction=0))


@damage("EK601")
def freed_out_of_table(asm: Assembly) -> None:
    asm.add(FreeCall(value_index=50))


@damage("EK602")
def tensor_where_a_number_belongs(asm: Assembly) -> None:
    first_call(asm).args[2] = 0


@damage("EK602")
def number_where_a_tensor_belongs(asm: Assembly) -> None:
    first_call(asm).args[0] = 3


@damage("EK602")
def none_where_a_tensor_belongs(asm: Assembly) -> None:
    first_call(asm).args[0] = asm.argument(None)


@damage("EK602")
def list_where_a_tensor_belongs(asm: Assembly) -> None:
    first_call(asm).args[0] = 7


@damage("EK602")
def dtype_that_does_not_exist(asm: Assembly) -> None:
    out = asm.tensor([2])
    asm.call("aten::sum.IntList_out", 0, asm.argument([1]), asm.argument(False), asm.argument(99), out, out)


@damage("EK602")
def memory_format_that_does_not_exist(asm: Assembly) -> None:
    asm.call("aten::clone.out", 0, asm.argument(9), 2, 2)


@damage("EK602")
def list_as_input(asm: Assembly) -> None:
    asm.plan.inputs = [7]


@damage("EK602")
def tensor_moved_to_a_number(asm: Assembly) -> None:
    asm.move(0, 3)


@damage("EK602")
def number_moved_to_a_tensor(asm: Assembly) -> None:
    asm.move(3, 0)


@damage("EK602")
def list_moved(asm: Assembly) -> None:
    asm.move(7, 7)


@damage("EK602")
def integer_as_condition(asm: Assembly) -> None:
    asm.jump_if_false(3, 0)


@damage("EK602")
def number_freed(asm: Assembly) -> None:
    asm.free(3)


@damage("EK602")
def number_for_a_tensor_result(asm: Assembly) -> None:
    asm.call("aten::add_.Scalar", 2, 4, 3, 3)


@damage("EK602")
def tensor_for_a_number_result(asm: Assembly) -> None:
    asm.call("aten::sym_numel", 0, 2)


@damage("EK603")
def int_list_names_a_tensor(asm: Assembly) -> None:
    value(asm, 6).items = [0]


@damage("EK603")
def int_list_out_of_table(asm: Assembly) -> None:
    value(asm, 6).items = [2**40]


@damage("EK603")
def tensor_list_names_none(asm: Assembly) -> None:
    value(asm, 7).items = [-1]


@damage("EK603")
def optional_tensor_list_names_a_number(asm: Assembly) -> None:
    asm.optional_tensor_list([0, -1, 3])


@damage("EK604")
def operator_out_of_table(asm: Assembly) -> None:
    first_call(asm).op_index = 7


@damage("EK605")
def delegate_out_of_table(asm: Assembly) -> None:
    asm.add(DelegateCall(delegate_index=0, args=[0]))


@damage("EK606")
def jump_behind_the_end(asm: Assembly) -> None:
    asm.add(JumpFalseCall(cond_value_index=asm.argument(False), destination_instruction=4))


@damage("EK606")
def jump_before_the_start(asm: Assembly) -> None:
    asm.add(JumpFalseCall(cond_value_index=asm.argument(False), destination_instruction=-1))


@damage("EK607")
def arena_out_of_table(asm: Assembly) -> None:
    asm.declared(0).allocation_info = AllocationDetails.at(2, 0)


@damage("EK607")
def arena_zero(asm: Assembly) -> None:
    asm.declared(0).allocation_info = AllocationDetails.at(0, 0)


@damage("EK608")
def tensor_behind_its_arena(asm: Assembly) -> None:
    asm.declared(0).allocation_info = AllocationDetails.at(1, 48)


@damage("EK608")
def offset_of_64_bits(asm: Assembly) -> None:
    asm.declared(0).allocation_info = AllocationDetails.at(1, 2**64 - 16)


@damage("EK608")
def storage_offset_leaves_the_arena(asm: Assembly) -> None:
    asm.declared(2).storage_offset = 1


@damage("EK609")
def tensor_off_its_alignment(asm: Assembly) -> None:
    asm.declared(0).allocation_info = AllocationDetails.at(1, 2)


@damage("EK610")
def dim_order_repeats(asm: Assembly) -> None:
    asm.declared(0).dim_order = [0, 0]


@damage("EK610")
def dim_order_too_short(asm: Assembly) -> None:
    asm.declared(0).dim_order = [0]


@damage("EK611")
def negative_size(asm: Assembly) -> None:
    asm.declared(0).sizes = [2, -4]


@damage("EK611")
def too_many_dimensions(asm: Assembly) -> None:
    asm.declared(0).sizes = [1] * 17
    asm.declared(0).dim_order = list(range(17))


@damage("EK611")
def absurd_size(asm: Assembly) -> None:
    asm.declared(0).sizes = [2**31 - 1] * 16
    asm.declared(0).dim_order = list(range(16))


@damage("EK611")
def strides_overflow_behind_a_zero(asm: Assembly) -> None:
    asm.declared(0).sizes = [0, 2**31 - 1, 2**31 - 1, 2**31 - 1]
    asm.declared(0).dim_order = [0, 1, 2, 3]


@damage("EK611")
def negative_storage_offset(asm: Assembly) -> None:
    asm.declared(0).storage_offset = -1


@damage("EK612")
def constant_out_of_table(asm: Assembly) -> None:
    asm.declared(1).data_buffer_idx = 9


@damage("EK613")
def constant_too_small(asm: Assembly) -> None:
    asm.declared(1).sizes = [5]


@damage("EK613")
def storage_offset_leaves_the_constant(asm: Assembly) -> None:
    asm.declared(1).storage_offset = 1


@damage("EK614")
def constant_as_out(asm: Assembly) -> None:
    asm.call("aten::relu.out", 1, 1, 1)


@damage("EK614")
def constant_changed_in_place(asm: Assembly) -> None:
    asm.call("aten::add_.Scalar", 1, 4, 3, 1)


@damage("EK614")
def constant_as_input(asm: Assembly) -> None:
    asm.plan.inputs = [1]


@damage("EK614")
def constant_moved_and_written(asm: Assembly) -> None:
    other = asm.tensor([4])
    asm.move(1, other)
    asm.call("aten::relu.out", other, other, other)


@damage("EK614")
def constant_viewed_and_written(asm: Assembly) -> None:
    view = asm.tensor([2, 2], planned=False)
    asm.call("executorch_prim::et_view.default", 1, asm.argument([2, 2]), view)
    asm.call("aten::relu.out", view, view, view)


@damage("EK614")
def constant_replaced(asm: Assembly) -> None:
    asm.move(0, 1)


@damage("EK615")
def too_few_arguments(asm: Assembly) -> None:
    first_call(asm).args.pop()


@damage("EK615")
def no_arguments(asm: Assembly) -> None:
    first_call(asm).args = []


@damage("EK617")
def negative_arena(asm: Assembly) -> None:
    asm.plan.non_const_buffer_sizes[1] = -16


@damage("EK617")
def absurd_arena(asm: Assembly) -> None:
    asm.plan.non_const_buffer_sizes[1] = 2**62


@damage("EK618")
def quantised_element_type(asm: Assembly) -> None:
    asm.declared(0).scalar_type = ScalarType.QINT8


@damage("EK618")
def sparse_layout(asm: Assembly) -> None:
    asm.declared(0).layout = 1


@damage("EK618")
def tensor_on_another_device(asm: Assembly) -> None:
    asm.declared(0).extra_tensor_info = ExtraTensorInfo(device_type=DeviceType.CUDA)


@damage("EK618")
def arena_on_another_device(asm: Assembly) -> None:
    asm.plan.non_const_buffer_device = [NonConstBufferDevice(buffer_idx=1, device_type=DeviceType.CUDA)]


@damage("EK619")
def external_data_missing(asm: Assembly) -> None:
    info = ExtraTensorInfo(fully_qualified_name="w", location=TensorDataLocation.EXTERNAL)
    asm.declared(1).extra_tensor_info = info


@damage("EK622")
def other_result_than_out(asm: Assembly) -> None:
    first_call(asm).args[-1] = 0


@damage("EK622")
def result_is_no_tensor(asm: Assembly) -> None:
    first_call(asm).args[-1] = 3


@damage("EK623")
def initial_value_out_of_table(asm: Assembly) -> None:
    asm.declared(2).data_buffer_idx = 1


@damage("EK626")
def planned_tensor_freed(asm: Assembly) -> None:
    asm.free(2)


def test_good_program_passes() -> None:
    verify_program(good().file())
    assert torch.equal(good().load().execute([torch.ones(2, 4)])[0], torch.full((2, 4), 3.0))


@pytest.mark.parametrize("name", sorted(DAMAGE))
@pytest.mark.parametrize("serialized", [False, True], ids=["in-memory", "from-bytes"])
def test_damage_is_found(name: str, serialized: bool) -> None:
    code, function = DAMAGE[name]
    asm = good()
    function(asm)
    file: PteFile = read_program(asm.to_bytes()) if serialized else asm.file()
    with pytest.raises(ProgramVerifyError) as caught:
        verify_program(file)
    codes = [one.code for one in caught.value.diagnostics]
    assert code in codes
    found = caught.value.diagnostics[codes.index(code)]
    assert found.location.method == "forward"
    assert len(codes) <= 2, f"one mistake gives one finding, not {codes}"


def test_every_finding_of_the_check_has_damage() -> None:
    found = {code for code, _ in DAMAGE.values()}
    # Two methods with one name, and memory that the system rejects, have tests of their own.
    assert found == {f"EK6{number:02}" for number in range(1, 27)} - {"EK616", "EK620", "EK621", "EK624", "EK625"}


def test_all_mistakes_are_reported_together() -> None:
    asm = good()
    asm.declared(0).dim_order = [0, 0]
    asm.declared(2).sizes = [-1, 4]
    first_call(asm).op_index = 5
    asm.plan.outputs = [77]
    with pytest.raises(ProgramVerifyError) as caught:
        verify_program(asm.file())
    assert sorted(one.code for one in caught.value.diagnostics) == ["EK601", "EK604", "EK610", "EK611"]


def test_number_of_findings_is_bounded() -> None:
    asm = good()
    for _ in range(500):
        asm.declared(asm.tensor([1])).dim_order = [7]
    with pytest.raises(ProgramVerifyError) as caught:
        verify_program(asm.file())
    assert len(caught.value.diagnostics) == 50


def test_two_methods_with_one_name() -> None:
    program = good().program()
    program.execution_plan.append(program.execution_plan[0])
    with pytest.raises(ProgramVerifyError) as caught:
        verify_program(PteFile(program, None, []))
    assert caught.value.code == "EK616"


def test_limits_can_be_raised_and_lowered() -> None:
    asm = good()
    verify_program(asm.file(), limits=Limits(arena_nbytes=64))
    with pytest.raises(ProgramVerifyError, match="at most 63 bytes"):
        verify_program(asm.file(), limits=Limits(arena_nbytes=63))


def test_unknown_kernels_are_not_judged() -> None:
    asm = good()
    asm.call("elsewhere::thing.out", 0, 2)
    verify_program(asm.file())


def test_chain_of_moves_is_checked_in_linear_time() -> None:
    asm = good()
    tensors = [asm.tensor([1], at=0) for _ in range(2000)]
    for source, target in itertools.pairwise(tensors):
        asm.move(source, target)
        asm.call("aten::relu.out", target, target, target)
    verify_program(asm.file())


def test_result_of_a_primitive_may_stand_for_any_number() -> None:
    asm = Assembly()
    half, zero = asm.argument(0), asm.argument(0)
    asm.call("executorch_prim::truediv.Scalar", asm.argument(1), asm.argument(2), half)
    asm.call("executorch_prim::gt.Scalar", half, asm.argument(0.25), zero)
    y = asm.tensor([2])
    # The condition and the float are both stored as the integer 0: placeholders for what the primitives give.
    asm.jump_if_false(zero, 3)
    asm.call("aten::full.out", asm.argument([2]), half, y, y)
    assert asm.load(outputs=[y]).execute([])[0].tolist() == [0.5, 0.5]

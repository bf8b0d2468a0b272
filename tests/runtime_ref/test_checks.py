"""Everything that the static check rejects: one broken program per rule, and none of the good ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.runtime_ref.assembly import Assembly

from exirkit.emit import (
    AllocationDetails,
    DelegateCall,
    DeviceType,
    ExtraTensorInfo,
    JumpFalseCall,
    KernelCall,
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


@damage("EK602")
def none_where_a_tensor_belongs(asm: Assembly) -> None:
    first_call(asm).args[0] = asm.argument(None)


@damage("EK602")
def dtype_that_does_not_exist(asm: Assembly) -> None:
    out = asm.tensor([2])
    asm.call("aten::sum.IntList_out", 0, asm.argument([1]), asm.argument(False), asm.argument(99), out, out)


@damage("EK602")
def memory_format_that_does_not_exist(asm: Assembly) -> None:
    asm.call("aten::clone.out", 0, asm.argument(9), 2, 2)


@damage("EK603")
def optional_tensor_list_names_a_number(asm: Assembly) -> None:
    asm.optional_tensor_list([0, -1, 3])


@damage("EK605")
def delegate_out_of_table(asm: Assembly) -> None:
    asm.add(DelegateCall(delegate_index=0, args=[0]))


@damage("EK606")
def jump_behind_the_end(asm: Assembly) -> None:
    asm.add(JumpFalseCall(cond_value_index=asm.argument(False), destination_instruction=4))


@damage("EK606")
def jump_before_the_start(asm: Assembly) -> None:
    asm.add(JumpFalseCall(cond_value_index=asm.argument(False), destination_instruction=-1))


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


@damage("EK615")
def too_few_arguments(asm: Assembly) -> None:
    first_call(asm).args.pop()


@damage("EK618")
def quantised_element_type(asm: Assembly) -> None:
    asm.declared(0).scalar_type = ScalarType.QINT8


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


def test_good_program_passes() -> None:
    verify_program(good().file())
    assert torch.equal(good().load().execute([torch.ones(2, 4)])[0], torch.full((2, 4), 3.0))


def broken_by(text: dict[str, Any]) -> Damage:
    """Return the way to break a program that a file describes."""

    def apply(asm: Assembly) -> None:
        for path, new in text.get("set", {}).items():
            *owners, last = path.split(".")
            thing: Any = asm.plan
            if owners[:1] == ["call"]:
                thing, owners = first_call(asm), owners[1:]
            for part in owners:
                thing = thing[int(part)] if isinstance(thing, list) else getattr(thing, part)
            if isinstance(thing, list):
                thing[int(last)] = new
            elif last == "PLACE":
                thing.allocation_info = AllocationDetails.at(*new)
            else:
                setattr(thing, last, new)
        for step in text.get("steps", ()):
            name, *numbers = step.split()
            known: dict[str, Callable[..., None]] = {"move": asm.move, "jump": asm.jump_if_false, "free": asm.free}
            add = known.get(name) or partial(asm.call, name)
            add(*map(int, numbers))

    return apply


TEXTS = yaml.safe_load(Path(__file__).with_name("damaged_plans.yaml").read_text())
DAMAGE |= {name: (text["code"], broken_by(text)) for name, text in TEXTS.items()}


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

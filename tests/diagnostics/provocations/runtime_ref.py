"""Programs and calls that the reference runtime rejects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.diagnostics.provocation import provokes
from tests.runtime_ref.assembly import BOUND, UNBOUND, Assembly

from exirkit.emit import (
    BackendDelegate,
    BackendDelegateDataReference,
    DelegateCall,
    ExtraTensorInfo,
    KernelCall,
    NamedBlob,
    PteFile,
    ScalarType,
    TensorDataLocation,
    TensorLayout,
    data_file,
    read_data_file,
)
from exirkit.runtime_ref import Limits, Runtime, verify_program


def negation() -> tuple[Assembly, int, int]:
    """Return a program `forward(x) = -x` for x of two floats, and its two tensors."""
    made = Assembly()
    x, y = made.tensor([2]), made.tensor([2])
    made.call("aten::neg.out", x, y, y)
    made.program([x], [y])
    return made, x, y


def verify(made: Assembly) -> None:
    verify_program(made.file())


@provokes("EK601")
def value_that_is_not_there(_: Path) -> None:
    made, x, y = negation()
    made.call("aten::neg.out", x, 77, y)
    verify(made)


@provokes("EK602")
def value_of_another_kind(_: Path) -> None:
    made, _x, y = negation()
    made.call("aten::neg.out", made.argument(3), y, y)
    verify(made)


@provokes("EK603")
def list_of_nothing(_: Path) -> None:
    made, x, _y = negation()
    made.tensor_list([x, 99])
    verify(made)


@provokes("EK604")
def operator_that_is_not_there(_: Path) -> None:
    made, x, y = negation()
    made.add(KernelCall(op_index=5, args=[x, y, y]))
    verify(made)


@provokes("EK605")
def delegate_that_is_not_there(_: Path) -> None:
    made, x, y = negation()
    made.add(DelegateCall(delegate_index=0, args=[x, y]))
    verify(made)


@provokes("EK606")
def jump_beyond_the_end(_: Path) -> None:
    made, _x, _y = negation()
    made.jump_if_false(made.argument(False), 40)
    verify(made)


@provokes("EK607")
def arena_that_is_not_there(_: Path) -> None:
    made, x, _y = negation()
    allocation = made.declared(x).allocation_info
    assert allocation is not None
    allocation.memory_id = 3
    verify(made)


@provokes("EK608")
def place_beyond_the_arena(_: Path) -> None:
    made, _x, _y = negation()
    made.plan.non_const_buffer_sizes[1] = 20
    verify(made)


@provokes("EK609")
def place_off_its_alignment(_: Path) -> None:
    made, _x, _y = negation()
    made.tensor([2], at=2)
    verify(made)


@provokes("EK610")
def dim_order_without_a_dimension(_: Path) -> None:
    made, _x, _y = negation()
    made.tensor([2, 3], dim_order=[0, 2])
    verify(made)


@provokes("EK611")
def negative_size(_: Path) -> None:
    made, x, _y = negation()
    made.declared(x).sizes[0] = -2
    verify(made)


@provokes("EK612")
def constant_that_is_not_there(_: Path) -> None:
    made, _x, _y = negation()
    index = made.constant(torch.ones(2))
    made.declared(index).data_buffer_idx = 9
    verify(made)


@provokes("EK613")
def constant_that_is_too_short(_: Path) -> None:
    made, _x, _y = negation()
    index = made.constant(torch.ones(2))
    made.declared(index).sizes[0] = 3
    verify(made)


@provokes("EK614")
def constant_that_is_written(_: Path) -> None:
    made, x, _y = negation()
    weight = made.constant(torch.ones(2))
    made.call("aten::neg.out", x, weight, weight)
    verify(made)


@provokes("EK615")
def call_with_too_few_arguments(_: Path) -> None:
    made, x, _y = negation()
    made.call("aten::neg.out", x)
    verify(made)


@provokes("EK616")
def two_methods_of_one_name(_: Path) -> None:
    made, _x, _y = negation()
    program = made.program()
    verify_program(PteFile(program.model_copy(update={"execution_plan": program.execution_plan * 2}), None, []))


@provokes("EK617")
def arena_that_is_too_large(_: Path) -> None:
    made, _x, _y = negation()
    made.plan.non_const_buffer_sizes.append(1 << 50)
    verify(made)


@provokes("EK618")
def quantised_tensor(_: Path) -> None:
    made, x, _y = negation()
    made.declared(x).scalar_type = ScalarType.QINT8
    verify(made)


@provokes("EK619")
def constant_in_another_file(_: Path) -> None:
    made, _x, _y = negation()
    index = made.tensor([2], planned=False)
    made.declared(index).extra_tensor_info = ExtraTensorInfo(
        fully_qualified_name="layer.weight", location=TensorDataLocation.EXTERNAL
    )
    verify(made)


@provokes("EK629")
def other_tensor_in_the_data_file(_: Path) -> None:
    made, _x, _y = negation()
    index = made.tensor([2], planned=False)
    made.declared(index).extra_tensor_info = ExtraTensorInfo(
        fully_qualified_name="layer.weight", location=TensorDataLocation.EXTERNAL
    )
    layout = TensorLayout(scalar_type=ScalarType.FLOAT, sizes=[3], dim_order=[0])
    file = made.file()
    file.attach([read_data_file(data_file({"layer.weight": NamedBlob(bytes(12), layout=layout)}).to_bytes())])
    verify_program(file)


@provokes("EK620")
def kernel_that_is_missing(_: Path) -> None:
    made, x, y = negation()
    made.call("aten::negg.out", x, y, y)
    made.load()


@provokes("EK621")
def delegate_that_cannot_run(_: Path) -> None:
    made, x, y = negation()
    made.plan.delegates.append(BackendDelegate(id="SomeBackend", processed=BackendDelegateDataReference()))
    made.add(DelegateCall(delegate_index=0, args=[x, y]))
    # A runtime of its own: others may have backends by now.
    Runtime().load_program(made.file()).load_method("forward")


@provokes("EK622")
def result_that_is_not_an_out_argument(_: Path) -> None:
    made, x, y = negation()
    made.call("aten::neg.out", x, y, x)
    verify(made)


@provokes("EK623")
def segment_of_initial_values_that_is_not_there(_: Path) -> None:
    made, x, _y = negation()
    made.declared(x).data_buffer_idx = 1
    verify(made)


@provokes("EK624")
def arena_that_the_system_does_not_give(_: Path) -> None:
    made, _x, _y = negation()
    made.plan.non_const_buffer_sizes[1] = 1 << 62
    Runtime.get().load_program(made.file(), limits=Limits(arena_nbytes=1 << 63)).load_method("forward")


@provokes("EK626")
def planned_tensor_that_is_freed(_: Path) -> None:
    made, _x, y = negation()
    made.free(y)
    verify(made)


def execute(made: Assembly, inputs: Any) -> object:
    return made.load().execute(inputs)


@provokes("EK640")
def too_many_inputs(_: Path) -> None:
    execute(negation()[0], [torch.ones(2), torch.ones(2)])


@provokes("EK641")
def bare_tensor_for_inputs(_: Path) -> None:
    execute(negation()[0], torch.ones(1))


@provokes("EK642")
def input_of_another_dtype(_: Path) -> None:
    execute(negation()[0], [torch.ones(2, dtype=torch.float64)])


@provokes("EK643")
def input_of_another_shape(_: Path) -> None:
    execute(negation()[0], [torch.ones(3)])


@provokes("EK644")
def input_beyond_its_bound(_: Path) -> None:
    made = Assembly()
    x = made.tensor([4, 2], dynamism=BOUND)
    made.program([x], [x])
    execute(made, [torch.ones(5, 2)])


@provokes("EK645")
def number_that_was_another_one(_: Path) -> None:
    made = Assembly()
    number = made.argument(3)
    made.program([number], [number])
    execute(made, [4])


@provokes("EK646")
def method_that_is_not_there(_: Path) -> None:
    Runtime.get().load_program(negation()[0].file()).load_method("backward")


@provokes("EK647")
def input_that_is_not_there(_: Path) -> None:
    negation()[0].load().metadata.input_tensor_meta(4)


@provokes("EK648")
def program_that_is_a_number(_: Path) -> None:
    Runtime.get().load_program(7)  # type: ignore[arg-type]


@provokes("EK650")
def kernel_that_fails(_: Path) -> None:
    made = Assembly()
    left, right, out = made.tensor([2, 3]), made.tensor([2, 3]), made.tensor([2, 3])
    made.call("aten::mm.out", left, right, out, out)
    made.program([left, right], [out])
    execute(made, [torch.ones(2, 3), torch.ones(2, 3)])


@provokes("EK651")
def result_beyond_its_shape(_: Path) -> None:
    made = Assembly()
    x, y = made.tensor([2]), made.tensor([3])
    made.call("aten::neg.out", x, y, y)
    made.program([x], [y])
    execute(made, [torch.ones(2)])


@provokes("EK652")
def tensor_that_was_not_written(_: Path) -> None:
    made = Assembly()
    x = made.tensor([2], planned=False, dynamism=UNBOUND)
    made.program([], [x])
    execute(made, [])


@provokes("EK653")
def number_for_a_tensor(_: Path) -> None:
    made = Assembly()
    x, y = made.tensor([4]), made.tensor([2, 2], torch.int32)
    made.call("executorch_prim::et_view.default", x, made.argument([2, 2]), y)
    made.program([x], [y])
    execute(made, [torch.ones(4)])


@provokes("EK657")
def quantized_without_limits(_: Path) -> None:
    made = Assembly()
    x, y = made.tensor([4]), made.tensor([4], torch.int8)
    given = [made.argument(one) for one in (0.5, 0, -300, 300, torch.int8)]
    made.call("quantized_decomposed::quantize_per_tensor.out", x, *given, y, y)
    made.program([x], [y])
    execute(made, [torch.ones(4)])


@provokes("EK654")
def condition_that_is_a_float(_: Path) -> None:
    made = Assembly()
    x = made.tensor([1])
    made.jump_if_false(x, 1)
    made.program([x], [x])
    execute(made, [torch.ones(1)])


@provokes("EK655")
def loop_without_end(_: Path) -> None:
    made = Assembly()
    made.jump_if_false(made.argument(False), 0)
    Runtime.get().load_program(made.file(), limits=Limits(jumps_back=100)).load_method("forward").execute([])

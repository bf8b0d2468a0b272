"""The files that loader fuzzing starts from: tiny programs that together have every table of the schema.

They are small, half a KiB to three, since the time of one execution grows with the size of the file; and they are made
by the emitter's own layout code from models of the schema, so that a change of the schema changes them too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import pack
from typing import Any, Final

from exirkit.emit import (
    AllocationDetails,
    BackendDelegate,
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Bool,
    BoolList,
    Buffer,
    Chain,
    CompileSpec,
    ContainerMetadata,
    DelegateCall,
    Double,
    DoubleList,
    EValue,
    ExecutionPlan,
    ExtraTensorInfo,
    Frame,
    FrameList,
    FreeCall,
    Instruction,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    KernelTypes,
    MoveCall,
    NamedBlob,
    NonConstBufferDevice,
    Null,
    Operator,
    OptionalTensorList,
    Program,
    ScalarType,
    String,
    Tensor,
    TensorDataLocation,
    TensorList,
    encode_program,
    lay_out,
)
from exirkit.ir import TensorShapeDynamism


class _Plan:
    """One method, put together value by value."""

    def __init__(self, name: str = "forward") -> None:
        self.plan = ExecutionPlan(name=name, chains=[Chain()], non_const_buffer_sizes=[0, 0])

    def value(self, value: KernelTypes) -> int:
        self.plan.values.append(EValue(val=value))
        return len(self.plan.values) - 1

    def number(self, number: int) -> int:
        return self.value(Int(int_val=number))

    def tensor(self, *sizes: int, dtype: ScalarType = ScalarType.FLOAT, **kwargs: Any) -> int:
        """Add a tensor with a place of its own in arena 1."""
        start = self.plan.non_const_buffer_sizes[1]
        nbytes = dtype.itemsize
        for size in sizes:
            nbytes *= size
        self.plan.non_const_buffer_sizes[1] = start + -(-nbytes // 16) * 16
        return self.placed(*sizes, dtype=dtype, allocation_info=AllocationDetails.at(1, start), **kwargs)

    def placed(self, *sizes: int, dtype: ScalarType = ScalarType.FLOAT, **kwargs: Any) -> int:
        """Add a tensor whose place is given, or that has none."""
        order = list(range(len(sizes)))
        return self.value(Tensor(scalar_type=dtype, sizes=list(sizes), dim_order=order, **kwargs))

    def call(self, name: str, *args: int) -> None:
        base, _, overload = name.partition(".")
        operator = Operator(name=base, overload=overload)
        if operator not in self.plan.operators:
            self.plan.operators.append(operator)
        self.step(KernelCall(op_index=self.plan.operators.index(operator), args=list(args)))

    def step(self, arguments: Any) -> None:
        self.plan.chains[0].instructions.append(Instruction(instr_args=arguments))

    def done(self, inputs: Sequence[int], outputs: Sequence[int]) -> ExecutionPlan:
        self.plan.inputs, self.plan.outputs = list(inputs), list(outputs)
        return self.plan


def _file(*plans: ExecutionPlan, **kwargs: Any) -> bytes:
    program = Program(execution_plan=list(plans), constant_buffer=kwargs.pop("constants", [Buffer()]))
    program.backend_delegate_data = kwargs.pop("payloads", [])
    return lay_out(program, **kwargs).to_bytes()


def _floats(*numbers: float) -> Buffer:
    return Buffer(storage=pack(f"<{len(numbers)}f", *numbers))


def smallest() -> bytes:
    """Return a program whose one method returns its input."""
    asm = _Plan()
    x = asm.tensor(2)
    return _file(asm.done([x], [x]))


def sum_of_two() -> bytes:
    """Return one call with a constant."""
    asm = _Plan()
    x, y, out, one = asm.tensor(2), asm.placed(2, data_buffer_idx=1), asm.tensor(2), asm.number(1)
    asm.call("aten::add.out", x, y, one, out, out)
    return _file(asm.done([x], [out]), constants=[Buffer(), _floats(1, 2)], segment_alignment=16)


def inline_constants() -> bytes:
    """Return a program in the older form: constants in the flatbuffer, and no extended header."""
    asm = _Plan()
    x, y, out, one = asm.tensor(2), asm.placed(2, data_buffer_idx=1), asm.tensor(2), asm.number(1)
    asm.call("aten::mul.out", x, y, out, out)
    asm.call("aten::sub.out", out, y, one, out, out)
    program = Program(execution_plan=[asm.done([x], [out])], constant_buffer=[Buffer(), _floats(3, 4)])
    return b"".join(encode_program(program).chunks())


def loop() -> bytes:
    """Return a map over rows: jumps, moves, numbers, dynamic sizes."""
    asm = _Plan()
    bound = TensorShapeDynamism.DYNAMIC_BOUND
    xs, rows, row = asm.tensor(4, 3, shape_dynamism=bound), asm.tensor(4, 3, shape_dynamism=bound), asm.tensor(3)
    at, count, zero, one = asm.number(0), asm.number(0), asm.number(0), asm.number(1)
    finished = asm.value(Bool(bool_val=False))
    asm.call("aten::sym_size.int", xs, zero, count)
    asm.call("aten::select_copy.int_out", xs, zero, at, row, row)
    asm.call("executorch_prim::et_copy_index.tensor", rows, row, at)
    asm.call("executorch_prim::add.Scalar", at, one, at)
    asm.call("executorch_prim::eq.Scalar", at, count, finished)
    asm.step(JumpFalseCall(cond_value_index=finished, destination_instruction=1))
    asm.step(MoveCall(move_from=zero, move_to=at))
    return _file(asm.done([xs], [rows]))


def lists() -> bytes:
    """Return a call with every kind of list."""
    asm = _Plan()
    x, out = asm.tensor(2, 3), asm.tensor(3, 2)
    pieces = [asm.tensor(2, 1) for _ in range(3)]
    tensors = asm.value(TensorList(items=pieces))
    one, dims = asm.number(1), asm.value(IntList(items=[asm.number(1), asm.number(0)]))
    asm.call("aten::split_copy.Tensor_out", x, one, one, tensors, tensors)
    asm.call("aten::cat.out", asm.value(TensorList(items=pieces[::-1])), one, x, x)
    asm.call("aten::permute_copy.out", x, dims, out, out)
    index = asm.tensor(2, dtype=ScalarType.LONG)
    chosen = asm.value(OptionalTensorList(items=[-1, index]))
    picked = asm.tensor(3, 2)
    asm.call("aten::index.Tensor_out", x, chosen, picked, picked)
    asm.value(DoubleList(items=[0.5, float("inf")]))
    asm.value(Bool(bool_val=True))
    asm.value(BoolList(items=[True, False]))
    asm.value(String(string_val="none"))
    asm.value(Double(double_val=1e-5))
    asm.value(Null())
    return _file(asm.done([x], [out, *pieces]))


def state() -> bytes:
    """Return a mutable buffer with an initial value, a view, and a tensor without bound."""
    asm = _Plan()
    x, one = asm.placed(4), asm.number(1)
    kept = asm.tensor(4, data_buffer_idx=1, extra_tensor_info=ExtraTensorInfo(fully_qualified_name="state"))
    view = asm.placed(2, 2, allocation_info=AllocationDetails.at(1, 0))
    sizes = asm.value(IntList(items=[asm.number(2), asm.number(2)]))
    free = asm.placed(4, shape_dynamism=TensorShapeDynamism.DYNAMIC_UNBOUND)
    asm.call("aten::add_.Tensor", kept, x, one, kept)
    asm.call("executorch_prim::et_view.default", kept, sizes, view)
    asm.call("aten::neg.out", x, free, free)
    asm.step(FreeCall(value_index=free))
    return _file(asm.done([x], [view]), mutable_data=[Buffer(), _floats(1, 2, 3, 4)], segment_alignment=16)


def two_methods() -> bytes:
    """Return two methods that share a constant, with pytree texts and stack traces."""
    plans = []
    for name in ("forward", "other"):
        asm = _Plan(name)
        asm.plan.container_meta_type = ContainerMetadata(encoded_inp_str="[1, {}]", encoded_out_str="[1, null]")
        asm.plan.non_const_buffer_device = [NonConstBufferDevice(buffer_idx=1)]
        x, y, out = asm.tensor(2), asm.placed(2, data_buffer_idx=1), asm.tensor(2)
        asm.call("aten::mul.out", x, y, out, out)
        frame = Frame(filename="model.py", lineno=7, name=name, context="return x * self.y")
        asm.plan.chains[0].stacktrace = [FrameList(items=[frame])]
        plans.append(asm.done([x], [out]))
    return _file(*plans, constants=[Buffer(), _floats(5, 6)], segment_alignment=16)


def delegates() -> bytes:
    """Return two delegates, and data that is found by its name."""
    asm = _Plan()
    x, out = asm.tensor(2), asm.tensor(2)
    external = ExtraTensorInfo(fully_qualified_name="weight", location=TensorDataLocation.EXTERNAL)
    weight = asm.placed(2, extra_tensor_info=external)
    for index in range(2):
        options = [CompileSpec(key="level", value=b"2")]
        processed = BackendDelegateDataReference(index=index)
        asm.plan.delegates.append(BackendDelegate(id="Backend", processed=processed, compile_specs=options))
        asm.step(DelegateCall(delegate_index=index, args=[x, weight, out]))
    payloads = [BackendDelegateInlineData(data=data) for data in (b"payload", b"other payload")]
    named = {"weight": NamedBlob(pack("<2f", 1, 2), 16)}
    return _file(asm.done([x], [out]), payloads=payloads, named_data=named, segment_alignment=16)


def external_weight() -> bytes:
    """Return a constant that is found by its name."""
    asm = _Plan()
    external = ExtraTensorInfo(fully_qualified_name="weight", location=TensorDataLocation.EXTERNAL)
    x, weight, out = asm.tensor(2), asm.placed(2, extra_tensor_info=external), asm.tensor(2)
    asm.call("aten::mul.out", x, weight, out, out)
    return _file(asm.done([x], [out]), named_data={"weight": NamedBlob(pack("<2f", 1, 2), 16)}, segment_alignment=16)


SEEDS: Final[tuple[Callable[[], bytes], ...]] = (
    smallest,
    sum_of_two,
    inline_constants,
    loop,
    lists,
    state,
    two_methods,
    delegates,
    external_weight,
)


def seed_files() -> dict[str, bytes]:
    """Return the files that fuzzing starts from, by name."""
    return {make.__name__: make() for make in SEEDS}

"""Programs and strategies for programs that the tests of the file format share."""

from __future__ import annotations

from enum import IntEnum
from types import NoneType
from typing import Any, get_args, get_origin

from annotated_types import Ge, Lt
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

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
    DeviceType,
    Double,
    DoubleList,
    EValue,
    ExecutionPlan,
    ExtraTensorInfo,
    Frame,
    FrameList,
    FreeCall,
    Instruction,
    InstructionArguments,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    KernelTypes,
    MoveCall,
    NonConstBufferDevice,
    Null,
    Operator,
    OptionalTensorList,
    Program,
    ScalarType,
    String,
    Tensor,
    TensorList,
)
from exirkit.ir import TensorShapeDynamism


def tensor(*sizes: int, **fields: Any) -> Tensor:
    """Return a contiguous float tensor."""
    return Tensor(scalar_type=ScalarType.FLOAT, sizes=list(sizes), dim_order=list(range(len(sizes))), **fields)


def plan(values: list[Any], instructions: list[Any], name: str = "forward", **fields: Any) -> ExecutionPlan:
    """Return a plan with one chain."""
    return ExecutionPlan(
        name=name,
        values=[EValue(val=value) for value in values],
        chains=[Chain(instructions=[Instruction(instr_args=call) for call in instructions])],
        **fields,
    )


def full_program() -> Program:
    """Return a program in its in-memory form that has every table of the schema but the ones of segments."""
    values = [
        tensor(2, 3, data_buffer_idx=1, requires_grad=True),
        tensor(2, 3, allocation_info=AllocationDetails.at(1, 2**33 + 64), layout=1),
        tensor(2, 3, allocation_info=AllocationDetails.at(2, 48), shape_dynamism=TensorShapeDynamism.DYNAMIC_BOUND),
        tensor(4, data_buffer_idx=1, allocation_info=AllocationDetails.at(1, 0), extra_tensor_info=_extra()),
        Int(int_val=-(2**63)),
        Int(int_val=0),
        Bool(bool_val=True),
        Double(double_val=2.5),
        String(string_val="grüße"),
        Null(),
        IntList(items=[4, 5]),
        DoubleList(items=[0.5, -0.0]),
        BoolList(items=[True, False]),
        TensorList(items=[1, 2]),
        OptionalTensorList(items=[0, -1]),
    ]
    calls = [
        KernelCall(op_index=0, args=[0, 1, 5, 2, 2]),
        DelegateCall(delegate_index=0, args=[0, 1]),
        JumpFalseCall(cond_value_index=6, destination_instruction=4),
        MoveCall(move_from=1, move_to=2),
        FreeCall(value_index=2),
    ]
    first = plan(
        values,
        calls,
        container_meta_type=ContainerMetadata(encoded_inp_str="in", encoded_out_str="out"),
        inputs=[0],
        outputs=[1, 2],
        operators=[Operator(name="aten::add", overload="out"), Operator(name="aten::relu")],
        delegates=[_delegate("Backend", 0), _delegate("Other", 1)],
        non_const_buffer_sizes=[0, 2**33 + 128, 64],
        non_const_buffer_device=[NonConstBufferDevice(buffer_idx=2, device_type=DeviceType.CUDA, device_index=1)],
    )
    frame = Frame(filename="model.py", lineno=41, name="forward", context="return x + y")
    first.chains[0].stacktrace = [FrameList(items=[frame, frame]), FrameList()]
    return Program(
        execution_plan=[first, plan([Int(int_val=7)], [], name="constant", outputs=[0])],
        constant_buffer=[Buffer(), Buffer(storage=bytes(range(24))), Buffer(storage=b"last")],
        backend_delegate_data=[BackendDelegateInlineData(data=b"payload"), BackendDelegateInlineData(data=b"b" * 30)],
    )


def _extra() -> ExtraTensorInfo:
    return ExtraTensorInfo(fully_qualified_name="layer.weight", device_type=DeviceType.CUDA, device_index=-1)


def _delegate(backend: str, index: int) -> BackendDelegate:
    specs = [CompileSpec(key="level", value=b"\x01\x02"), CompileSpec(key="empty")]
    return BackendDelegate(id=backend, processed=BackendDelegateDataReference(index=index), compile_specs=specs)


def tables(model: type[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for any instance of a table, whether it makes sense or not."""
    return st.builds(model, **{name: _field(info) for name, info in model.model_fields.items()})


def _field(info: FieldInfo) -> st.SearchStrategy[Any]:
    annotation: Any = info.annotation
    if annotation in (KernelTypes, InstructionArguments):
        return st.one_of([tables(get_args(member)[0]) for member in get_args(annotation)])
    return _type(annotation, info.metadata)


def _type(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    if annotation == bytes | memoryview:
        return st.binary(max_size=40)
    if get_origin(annotation) is list:
        element = get_args(annotation)[0]
        inner = get_args(element)
        return st.lists(_type(inner[0], list(inner[1:])) if inner else _type(element, []), max_size=3)
    if NoneType in get_args(annotation):
        return st.none() | _type(get_args(annotation)[0], [])
    if issubclass(annotation, IntEnum):
        return st.sampled_from(annotation)
    simple = {bool: st.booleans(), float: st.floats(allow_nan=False), str: st.text(max_size=6), bytes: st.binary()}
    if annotation in simple:
        return simple[annotation]
    return _integers(metadata) if annotation is int else tables(annotation)


def _integers(metadata: list[Any]) -> st.SearchStrategy[int]:
    # A field of the form Annotated[int, Field(...)] keeps its bounds one level deeper inside a list.
    flat = [item for each in metadata for item in (each.metadata if isinstance(each, FieldInfo) else [each])]
    least = next(item.ge for item in flat if isinstance(item, Ge))
    bound = next(item.lt for item in flat if isinstance(item, Lt))
    assert isinstance(least, int)
    assert isinstance(bound, int)
    return st.integers(least, bound - 1) | st.sampled_from([least, 0, 1, bound - 1])

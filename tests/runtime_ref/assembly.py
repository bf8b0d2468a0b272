"""Programs put together by hand: one value, one instruction at a time, as the emitter would."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from exirkit.emit import (
    AllocationDetails,
    BackendDelegate,
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Bool,
    BoolList,
    Buffer,
    Chain,
    DelegateCall,
    Double,
    DoubleList,
    EValue,
    ExecutionPlan,
    ExtraTensorInfo,
    FreeCall,
    Instruction,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    KernelTypes,
    MoveCall,
    Null,
    Operator,
    OptionalTensorList,
    Program,
    PteFile,
    ScalarType,
    String,
    Tensor,
    TensorList,
    lay_out,
)
from exirkit.ir import TensorShapeDynamism
from exirkit.runtime_ref import Method, Runtime

STATIC = TensorShapeDynamism.STATIC
BOUND = TensorShapeDynamism.DYNAMIC_BOUND
UNBOUND = TensorShapeDynamism.DYNAMIC_UNBOUND

_MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}


@contextmanager
def registered(schema: str, meaning: Callable[..., Any]) -> Iterator[None]:
    """Register an operator with torch inside the block; the schema starts with `library::name`."""
    name, _, rest = schema.partition("::")
    library = torch.library.Library(name, "FRAGMENT")
    library.define(rest)
    library.impl(rest.partition("(")[0], meaning, "CompositeExplicitAutograd")
    try:
        yield
    finally:
        library._destroy()


class Assembly:
    """One program with one method, `forward`."""

    def __init__(self) -> None:
        self.plan = ExecutionPlan(name="forward", chains=[Chain()], non_const_buffer_sizes=[0, 0])
        self.constants = [Buffer()]

    def value(self, value: KernelTypes) -> int:
        """Add a value; return its index."""
        self.plan.values.append(EValue(val=value))
        return len(self.plan.values) - 1

    def tensor(
        self,
        sizes: Sequence[int],
        dtype: torch.dtype = torch.float32,
        *,
        planned: bool = True,
        dynamism: TensorShapeDynamism = STATIC,
        dim_order: Sequence[int] | None = None,
        at: int | None = None,
        name: str | None = None,
    ) -> int:
        """Add a tensor with a place of its own in arena 1, or at the byte `at`, or without a place."""
        tensor = Tensor(
            scalar_type=ScalarType.from_dtype(dtype),
            sizes=list(sizes),
            dim_order=list(range(len(sizes)) if dim_order is None else dim_order),
            shape_dynamism=dynamism,
        )
        if name is not None:
            tensor.extra_tensor_info = ExtraTensorInfo(fully_qualified_name=name)
        if planned:
            start = self.plan.non_const_buffer_sizes[1] if at is None else at
            nbytes = torch.Size(sizes).numel() * dtype.itemsize
            tensor.allocation_info = AllocationDetails.at(1, start)
            end = -(-(start + nbytes) // 16) * 16
            self.plan.non_const_buffer_sizes[1] = max(self.plan.non_const_buffer_sizes[1], end)
        return self.value(tensor)

    def like(self, tensor: torch.Tensor, **kwargs: Any) -> int:
        """Add a tensor with the shape, dtype and layout of `tensor`."""
        return self.tensor(tensor.shape, tensor.dtype, dim_order=tensor.dim_order(), **kwargs)

    def constant(self, tensor: torch.Tensor) -> int:
        """Add a constant."""
        self.constants.append(Buffer(storage=tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()))
        index = self.like(tensor.contiguous(), planned=False)
        self.declared(index).data_buffer_idx = len(self.constants) - 1
        return index

    def declared(self, index: int) -> Tensor:
        """Return the tensor value `index`, to change it."""
        value = self.plan.values[index].val
        assert isinstance(value, Tensor)
        return value

    def argument(self, value: Any, kind: str = "") -> int:
        """Add a Python value the way the emitter stores it; `kind` is the schema type of lists."""
        if isinstance(value, bool):
            return self.value(Bool(bool_val=value))
        if isinstance(value, int):
            return self.value(Int(int_val=value))
        if isinstance(value, float):
            return self.value(Double(double_val=value))
        if isinstance(value, str):
            return self.value(String(string_val=value))
        if isinstance(value, torch.dtype):
            return self.argument(int(ScalarType.from_dtype(value)))
        if isinstance(value, torch.memory_format):
            return self.argument(_MEMORY_FORMATS[value])
        if isinstance(value, list | tuple):
            return self._list(value, kind)
        assert value is None, f"a program cannot hold {value!r}"
        return self.value(Null())

    def _list(self, items: Sequence[Any], kind: str) -> int:
        if "float" in kind:
            return self.value(DoubleList(items=[float(item) for item in items]))
        if "bool" in kind:
            return self.value(BoolList(items=list(items)))
        return self.value(IntList(items=[self.argument(item) for item in items]))

    def tensor_list(self, indices: Sequence[int]) -> int:
        """Add a list of tensors."""
        return self.value(TensorList(items=list(indices)))

    def optional_tensor_list(self, indices: Sequence[int]) -> int:
        """Add a list of tensors in which -1 is None."""
        return self.value(OptionalTensorList(items=list(indices)))

    def operator(self, name: str) -> int:
        """Return the index of an operator, adding it if need be."""
        base, _, overload = name.partition(".")
        operator = Operator(name=base, overload=overload)
        if operator not in self.plan.operators:
            self.plan.operators.append(operator)
        return self.plan.operators.index(operator)

    def call(self, name: str, *args: int) -> None:
        """Add a call of a kernel on these values."""
        self.add(KernelCall(op_index=self.operator(name), args=list(args)))

    def move(self, source: int, target: int) -> None:
        """Add a move."""
        self.add(MoveCall(move_from=source, move_to=target))

    def jump_if_false(self, condition: int, destination: int) -> None:
        """Add a jump."""
        self.add(JumpFalseCall(cond_value_index=condition, destination_instruction=destination))

    def free(self, index: int) -> None:
        """Add the release of an unbounded tensor."""
        self.add(FreeCall(value_index=index))

    def delegate(self, backend: str, *args: int) -> None:
        """Add a delegate and a call of it."""
        reference = BackendDelegateDataReference(index=0)
        self.plan.delegates.append(BackendDelegate(id=backend, processed=reference))
        self.add(DelegateCall(delegate_index=len(self.plan.delegates) - 1, args=list(args)))

    def add(self, arguments: Any) -> None:
        """Add an instruction."""
        self.plan.chains[0].instructions.append(Instruction(instr_args=arguments))

    def program(self, inputs: Sequence[int] = (), outputs: Sequence[int] = ()) -> Program:
        """Return the program; inputs and outputs replace earlier ones if given."""
        self.plan.inputs = list(inputs) or self.plan.inputs
        self.plan.outputs = list(outputs) or self.plan.outputs
        inline = [BackendDelegateInlineData()] if self.plan.delegates else []
        return Program(execution_plan=[self.plan], constant_buffer=self.constants, backend_delegate_data=inline)

    def file(self, inputs: Sequence[int] = (), outputs: Sequence[int] = ()) -> PteFile:
        """Return the program as a file that has been read."""
        return PteFile(self.program(inputs, outputs), None, [])

    def to_bytes(self, inputs: Sequence[int] = (), outputs: Sequence[int] = ()) -> bytes:
        """Return the program as the bytes of a file."""
        return lay_out(self.program(inputs, outputs)).to_bytes()

    def load(self, inputs: Sequence[int] = (), outputs: Sequence[int] = ()) -> Method:
        """Return the loaded method."""
        return Runtime.get().load_program(self.file(inputs, outputs)).load_method("forward")


def add(asm: Assembly, a: int, b: int, out: int) -> None:
    asm.call("aten::add.out", a, b, asm.argument(1), out, out)


def neg(asm: Assembly, a: int, out: int) -> None:
    asm.call("aten::neg.out", a, out, out)


def copy(asm: Assembly, target: int, source: int) -> None:
    asm.call("aten::copy_", target, source, asm.argument(False), target)


OPERATORS: dict[str, Callable[..., None]] = {"add": add, "neg": neg, "copy": copy, "move": Assembly.move}


def assembled(case: dict[str, Any]) -> tuple[Assembly, dict[str, int]]:
    """Return the program that a case of a YAML file beside this one describes, and its tensors by name."""
    asm = Assembly()
    values = {}
    for text in case["tensors"].split():
        name, sizes, is_bool, dynamic, at = re.fullmatch(r"(\w+)\[([\d,]*)\](b?)(\??)(?:@(\d+))?", text).groups()  # type: ignore[union-attr]
        shape = [int(one) for one in sizes.split(",") if one]
        dtype = torch.bool if is_bool else torch.float32
        place = None if at is None else int(at)
        values[name] = asm.tensor(shape, dtype, at=place, dynamism=BOUND if dynamic else STATIC)
    for step in case["steps"]:
        operator, *names = step.split()
        if operator == "row":
            source, target = (values[name] for name in names[1:])
            asm.call("executorch_prim::et_copy_index.tensor", target, source, asm.argument(int(names[0])))
            continue
        if operator == "jump":
            condition = asm.argument(False) if names[0] == "false" else values[names[0]]
            asm.jump_if_false(condition, int(names[1]))
            continue
        *given, last = (values[name] for name in names)
        if operator == "view":
            asm.call("executorch_prim::et_view.default", *given, asm.argument(asm.declared(last).sizes), last)
        elif operator == "cat":
            asm.call("aten::cat.out", asm.tensor_list(given), asm.argument(0), last, last)
        else:
            OPERATORS[operator](asm, *given, last)
    asm.program(*([values[name] for name in case[key].split()] for key in ("inputs", "outputs")))
    return asm, values

"""Whether an emitted method says what its graph says: the same calls on the same tensors, which lie where planned.

Written from the format, without the help of the emitter: graph and instructions are walked side by side, and every
spec of the graph must stand for one value of the plan all along.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from exirkit.emit import (
    Bool,
    BoolList,
    Double,
    DoubleList,
    ExecutionPlan,
    FreeCall,
    Int,
    IntList,
    KernelCall,
    Null,
    OptionalTensorList,
    PteFile,
    Tensor,
    TensorList,
)
from exirkit.ir import TensorSpec, alloc, free, view

_ET_VIEW = "executorch_prim::et_view"
_NO_OUTPUTS = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


class _MismatchError(Exception):
    """Graph and instructions disagree; the text says in what."""


_FAULTS = (_MismatchError, IndexError, AttributeError, TypeError)


def emission_fault(program: ExportedProgram, file: PteFile, method: str) -> tuple[str, str] | None:
    """Compare a planned program with what was emitted for it.

    Args:
        program: The program of a method.
        file: The file.
        method: Name of the method.

    Returns:
        Name of the node and a text, or None.
    """
    plan = next(one for one in file.program.execution_plan if one.name == method)
    walk = _Walk(plan)
    try:
        walk.run(program)
        walk.data(program, file)
    except _FAULTS as error:
        # The file is well formed, so where something is not of the kind that the graph makes, it is the wrong one.
        return walk.node, str(error)
    return None


def silent_views(program: ExportedProgram, file: PteFile, method: str) -> dict[int, int]:
    """Return the values that show the memory of another one without an instruction, and that other one.

    Args:
        program: The program of a method.
        file: The file, in which `emission_fault` finds nothing.
        method: Name of the method.
    """
    walk = _Walk(next(one for one in file.program.execution_plan if one.name == method))
    try:
        walk.run(program)
    except _FAULTS:
        return {}
    found: dict[int, int] = {}
    for node in program.graph.find_nodes(op="call_function", target=view):
        spec = node.meta["spec"]
        shown, base = walk.index_of(spec), walk.index_of(spec.storage_base)
        if shown is not None and base is not None:
            found[shown] = base
    return found


class _Walk:
    def __init__(self, plan: ExecutionPlan) -> None:
        self.plan = plan
        self.node = ""
        self._instructions = [one.instr_args for chain in plan.chains for one in chain.instructions]
        self._at = 0
        # What stands for what: specs of tensors, or nodes whose value is a number.
        self._index: dict[Any, int] = {}
        self._meaning: dict[int, Any] = {}

    def run(self, program: ExportedProgram) -> None:
        """Walk along graph and instructions."""
        self.inputs(program)
        for node in program.graph.nodes:
            self.node = node.name
            if node.op == "call_function":
                self.call(node)
            elif node.op == "output":
                self.end(program, node)

    def index_of(self, meaning: Any) -> int | None:
        """Return the value that a spec stands for, as far as something uses it."""
        return self._index.get(meaning)

    def inputs(self, program: ExportedProgram) -> None:
        placeholders = program.graph.find_nodes(op="placeholder")
        pairs = zip(placeholders, program.graph_signature.input_specs, strict=True)
        given = [node for node, spec in pairs if spec.kind is InputKind.USER_INPUT]
        self._require(len(given) == len(self.plan.inputs), f"{len(self.plan.inputs)} inputs instead of {len(given)}")
        for node, index in zip(given, self.plan.inputs, strict=True):
            self.node = node.name
            if isinstance(node.meta.get("spec"), TensorSpec):
                self._same(node.meta["spec"], index)

    def data(self, program: ExportedProgram, file: PteFile) -> None:
        """Compare what is stored with what the file has of it, once it is known which value stands for what."""
        stored = {**program.state_dict, **program.constants}
        placeholders = program.graph.find_nodes(op="placeholder")
        for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
            index = self._index.get(node.meta.get("spec"))
            tensor = stored.get(spec.target)
            value = None if index is None else self._value(index)
            if not isinstance(tensor, torch.Tensor) or not isinstance(value, Tensor) or value.data_buffer_idx == 0:
                continue
            self.node = node.name
            is_state = value.allocation_info is not None
            read = file.mutable_data if is_state else file.constant
            wanted = _bytes_of(tensor, value.dim_order)
            got = bytes(read(value.data_buffer_idx)[: len(wanted)])
            self._require(got == wanted, f"value {index}: the file has other elements for {spec.target}")

    def call(self, node: Node) -> None:
        target: Any = node.target
        if target is alloc or target is operator.getitem:
            return
        if target is view:
            self._view(node)
        elif target is free:
            found = self._next(FreeCall)
            self._same(node.args[0], found.value_index)
        else:
            self._kernel(node, target)

    def end(self, program: ExportedProgram, node: Node) -> None:
        self._require(self._at == len(self._instructions), f"{len(self._instructions) - self._at} more instructions")
        results: Any = node.args[0]
        kinds = [spec.kind for spec in program.graph_signature.output_specs]
        returned = [one for one, kind in zip(results, kinds, strict=True) if kind not in _NO_OUTPUTS]
        self._require(len(returned) == len(self.plan.outputs), "another number of outputs")
        for one, index in zip(returned, self.plan.outputs, strict=True):
            self._argument(one, index, "output")

    def _view(self, node: Node) -> None:
        spec: TensorSpec = node.meta["spec"]
        following = self._instructions[self._at] if self._at < len(self._instructions) else None
        if spec.is_static_shape_tensor or not isinstance(following, KernelCall):
            return
        if self.plan.operators[following.op_index].name == _ET_VIEW:
            self._at += 1
            self._argument(node.args[0], following.args[0], "self")
            self._same(spec, following.args[2])

    def _kernel(self, node: Node, target: Any) -> None:
        found = self._next(KernelCall)
        schema = target._schema
        name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        self._require(self._operator(found) == name, f"a call of {self._operator(found)} instead of {name}")
        for place, parameter in enumerate(schema.arguments):
            if not parameter.kwarg_only and place < len(node.args):
                value = node.args[place]
            elif parameter.name in node.kwargs:
                value = node.kwargs[parameter.name]
            else:
                value = parameter.default_value
            self._argument(value, found.args[place], parameter.name)
        if "spec" not in node.meta and len(found.args) == len(schema.arguments) + 1:
            self._same(node, found.args[-1])

    def _argument(self, value: Any, index: int, name: str) -> None:
        if isinstance(value, Node):
            self._node(value, index)
        elif isinstance(value, list | tuple):
            self._list(value, index, name)
        elif value is None:
            # A tensor that may not be missing is replaced by an empty one.
            is_none = isinstance(self._value(index), Null | Tensor)
            self._require(is_none, f"{name} is {self._value(index)!r} instead of None")
        elif isinstance(value, bool | int | float):
            self._number(value, index, name)

    def _node(self, value: Node, index: int) -> None:
        spec = value.meta.get("spec")
        if isinstance(spec, TensorSpec):
            self._same(spec, index)
        elif isinstance(spec, list | tuple):
            items = getattr(self._value(index), "items", [])
            self._require(len(items) == len(spec), f"%{value.name} is a list of {len(items)}")
            for one, item in zip(spec, items, strict=True):
                self._same(one, item)
        else:
            self._same(value, index)

    def _list(self, value: list[Any] | tuple[Any, ...], index: int, name: str) -> None:
        found = self._value(index)
        if isinstance(found, IntList | TensorList | OptionalTensorList):
            self._require(len(found.items) == len(value), f"{name} has {len(found.items)} items")
            for one, item in zip(value, found.items, strict=True):
                if item >= 0:
                    self._argument(one, item, name)
        elif isinstance(found, DoubleList | BoolList):
            self._require(list(found.items) == list(value), f"{name} is {list(found.items)} instead of {list(value)}")

    def _number(self, value: float, index: int, name: str) -> None:
        found = self._value(index)
        if isinstance(found, Int):
            got: float = found.int_val
        elif isinstance(found, Double):
            got = found.double_val
        elif isinstance(found, Bool):
            got = found.bool_val
        else:
            # One number may stand for a list of equal ones.
            return
        self._require(got == value or (got != got and value != value), f"{name} is {got!r} instead of {value!r}")

    def _same(self, meaning: Any, index: int) -> None:
        """Require that a spec or node stands for a value, and for no other."""
        known, other = self._index.setdefault(meaning, index), self._meaning.setdefault(index, meaning)
        self._require(known == index, f"value {index} where value {known} is meant")
        self._require(other is meaning, f"value {index} stands for two things")
        if isinstance(meaning, TensorSpec):
            for fault in _tensor_faults(meaning, self._value(index)):
                raise _MismatchError(f"value {index}: {fault}")

    def _next(self, kind: type[Any]) -> Any:
        self._require(self._at < len(self._instructions), "no instruction")
        found = self._instructions[self._at]
        self._require(isinstance(found, kind), f"instruction {self._at} is a {type(found).__name__}")
        self._at += 1
        return found

    def _operator(self, call: KernelCall) -> str:
        found = self.plan.operators[call.op_index]
        return f"{found.name}.{found.overload}" if found.overload else found.name

    def _value(self, index: int) -> Any:
        self._require(0 <= index < len(self.plan.values), f"there is no value {index}")
        return self.plan.values[index].val

    @staticmethod
    def _require(holds: bool, message: str) -> None:
        if not holds:
            raise _MismatchError(message)


def _bytes_of(tensor: torch.Tensor, dim_order: list[int]) -> bytes:
    dense = tensor.detach().permute(list(dim_order)).contiguous().reshape(-1)
    if dense.numel() == 1:
        dense = dense.as_strided((1,), (1,))
    return bytes(dense.view(torch.uint8).numpy().tobytes()) if dense.numel() else b""


def _tensor_faults(spec: TensorSpec, value: Any) -> Iterator[str]:
    if not isinstance(value, Tensor):
        yield f"a {type(value).__name__} instead of a tensor"
        return
    dtype: torch.dtype = value.scalar_type.dtype
    if dtype != spec.dtype:
        yield f"{dtype} instead of {spec.dtype}"
    if list(value.sizes) != [int(size) for size in spec.shape]:
        yield f"sizes {list(value.sizes)} instead of {list(spec.shape)}"
    if list(value.dim_order) != list(spec.dim_order):
        yield f"dim order {list(value.dim_order)} instead of {list(spec.dim_order)}"
    place = value.allocation_info
    if place is not None and (place.memory_id, place.memory_offset) != (spec.mem_id, spec.mem_offset):
        yield f"it lies at {place.memory_id}:{place.memory_offset} instead of {spec.mem_id}:{spec.mem_offset}"

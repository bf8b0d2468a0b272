"""Whether an emitted method says what its graph says: the same calls on the same tensors, which lie where planned.

Written from the format, without the help of the emitter: graph and instructions are walked side by side, and every
spec of the graph must stand for one value of the plan all along.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node

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
    MoveCall,
    Null,
    OptionalTensorList,
    PteFile,
    Tensor,
    TensorList,
)
from exirkit.ir import TensorSpec, alloc, control_flow_call, free, view

from .control_flow_emission import number_results, walk_control_flow

_ET_VIEW = "executorch_prim::et_view.default"
# Numbers by the type of a parameter; one of type `number` may be any of them.
_KINDS: dict[str, tuple[type[Any], ...]] = {
    "float": (Double,),
    "int": (Int,),
    "bool": (Bool,),
    "Optional[float]": (Double, Null),
    "Optional[int]": (Int, Null),
    "Optional[bool]": (Bool, Null),
    "List[float]": (DoubleList,),
    "List[int]": (IntList,),
    "List[bool]": (BoolList,),
}
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
    walk = Walk(plan)
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
    walk = Walk(next(one for one in file.program.execution_plan if one.name == method))
    try:
        walk.run(program)
    except _FAULTS:
        return {}
    found: dict[int, int] = {}
    graphs = [one.graph for one in program.graph_module.modules() if isinstance(one, GraphModule)]
    for node in (node for graph in graphs for node in graph.find_nodes(op="call_function", target=view)):
        spec = node.meta["spec"]
        shown, base = walk.index_of(spec), walk.index_of(spec.storage_base)
        if shown is not None and base is not None:
            found[shown] = base
    return found


class Walk:
    """Graph and instructions side by side.

    Attributes:
        plan: The plan.
        node: Name of the node at which the walk is.
        at: Number of the instruction that comes next.
    """

    def __init__(self, plan: ExecutionPlan) -> None:
        self.plan = plan
        self.node = ""
        self._instructions = [one.instr_args for chain in plan.chains for one in chain.instructions]
        self.at = 0
        # Numbers that instructions write are not constants, whatever is stored of them.
        self._changing = {one.move_to for one in self._instructions if isinstance(one, MoveCall)}
        self._changing |= {one.args[-1] for one in self._instructions if isinstance(one, KernelCall)}
        # What stands for what: specs of tensors, or nodes whose value is a number.
        self._index: dict[Any, int] = {}
        self._meaning: dict[int, Any] = {}
        # Inputs of bodies, and numbers taken out of results, with what they stand for.
        self._stands_for: dict[Node, Any] = {}

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
        """Compare what the caller passes."""
        placeholders = program.graph.find_nodes(op="placeholder")
        pairs = zip(placeholders, program.graph_signature.input_specs, strict=True)
        given = [node for node, spec in pairs if spec.kind is InputKind.USER_INPUT]
        self.require(len(given) == len(self.plan.inputs), f"{len(self.plan.inputs)} inputs instead of {len(given)}")
        for node, index in zip(given, self.plan.inputs, strict=True):
            self.node = node.name
            if isinstance(node.meta.get("spec"), TensorSpec):
                self.same(node.meta["spec"], index)

    def data(self, program: ExportedProgram, file: PteFile) -> None:
        """Compare what is stored with what the file has of it, once it is known which value stands for what."""
        stored = {**program.state_dict, **program.constants}
        placeholders = program.graph.find_nodes(op="placeholder")
        for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
            index = self._index.get(node.meta.get("spec"))
            tensor = stored.get(spec.target)
            value = None if index is None else self.value(index)
            if not isinstance(tensor, torch.Tensor) or not isinstance(value, Tensor) or value.data_buffer_idx == 0:
                continue
            self.node = node.name
            is_state = value.allocation_info is not None
            read = file.mutable_data if is_state else file.constant
            wanted = _bytes_of(tensor, value.dim_order)
            got = bytes(read(value.data_buffer_idx)[: len(wanted)])
            self.require(got == wanted, f"value {index}: the file has other elements for {spec.target}")

    def body(self, module: GraphModule, inputs: Sequence[Any]) -> None:
        """Walk along a graph that is called.

        Args:
            module: The graph.
            inputs: What its inputs stand for: nodes, constants, specs, or what stands for a number.
        """
        for node, given in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True):
            self._stands_for[node] = given
        for node in module.graph.nodes:
            self.node = node.name
            if node.op == "call_function":
                self.call(node)

    def call(self, node: Node) -> None:
        """Walk along one call."""
        target: Any = node.target
        if target is operator.getitem:
            source = control_flow_call(cast(Node, node.args[0]))
            number = None if source is None else number_results(node, source)
            if number is not None:
                self._stands_for[node] = number
            return
        if target is alloc:
            return
        control_flow = control_flow_call(node)
        if control_flow is not None:
            walk_control_flow(self, control_flow)
            return
        if target is view:
            self._view(node)
        elif target is free:
            found = self.take(FreeCall)
            self.same(node.args[0], found.value_index)
        else:
            self._kernel(node, target)

    def end(self, program: ExportedProgram, node: Node) -> None:
        """Compare what the caller gets, when no instruction is left."""
        self.require(self.at == len(self._instructions), f"{len(self._instructions) - self.at} more instructions")
        results: Any = node.args[0]
        kinds = [spec.kind for spec in program.graph_signature.output_specs]
        returned = [one for one, kind in zip(results, kinds, strict=True) if kind not in _NO_OUTPUTS]
        self.require(len(returned) == len(self.plan.outputs), "another number of outputs")
        for one, index in zip(returned, self.plan.outputs, strict=True):
            self.argument(one, index, "output")

    def _view(self, node: Node) -> None:
        spec: TensorSpec = node.meta["spec"]
        if spec.const or (spec.is_static_shape_tensor and spec.mem_offset is not None):
            # The value has the place of its base.
            return
        base, sizes, result = self.kernel(_ET_VIEW)
        self.argument(node.args[0], base, "self")
        self.argument(node.args[1], sizes, "size")
        self.same(spec, result)

    def _kernel(self, node: Node, target: Any) -> None:
        found = self.take(KernelCall)
        schema = target._schema
        name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        self.require(self.operator_of(found) == name, f"a call of {self.operator_of(found)} instead of {name}")
        for place, parameter in enumerate(schema.arguments):
            if not parameter.kwarg_only and place < len(node.args):
                value = node.args[place]
            elif parameter.name in node.kwargs:
                value = node.kwargs[parameter.name]
            else:
                value = parameter.default_value
            self.argument(value, found.args[place], parameter.name)
            self._kind(str(parameter.real_type), found.args[place], parameter.name)
        if "spec" not in node.meta and len(found.args) == len(schema.arguments) + 1:
            self.same(node, found.args[-1])

    def _kind(self, wanted: str, index: int, name: str) -> None:
        """Require that a number is stored as the schema says: the official runtime converts none."""
        kinds = _KINDS.get(wanted)
        found = self.value(index)
        if kinds is not None and not isinstance(found, kinds):
            raise _MismatchError(f"{name} is {found!r} where the operator takes {wanted}")

    def argument(self, value: Any, index: int, name: str) -> None:
        """Require that a value of the plan is an argument."""
        if isinstance(value, Node) and value in self._stands_for and not isinstance(value.meta.get("spec"), TensorSpec):
            value = self._stands_for[value]
        if isinstance(value, TensorSpec) or _is_number_of_call(value):
            self.same(value, index)
        elif isinstance(value, Node):
            self._node(value, index)
        elif isinstance(value, list | tuple):
            self._list(value, index, name)
        elif value is None:
            # A tensor that may not be missing is replaced by an empty one.
            is_none = isinstance(self.value(index), Null | Tensor)
            self.require(is_none, f"{name} is {self.value(index)!r} instead of None")
        elif isinstance(value, bool | int | float):
            self._number(value, index, name)

    def _node(self, value: Node, index: int) -> None:
        spec = value.meta.get("spec")
        if isinstance(spec, TensorSpec):
            self.same(spec, index)
        elif isinstance(spec, list | tuple):
            items = getattr(self.value(index), "items", [])
            self.require(len(items) == len(spec), f"%{value.name} is a list of {len(items)}")
            for one, item in zip(spec, items, strict=True):
                self.same(one, item)
        else:
            self.same(value, index)

    def _list(self, value: list[Any] | tuple[Any, ...], index: int, name: str) -> None:
        found = self.value(index)
        if isinstance(found, IntList | TensorList | OptionalTensorList):
            self.require(len(found.items) == len(value), f"{name} has {len(found.items)} items")
            for one, item in zip(value, found.items, strict=True):
                if item >= 0:
                    self.argument(one, item, name)
        elif isinstance(found, DoubleList | BoolList):
            is_same = len(found.items) == len(value) and all(map(_same_number, found.items, value))
            self.require(is_same, f"{name} is {list(found.items)} instead of {list(value)}")

    def _number(self, value: float, index: int, name: str) -> None:
        self.require(index not in self._changing, f"{name} changes instead of being {value!r}")
        found = self.value(index)
        if isinstance(found, Int):
            got: float = found.int_val
        elif isinstance(found, Double):
            got = found.double_val
        elif isinstance(found, Bool):
            got = found.bool_val
        else:
            # One number may stand for a list of equal ones.
            is_list = isinstance(found, IntList | DoubleList | BoolList)
            self.require(is_list, f"{name} is {found!r} instead of {value!r}")
            return
        self.require(_same_number(got, value), f"{name} is {got!r} instead of {value!r}")

    def same(self, meaning: Any, index: int) -> None:
        """Require that a spec or node stands for a value, and for no other."""
        known, other = self._index.setdefault(meaning, index), self._meaning.setdefault(index, meaning)
        self.require(known == index, f"value {index} where value {known} is meant")
        self.require(other == meaning, f"value {index} stands for two things")
        if isinstance(meaning, TensorSpec):
            for fault in _tensor_faults(meaning, self.value(index)):
                raise _MismatchError(f"value {index}: {fault}")

    def known(self, meaning: Any) -> int:
        """Return the value that a spec or number stands for."""
        self.require(meaning in self._index, "something that no instruction has written")
        return self._index[meaning]

    def following(self) -> Any:
        """Return the next instruction."""
        self.require(self.at < len(self._instructions), "no instruction")
        return self._instructions[self.at]

    def kernel(self, name: str) -> list[int]:
        """Go on behind a call of an operator, and return its arguments."""
        found = self.take(KernelCall)
        self.require(self.operator_of(found) == name, f"a call of {self.operator_of(found)} instead of {name}")
        return list(found.args)

    def take(self, kind: type[Any]) -> Any:
        """Go on behind an instruction of a kind, and return it."""
        found = self.following()
        self.require(isinstance(found, kind), f"instruction {self.at} is a {type(found).__name__}")
        self.at += 1
        return found

    def operator_of(self, call: KernelCall) -> str:
        """Return the name of the operator that a call is of."""
        found = self.plan.operators[call.op_index]
        return f"{found.name}.{found.overload}" if found.overload else found.name

    def value(self, index: int) -> Any:
        """Return a value of the plan."""
        self.require(0 <= index < len(self.plan.values), f"there is no value {index}")
        return self.plan.values[index].val

    @staticmethod
    def require(holds: bool, message: str) -> None:
        """Fail with a message unless something holds."""
        if not holds:
            raise _MismatchError(message)


def _same_number(one: float, other: float) -> bool:
    """Whether two numbers are one, by their sign too where that is of a zero."""
    if one != other:
        return one != one and other != other
    return one != 0 or math.copysign(1, one) == math.copysign(1, other)


def _is_number_of_call(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Node)


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

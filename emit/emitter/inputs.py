"""Placeholders of a method: weights, constants, buffers with state, and what the caller passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.fx import Node

from exirkit.emit.schema import ExtraTensorInfo, TensorDataLocation
from exirkit.ir import ContractError, Diagnostic, ModelError, TensorSpec, locate, sample_ints

from .constants import ConstantPool, contents, is_all_zero
from .delegates import DelegatePool
from .values import ValueTable, constant_member, tensor_value

_STORED = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})


@dataclass
class ProgramState:
    """What all methods of a program share.

    Attributes:
        emit_mutable_buffer_names: Store the names of mutable buffers.
        constants: Contents of constants.
        initial_values: Initial contents of mutable buffers.
        delegates: What backends have made.
    """

    emit_mutable_buffer_names: bool = False
    constants: ConstantPool = field(default_factory=ConstantPool)
    initial_values: ConstantPool = field(default_factory=ConstantPool)
    delegates: DelegatePool = field(default_factory=DelegatePool)


class InputEmitter:
    """Adds the placeholders of one method to its value table, before anything else.

    Args:
        program: The method.
        state: What all methods share.
        values: Value table of the method.
        spec_ids: Index of the value of each spec; filled here.

    Attributes:
        user_inputs: Indices of what the caller passes.
    """

    def __init__(
        self, program: ExportedProgram, state: ProgramState, values: ValueTable, spec_ids: dict[TensorSpec, int]
    ) -> None:
        self.user_inputs: list[int] = []
        self._program = program
        self._state = state
        self._values = values
        self._spec_ids = spec_ids
        self._data: dict[TensorSpec, int] = {}
        self._mutated = {
            spec.target
            for spec in program.graph_signature.output_specs
            if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
        }

    def emit(self) -> dict[Node, int]:
        """Add all placeholders and return their indices.

        Raises:
            ModelError: EK554, a weight has no data; EK558, an input of a type that the format does not know.
            ContractError: EK550, a mutable buffer has neither a place nor a name.
        """
        placeholders = self._program.graph_module.graph.find_nodes(op="placeholder")
        signature = self._program.graph_signature
        return {
            node: self._placeholder(node, entry)
            for node, entry in zip(placeholders, signature.input_specs, strict=True)
        }

    def data_of(self, spec: TensorSpec) -> int:
        """Return the index of the contents of a constant."""
        return self._data[spec]

    def _placeholder(self, node: Node, entry: InputSpec) -> int:
        spec = node.meta.get("spec")
        if entry.kind not in _STORED:
            found = self._values.new(tensor_value(spec)) if isinstance(spec, TensorSpec) else self._number(node)
            self.user_inputs.append(found)
        elif spec.const:  # type: ignore[union-attr]
            found = self._constant(spec, str(entry.target))  # type: ignore[arg-type]
        else:
            found = self._mutable(node, spec, str(entry.target))  # type: ignore[arg-type]
        if isinstance(spec, TensorSpec):
            self._spec_ids[spec] = found
        return found

    def _number(self, node: Node) -> int:
        """Add an input that is no tensor, with the traced value: the official runtime takes no other one."""
        value: Any = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            value = sample_ints([value])[0]
        member = constant_member(value)
        if member is None:
            raise ModelError(
                Diagnostic(
                    code="EK558",
                    message=f"input {node.name} is a {type(value).__name__}, which a program cannot take",
                    location=locate(node),
                    expected="a tensor, an integer, a float, a truth value, a text or None",
                )
            )
        return self._values.new(member)

    def _constant(self, spec: TensorSpec, name: str) -> int:
        data = self._state.constants.add(self._tensor(name), spec.dim_order, name)
        self._data[spec] = data
        return self._values.new(tensor_value(spec, data_buffer_idx=data, is_planned=False))

    def _mutable(self, node: Node, spec: TensorSpec, name: str) -> int:
        """Add a buffer that changes: a place, and initial contents unless they are zero, as fresh memory is."""
        has_name = self._state.emit_mutable_buffer_names
        if spec.mem_offset is None and not has_name:
            raise ContractError(
                Diagnostic(
                    code="EK550",
                    message=f"mutable buffer {name} has no place in memory",
                    location=locate(node),
                    notes=(repr(spec),),
                    expected="`mem_id` and `mem_offset`, or `emit_mutable_buffer_names=True` for memory by name",
                )
            )
        data = 0
        if spec.mem_offset is not None:
            data = self._initial_value(node, spec, name)
        extra = None
        if has_name or data:
            extra = ExtraTensorInfo(
                fully_qualified_name=name if has_name else None, location=TensorDataLocation.SEGMENT
            )
        return self._values.new(tensor_value(spec, data_buffer_idx=data, extra=extra))

    def _initial_value(self, node: Node, spec: TensorSpec, name: str) -> int:
        tensor = self._tensor(name)
        if not node.meta.get("et_init_buffer") and is_all_zero(contents(tensor, spec.dim_order)):
            return 0
        return self._state.initial_values.add(tensor, spec.dim_order, name)

    def _tensor(self, name: str) -> torch.Tensor:
        program = self._program
        for table in (program.state_dict, program.constants):
            if name in table:
                found: torch.Tensor = table[name]
                return found
        raise ModelError(
            Diagnostic(
                code="EK554",
                message=f"{name} has no data",
                expected="an entry in `state_dict` or `constants` of the program",
                hint="export the module again; the program was changed without its tables",
            )
        )

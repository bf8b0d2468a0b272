"""The emitter: lowered and planned methods, and methods that return constants, become one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import Diagnostic, Location, TensorSpec, UsageError, pytree

from .method_emitter import MethodEmitter
from .schema import Buffer, Chain, ContainerMetadata, EValue, ExecutionPlan, Program
from .segments import NamedBlob
from .values import ConstantPool, ProgramState, constant_member, container_text, tensor_value


@dataclass(frozen=True)
class EmitterOutput:
    """A program in its form in memory, and what belongs to it.

    Attributes:
        program: Constants are views of the weights; nothing is laid out as segments yet.
        debug_handle_map: For each method, the debug handle (or handles) of instructions by index.
        method_to_delegate_debug_id_map: For each method, what delegates report about their instructions by index.
        instruction_id_to_num_outs_map: For each method, the number of results of its calls of delegates, by index.
        mutable_data: Initial contents of mutable buffers, entry 0 empty; None if there are none.
        named_data: Data that delegates find by a key.
        external_data: Constants, and data that delegates find, by key in data files beside the program, by the name of
            the file.
        view_bases: For each method, the value whose memory a view shows that needs no instruction, by the view's value.
    """

    program: Program
    debug_handle_map: dict[str, dict[int, int | tuple[int, ...]]] = field(default_factory=dict)
    method_to_delegate_debug_id_map: dict[str, dict[int, Any]] = field(default_factory=dict)
    instruction_id_to_num_outs_map: dict[str, dict[int, int]] = field(default_factory=dict)
    mutable_data: list[Buffer] | None = None
    named_data: dict[str, NamedBlob] | None = None
    external_data: dict[str, dict[str, NamedBlob]] = field(default_factory=dict)
    view_bases: dict[str, dict[int, int]] = field(default_factory=dict)


def emit_program(
    methods: ExportedProgram | Mapping[str, ExportedProgram],
    *,
    emit_stacktrace: bool = False,
    emit_mutable_buffer_names: bool = False,
    config_methods: Mapping[str, Any] | None = None,
    file_of_constant: Callable[[Node], str | None] = lambda _node: None,
) -> EmitterOutput:
    """Emit methods of the ExecuTorch dialect as one program.

    Values that no instruction changes are stored once in each method, constants with equal bytes once in the program,
    both also where they come from different places. A mutable buffer keeps its initial value, unless that is all
    zeros, which is what the runtime's fresh memory holds.

    Args:
        methods: Lowered and planned program, which becomes `forward`, or programs by method name. They are not changed.
        emit_stacktrace: Store the source lines of each instruction.
        emit_mutable_buffer_names: Store the names of mutable buffers.
        config_methods: Values by method name; each becomes a method that returns its value.
        file_of_constant: Returns the name of the data file for the constant behind a placeholder, without `.ptd`, or
            None for one that is to be in the program.

    Raises:
        ModelError: EK533, two constants of one name; EK551 to EK554, EK557, EK558, what the format cannot hold.
        ContractError: EK550, EK556, memory is not planned.
        UsageError: EK555, EK559, a method is neither a program nor a constant, or two have one name.

    A method that returns gradients of parameters (a joint graph of forward and backward) returns these parameters too,
    behind its results, so that a trainer can change them in place; `__et_training_gradients_index_NAME`,
    `__et_training_parameters_index_NAME` and `__et_training_fqn_NAME` say which results are what.

    Source: the emission conventions of the ExecuTorch exporter: order of arguments, results after them, lists of
        results.
    """
    named = {"forward": methods} if isinstance(methods, ExportedProgram) else dict(methods)
    constants = dict(config_methods or {})
    _check_names(named, constants)
    state = ProgramState(emit_mutable_buffer_names=emit_mutable_buffer_names, file_of_constant=file_of_constant)
    emitted = {
        name: MethodEmitter(name, program, state, emit_stacktrace=emit_stacktrace).emit()
        for name, program in sorted(named.items())
    }
    plans = [method.plan for method in emitted.values()]
    for method in emitted.values():
        for reserved in method.training:
            if reserved in named or reserved in constants:
                raise UsageError(Diagnostic.of("EK559", f"{reserved} names a method that training needs"))
        constants |= method.training
    plans += [_constant_method(name, value, state.constants) for name, value in constants.items()]
    initial_values = state.initial_values.buffers
    return EmitterOutput(
        program=Program(
            execution_plan=plans,
            constant_buffer=state.constants.buffers,
            backend_delegate_data=state.delegates.payloads,
        ),
        debug_handle_map={name: method.debug_handles for name, method in emitted.items()},
        method_to_delegate_debug_id_map={name: method.delegate_handles for name, method in emitted.items()},
        instruction_id_to_num_outs_map={name: method.result_counts for name, method in emitted.items()},
        named_data=state.delegates.named_data or None,
        external_data=state.external_data(),
        mutable_data=initial_values if len(initial_values) > 1 else None,
        view_bases={name: method.view_bases for name, method in emitted.items()},
    )


def _check_names(methods: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
    for name, program in methods.items():
        if not isinstance(program, ExportedProgram):
            raise UsageError(
                Diagnostic.of(
                    "EK559", f"method {name} is a {type(program).__name__}", expected="a torch.export.ExportedProgram"
                )
            )
        if name in constants:
            raise UsageError(Diagnostic.of("EK559", f"{name} names both a program and a constant method"))


def _constant_method(name: str, value: Any, constants: ConstantPool) -> ExecutionPlan:
    """Return the plan of a method that returns a constant.

    Args:
        name: Name of the method.
        value: Number, string, dtype, tensor, or a container of these; leaves become outputs in order.
        constants: Where tensors are stored.

    Raises:
        UsageError: EK555, a leaf is of another type.
    """
    leaves, spec = pytree.tree_flatten(value)
    values = [EValue(val=_constant_value(name, leaf, constants)) for leaf in leaves]
    return ExecutionPlan(
        name=name,
        container_meta_type=ContainerMetadata(encoded_inp_str="", encoded_out_str=container_text(spec)),
        values=values,
        outputs=list(range(len(values))),
        chains=[Chain()],
        non_const_buffer_sizes=[0],
    )


def _constant_value(name: str, leaf: Any, constants: ConstantPool) -> Any:
    if isinstance(leaf, torch.Tensor):
        spec = TensorSpec.from_tensor(leaf, const=True)
        data = constants.add(leaf, spec.dim_order, name)
        return tensor_value(spec, data_buffer_idx=data, is_planned=False)
    member = constant_member(leaf)
    if member is None:
        raise UsageError(
            Diagnostic.of(
                "EK555",
                f"constant method {name} returns a {type(leaf).__name__}",
                location=Location(method=name, text=repr(leaf)[:160]),
            )
        )
    return member

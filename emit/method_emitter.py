"""Emission of one method: its graph becomes values and instructions of a plan."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.fx import GraphModule, Node

from exirkit.ir import (
    EXTERNAL_DATA_KEY,
    ContractError,
    DefinedOperator,
    Delegate,
    Diagnostic,
    ModelError,
    OpOverload,
    ProgramInterface,
    TensorSpec,
    alloc,
    called_graphs,
    control_flow_call,
    delegate_attribute,
    delegate_of,
    free,
    graph_argument,
    is_external_constant,
    locate,
    results_of_graph,
    sample_ints,
    stack_frames,
    view,
    written_arguments,
)

from .control_flow import ControlFlowEmitter
from .schema import (
    BackendDelegate,
    Chain,
    ContainerMetadata,
    DelegateCall,
    DeviceType,
    EValue,
    ExecutionPlan,
    ExtraTensorInfo,
    Frame,
    FrameList,
    FreeCall,
    Instruction,
    Int,
    JumpFalseCall,
    KernelCall,
    NonConstBufferDevice,
    Operator,
    Tensor,
    TensorDataLocation,
)
from .values import (
    ArgumentWriter,
    Ids,
    ProgramState,
    ValueTable,
    call_values,
    constant_member,
    container_text,
    is_all_zero,
    make_table,
    parameters,
    streamed_contents,
    tensor_value,
)

_STORED = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})
_NO_OUTPUTS = frozenset(
    {OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.TOKEN}
)

_ET_VIEW = ("executorch_prim::et_view", "default")
_BASE, _SIZES = parameters(torch.ops.aten.view_copy.default)


@dataclass(frozen=True)
class EmittedMethod:
    """A plan and what is known about its instructions.

    Attributes:
        plan: The plan.
        debug_handles: Debug handle, or handles, of instructions by index.
        result_counts: Number of results of calls of delegates, by index of the instruction.
        view_bases: For each view that needs no instruction, the value whose memory it shows.
        training: For a method that returns gradients, what `__et_training_*` methods have to return, by their names.
        delegate_handles: What delegates report about their instructions, by index.
    """

    plan: ExecutionPlan
    debug_handles: dict[int, int | tuple[int, ...]] = field(default_factory=dict)
    result_counts: dict[int, int] = field(default_factory=dict)
    view_bases: dict[int, int] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    delegate_handles: dict[int, Any] = field(default_factory=dict)


class MethodEmitter:
    """Walks the graph of one method once, in order.

    Args:
        name: Name of the method.
        program: Program of the ExecuTorch dialect with planned memory.
        state: What all methods share.
        emit_stacktrace: Store the source lines of each instruction.
    """

    def __init__(self, name: str, program: ExportedProgram, state: ProgramState, *, emit_stacktrace: bool) -> None:
        self._name = name
        self._program = program
        self.values = ValueTable()
        self._ids: dict[Node, Ids] = {}
        self._spec_ids: dict[TensorSpec, int] = {}
        self._arguments = ArgumentWriter(self.values, self._ids)
        self._operators: dict[tuple[str, str], int] = {}
        self._state = state
        self._delegates: list[BackendDelegate] = []
        self._delegate_handles: dict[int, Any] = {}
        self.instructions: list[Instruction] = []
        self._stacktrace: list[Any] | None = [] if emit_stacktrace else None
        self._debug_handles: dict[int, int | tuple[int, ...]] = {}
        self._result_counts: dict[int, int] = {}
        self._view_bases: dict[int, int] = {}
        self._unplanned = _may_be_unplanned(program)
        allocs = program.graph_module.graph.find_nodes(op="call_function", target=alloc)
        self._computed_specs = {spec for node in allocs if isinstance(spec := node.meta.get("spec"), TensorSpec)}
        self._contents: dict[TensorSpec, int] = {}
        self._external: set[TensorSpec] = set()
        self._user_inputs: list[int] = []
        self._trained: list[int] = []
        self._control_flow = ControlFlowEmitter(self)

    def emit(self) -> EmittedMethod:
        """Return the plan.

        Raises:
            ModelError: EK551 to EK554, EK557, what the format cannot hold.
            ContractError: EK550, EK556, memory is not planned.
        """
        self._placeholders()
        outputs: list[int] = []
        training: dict[str, Any] = {}
        for node in self._program.graph_module.graph.nodes:
            if node.op == "output":
                outputs = self._outputs(node)
                training = self._training(len(outputs))
                outputs += self._trained
            elif node.op != "placeholder":
                self._node(node)
        devices = _arena_devices(self._program.graph_module)
        _mark_devices(self.values.values, devices)
        # `call_spec` of the program makes a class whenever it is asked.
        form = next((entry.signature for entry in self._program.module_call_graph if not entry.fqn), None)
        plan = ExecutionPlan(
            name=self._name,
            container_meta_type=ContainerMetadata(
                encoded_inp_str=container_text(form and form.in_spec),
                encoded_out_str=container_text(form and form.out_spec),
            ),
            values=self.values.values,
            inputs=self._user_inputs,
            outputs=outputs,
            chains=[Chain(instructions=self.instructions, stacktrace=self._stacktrace)],
            delegates=self._delegates,
            operators=[Operator(name=name, overload=overload) for name, overload in self._operators],
            non_const_buffer_sizes=self._arena_sizes(),
            non_const_buffer_device=devices,
        )
        return EmittedMethod(
            plan, self._debug_handles, self._result_counts, self._view_bases, training, self._delegate_handles
        )

    def _training(self, count: int) -> dict[str, Any]:
        """Return where a trainer finds gradients and parameters behind the results of the graph, which are `count`.

        Source: methods that the training module of the ExecuTorch runtime calls.
        """
        interface = ProgramInterface.of(self._program)
        if not interface.trained:
            return {}
        specs = [spec for _, spec in interface.results if spec is not None and spec.kind not in _NO_OUTPUTS]
        gradients = [at for at, spec in enumerate(specs) if spec.kind is OutputKind.GRADIENT_TO_PARAMETER]
        self._trained = [self._spec_ids[node.meta["spec"]] for node in interface.trained]
        return {
            f"__et_training_gradients_index_{self._name}": gradients[0],
            f"__et_training_parameters_index_{self._name}": count,
            f"__et_training_fqn_{self._name}": [specs[at].target for at in gradients],
        }

    def _arena_sizes(self) -> list[int]:
        sizes = self._program.graph_module.meta.get("non_const_buffer_sizes")
        if sizes is None:
            raise ContractError(Diagnostic.of("EK556", f"the memory of method {self._name} is not planned"))
        return [int(size) for size in sizes]

    # Inputs

    def _placeholders(self) -> None:
        """Add weights, constants, buffers with state, and what the caller passes, before anything else.

        Raises:
            ModelError: EK554, a weight has no data; EK558, an input of a type that the format does not know.
            ContractError: EK550, a mutable buffer has neither a place nor a name.
        """
        placeholders = self._program.graph_module.graph.find_nodes(op="placeholder")
        for node, entry in zip(placeholders, self._program.graph_signature.input_specs, strict=True):
            self._ids[node] = self._placeholder(node, entry)

    def _placeholder(self, node: Node, entry: InputSpec) -> int:
        spec = node.meta.get("spec")
        if entry.kind not in _STORED:
            found = self.values.new(tensor_value(spec)) if isinstance(spec, TensorSpec) else self._number_input(node)
            self._user_inputs.append(found)
        elif spec.const:  # type: ignore[union-attr]
            found = self._constant(node, spec, str(entry.target))  # type: ignore[arg-type]
        else:
            found = self._mutable(node, spec, str(entry.target))  # type: ignore[arg-type]
        if isinstance(spec, TensorSpec):
            self._spec_ids[spec] = found
        return found

    def _number_input(self, node: Node) -> int:
        """Add an input that is not a tensor, with the traced value: the official runtime takes no other one."""
        value: Any = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            value = sample_ints([value])[0]
        member = constant_member(value)
        if member is None:
            raise ModelError(
                Diagnostic.of(
                    "EK558",
                    f"input {node.name} is a {type(value).__name__}, which a program cannot take",
                    location=locate(node),
                )
            )
        return self.values.new(member)

    def _constant(self, node: Node, spec: TensorSpec, name: str) -> int:
        file = self._state.file_of_constant(node)
        if file is not None:
            self._state.external.add(file, name, self._stored_tensor(name), spec)
            self._external.add(spec)
            extra = ExtraTensorInfo(fully_qualified_name=name, location=TensorDataLocation.EXTERNAL)
            return self.values.new(tensor_value(spec, is_planned=False, extra=extra))
        data = self._state.constants.add(self._stored_tensor(name), spec.dim_order, name)
        self._contents[spec] = data
        return self.values.new(tensor_value(spec, data_buffer_idx=data, is_planned=False))

    def _mutable(self, node: Node, spec: TensorSpec, name: str) -> int:
        """Add a buffer that changes: a place, and initial contents unless they are zero, as fresh memory is."""
        has_name = self._state.emit_mutable_buffer_names
        if spec.mem_offset is None and not has_name:
            raise ContractError(
                Diagnostic.of(
                    "EK550",
                    f"mutable buffer {name} has no place in memory",
                    location=locate(node),
                    notes=(repr(spec),),
                    expected="`mem_id` and `mem_offset`, or `emit_mutable_buffer_names=True` for memory by name",
                )
            )
        extra: ExtraTensorInfo | None = None
        # Of what changes, only parameters that are trained are marked so, and no function of the user is asked.
        if is_external_constant(node):
            self._state.external.add(node.meta[EXTERNAL_DATA_KEY], name, self._stored_tensor(name), spec)
            extra = ExtraTensorInfo(fully_qualified_name=name, location=TensorDataLocation.EXTERNAL)
            return self.values.new(tensor_value(spec, extra=extra))
        data = 0
        if spec.mem_offset is not None:
            data = self._initial_value(node, spec, name)
        # A buffer of zeros would look like any other result if it is computed, and like garbage if nothing writes to
        # it; its name shows what it is.
        has_name = has_name or spec in self._computed_specs
        if not (has_name or data):
            has_name = not any(node in written_arguments(user) for user in node.users)
        if has_name or data:
            extra = ExtraTensorInfo(
                fully_qualified_name=name if has_name else None, location=TensorDataLocation.SEGMENT
            )
        return self.values.new(tensor_value(spec, data_buffer_idx=data, extra=extra))

    def _initial_value(self, node: Node, spec: TensorSpec, name: str) -> int:
        tensor = self._stored_tensor(name)
        if not node.meta.get("et_init_buffer") and is_all_zero(streamed_contents(tensor, spec.dim_order)):
            return 0
        return self._state.initial_values.add(tensor, spec.dim_order, name)

    def _stored_tensor(self, name: str) -> torch.Tensor:
        program = self._program
        for table in (program.state_dict, program.constants):
            if name in table:
                found: torch.Tensor = table[name]
                return found
        raise ModelError(
            Diagnostic.of(
                "EK554",
                f"{name} has no data",
                expected="an entry in `state_dict` or `constants` of the program",
                hint="export the module again; the program was changed without its tables",
            )
        )

    # Calls

    def _node(self, node: Node) -> None:
        if node.op == "call_function":
            self._ids[node] = self._call(node)
        elif graph_argument(node) is None and delegate_attribute(node) is None:
            raise ModelError(_cannot_run(node))

    def body(self, body: GraphModule, inputs: Sequence[Ids | None]) -> list[Ids | None]:
        """Emit the instructions of a graph that is called, and return where its results are."""
        for placeholder, found in zip(body.graph.find_nodes(op="placeholder"), inputs, strict=True):
            if found is None:
                found = self._place(placeholder, placeholder.meta["spec"])
            self._ids[placeholder] = found
        for node in body.graph.nodes:
            if node.op not in ("placeholder", "output"):
                self._node(node)
        return [self.where(result) for result in results_of_graph(body)]

    def where(self, value: Any) -> Ids | None:
        """Return the index of the value of an argument, or indices."""
        return self._ids[value] if isinstance(value, Node) else self.values.constant(value)

    def _call(self, node: Node) -> Ids:
        target = node.target
        if target is operator.getitem:
            source, index = node.args
            return self._ids[source][index]  # type: ignore[index, return-value]
        if target is alloc:
            return self._place(node, node.meta["spec"])
        if target is view:
            return self._view(node)
        if target is free:
            spec: Any = node.args[0]
            return self._add(node, FreeCall(value_index=self._spec_ids[spec]), 0, -1)
        if isinstance(target, OpOverload | DefinedOperator):
            return self._kernel(node, target)
        call = control_flow_call(node)
        if call is not None:
            return self._control_flow.emit(call)
        delegate = delegate_of(node)
        if delegate is not None:
            return self._delegate(node, delegate)
        raise ModelError(_cannot_run(node))

    def _kernel(self, node: Node, op: OpOverload | DefinedOperator) -> Ids:
        args: list[int] = []
        outs: list[int] = []
        result: Ids
        for parameter, value in call_values(node, op):
            args.append(self._arguments.write(node, parameter, value))
            if parameter.is_out:
                outs.append(args[-1])
        returned: Any = node.kwargs.get("out")
        if isinstance(returned, list | tuple):
            # The operator writes a list of tensors, which is an argument and the result.
            result = [self._ids[one] for one in returned]  # type: ignore[misc]
            args.append(outs[0])
        elif outs:
            result = outs if isinstance(node.meta.get("spec"), list) else outs[0]
            args.append(outs[0] if len(outs) == 1 else self.values.tensors(outs))
        else:
            result = self._returned(node)
            args.extend([result] if isinstance(result, int) else [one for one in result if one is not None])
        count = 1 if isinstance(result, int) else len(result)
        name = op._schema.name, op._schema.overload_name
        return self._add(node, make_table(KernelCall, op_index=self.operator(name), args=args), count, result)

    def _delegate(self, node: Node, delegate: Delegate) -> Ids:
        index = len(self._delegates)
        self._delegates.append(self._state.delegates.entry(delegate))
        handles = getattr(delegate, "meta", {}).get("debug_handle_map")
        if handles is not None:
            self._delegate_handles[len(self.instructions)] = {"name": delegate.backend_id, "delegate_map": handles}
        args = [self.where(value) for value in node.args[1:]]
        # One that only writes to what it keeps has no results.
        results = self._place(node, node.meta.get("spec", []))
        outs = [results] if isinstance(results, int) else results
        call = make_table(DelegateCall, delegate_index=index, args=[*args, *outs])
        inside = _handles_inside(delegate)
        if inside:
            self._debug_handles[len(self.instructions)] = inside
        return self._add(node, call, len(outs), results)

    def _returned(self, node: Node) -> Ids:
        """Make room for what an operator without out arguments returns."""
        spec = node.meta.get("spec")
        if spec is not None:
            return self._place(node, spec)
        # A number: the kernel replaces the value, whatever its type is.
        return self.values.new(Int(int_val=0))

    def _view(self, node: Node) -> Ids:
        spec: TensorSpec = node.meta["spec"]
        if spec.const and spec.storage_base in self._external:
            # The runtime finds data by the name of a whole tensor: a view of it is taken while the program runs.
            return self._view_instruction(node, self._spec_ids.setdefault(spec, self.values.new(tensor_value(spec))))
        if spec.const and spec.storage_base is not None:
            data = self._contents[spec.storage_base]
            found = self.values.new(tensor_value(spec, data_buffer_idx=data, is_planned=False))
            self._spec_ids[spec] = found
            return found
        result = self._place(node, spec)
        if spec.is_static_shape_tensor and spec.mem_offset is not None:
            base: Any = node.args[0]
            self._view_bases[cast(int, result)] = cast(int, self._ids[base])
            return result
        return self._view_instruction(node, result)

    def _view_instruction(self, node: Node, result: Ids) -> Ids:
        source = self._arguments.write(node, _BASE, node.args[0])
        sizes = self._arguments.write(node, _SIZES, node.args[1])
        call = make_table(KernelCall, op_index=self.operator(_ET_VIEW), args=[source, sizes, cast(int, result)])
        return self._add(node, call, 1, result)

    def _add(self, node: Node, call: Any, count: int, result: Ids) -> Ids:
        index = len(self.instructions)
        self.instructions.append(make_table(Instruction, instr_args=call))
        handle = node.meta.get("debug_handle")
        if handle is not None:
            self._debug_handles.setdefault(index, handle)
        # The official Inspector takes each entry for a delegate call.
        if isinstance(call, DelegateCall):
            self._result_counts[index] = count
        if self._stacktrace is not None:
            self._stacktrace.append(_frames(node.meta.get("stack_trace")))
        return result

    def add_call(self, node: Node, call: Any) -> None:
        """Add an instruction of a call of control flow."""
        self._add(node, call, 0 if isinstance(call, JumpFalseCall) else 1, -1)

    def operator(self, name: tuple[str, str]) -> int:
        """Return the index of an operator."""
        return self._operators.setdefault(name, len(self._operators))

    # Tensors

    def _place(self, node: Node, spec: Any) -> Ids:
        """Return the index, or indices, of the tensors that a node's spec stands for."""
        if isinstance(spec, list):
            return [self.tensor(node, one) for one in spec]
        return self.tensor(node, spec)

    def tensor(self, node: Node, spec: TensorSpec) -> int:
        """Return the index of the tensor of a node that a spec describes."""
        known = self._spec_ids.get(spec)
        if known is None:
            if spec.mem_offset is None and spec not in self._unplanned and not spec.is_dynamic_unbound_tensor:
                raise ContractError(_no_place(node, spec))
            try:
                known = self._spec_ids[spec] = self.values.new(tensor_value(spec))
            except ModelError as error:
                raise ModelError(_placed(error.diagnostics[0], node)) from None
        return known

    def _outputs(self, output: Node) -> list[int]:
        results: Sequence[Any] = output.args[0]  # type: ignore[assignment]
        ids: list[int] = []
        for place, (value, spec) in enumerate(zip(results, self._program.graph_signature.output_specs, strict=True)):
            if spec.kind in _NO_OUTPUTS:
                continue
            found = self._ids.get(value) if isinstance(value, Node) else self._output_constant(value)
            if not isinstance(found, int):
                raise ModelError(_no_such_output(place, value))
            ids.append(found)
        return ids

    def _output_constant(self, value: Any) -> int | None:
        # The runtime returns no strings.
        return None if isinstance(value, str) else self.values.constant(value)


def _placed(found: Diagnostic, node: Node) -> Diagnostic:
    """Return a diagnostic about a tensor at the call that makes it; memory for a result has no source line itself."""
    maker = next(iter(node.users), node) if node.target is alloc else node
    return found.model_copy(update={"location": locate(maker)})


def _may_be_unplanned(program: ExportedProgram) -> set[TensorSpec]:
    """Return the specs of inputs, outputs, and views in their memory: the caller may supply these."""
    graph = program.graph_module.graph
    results: Any = graph.output_node().args[0]
    ends = [*graph.find_nodes(op="placeholder"), *(one for one in results if isinstance(one, Node))]
    found = {node.meta["spec"] for node in ends if isinstance(node.meta.get("spec"), TensorSpec)}
    # Subgraphs are given tensors with the specs that these have around them.
    for module in called_graphs(program.graph_module):
        for node in module.graph.find_nodes(op="call_function", target=view):
            if node.meta["spec"].storage_base in found:
                found.add(node.meta["spec"])
    return found


def _no_place(node: Node, spec: TensorSpec) -> Diagnostic:
    return Diagnostic.of(
        "EK550",
        "a tensor has no place in memory",
        location=locate(node),
        notes=(repr(spec),),
        expected="`mem_id` and `mem_offset` for every tensor that is neither input nor output nor constant",
        hint="run memory planning before emission, or correct the planner",
    )


def _cannot_run(node: Node) -> Diagnostic:
    return Diagnostic.of("EK551", f"{node.target} is not an operator that a program can call", location=locate(node))


def _no_such_output(place: int, value: Any) -> Diagnostic:
    what = f"%{value.name}" if isinstance(value, Node) else repr(value)
    return Diagnostic.of("EK553", f"output {place} ({what}) cannot be returned by a program")


def _arena_devices(graph_module: GraphModule) -> list[NonConstBufferDevice] | None:
    """Return the devices of the arenas of a method that are elsewhere; None if all are in the memory of the CPU.

    Memory planning leaves them in `meta["non_const_buffer_device"]`, by the number of the arena: `cuda:1`.
    """
    planned: Mapping[int, str] = graph_module.meta.get("non_const_buffer_device") or {}
    found = []
    for arena, device in sorted(planned.items()):
        kind, _, index = device.partition(":")
        found.append(
            make_table(
                NonConstBufferDevice,
                buffer_idx=arena,
                device_type=DeviceType[kind.upper()],
                device_index=int(index or 0),
            )
        )
    return found or None


def _mark_devices(values: Sequence[EValue], devices: Sequence[NonConstBufferDevice] | None) -> None:
    """Record in every planned tensor on which device it is, if that is not the CPU."""
    by_arena = {device.buffer_idx: device for device in devices or ()}
    for value in values if by_arena else ():
        tensor = value.val
        if not isinstance(tensor, Tensor) or tensor.allocation_info is None:
            continue
        device = by_arena.get(tensor.allocation_info.memory_id)
        if device is not None:
            extra = tensor.extra_tensor_info or make_table(ExtraTensorInfo)
            where = {"device_type": device.device_type, "device_index": device.device_index}
            tensor.extra_tensor_info = extra.model_copy(update=where)


def _handles_inside(delegate: Any) -> tuple[int, ...]:
    """Return the debug handles of the calls that a delegate hides."""
    program = getattr(delegate, "original_module", None)
    if not isinstance(program, ExportedProgram):
        return ()
    handles = [node.meta.get("debug_handle") for node in program.graph.nodes]
    listed = [one for handle in handles for one in (handle if isinstance(handle, tuple) else (handle,))]
    return tuple(dict.fromkeys(one for one in listed if one is not None))


def _frames(stack_trace: str | None) -> FrameList:
    """Return the frames of a stack trace as Python prints it, outermost first; none for a node without one."""
    return FrameList(
        items=[
            Frame(filename=file, lineno=line, name=function, context=code)
            for file, line, function, code in stack_frames(stack_trace)
        ]
    )

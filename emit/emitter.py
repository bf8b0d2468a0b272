"""The emitter: lowered and planned methods become one program, control flow becomes jumps.

A branch computes its results in the memory of the call's results, so that nothing is copied behind it. A loop's results
hold what it carries: what it begins with is copied there, and what a round returns at the end of the round. Rows of
results are copied to their places as they are made. A loop tests before every round whether there is to be one, the
first included.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.fx import GraphModule, Node

from exirkit.ir import (
    COND,
    EXTERNAL_DATA_KEY,
    WHILE,
    ContractError,
    ControlFlowCall,
    DefinedOperator,
    Delegate,
    Diagnostic,
    Location,
    ModelError,
    OpOverload,
    ProgramInterface,
    TensorSpec,
    UsageError,
    alloc,
    called_graphs,
    control_flow_call,
    delegate_attribute,
    delegate_of,
    free,
    graph_argument,
    is_external_constant,
    locate,
    pytree,
    results_of_graph,
    sample_ints,
    stack_frames,
    view,
)

from .schema import (
    BackendDelegate,
    Bool,
    Buffer,
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
    MoveCall,
    NonConstBufferDevice,
    Operator,
    Program,
    Tensor,
    TensorDataLocation,
)
from .segments import NamedBlob
from .values import (
    ArgumentWriter,
    ConstantPool,
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
        # What is computed into a buffer of zeros would look like any other result; its name shows what it is.
        has_name = has_name or spec in self._computed_specs
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


_SIZE = ("aten::sym_size", "int")
_ROW = ("aten::select_copy", "int_out")
_COPY = ("aten::clone", "out")
_STORE_ROW = ("executorch_prim::et_copy_index", "tensor")
_ADD = ("executorch_prim::add", "Scalar")
_LESS = ("executorch_prim::lt", "Scalar")
_EQUAL = ("executorch_prim::eq", "Scalar")
_FILL = ("aten::full", "out")


class ControlFlowEmitter:
    """Emits calls of `cond`, `map`, `scan` and `while_loop`."""

    def __init__(self, plan: MethodEmitter) -> None:
        self._plan = plan

    def emit(self, call: ControlFlowCall) -> Ids:
        """Emit one call and all that it runs, and return where its results are.

        Raises:
            ContractError: EK560, a branch does not write its result where the call's result is.
        """
        results = self._results(call.node)
        if call.kind == COND:
            self._branches(call, results)
        elif call.kind == WHILE:
            self._while(call, results)
        else:
            self._rows(call, results)
        return results

    def _results(self, node: Node) -> list[int]:
        """Make room for the results: tensors with a place, and numbers."""
        specs = node.meta.get("spec") or [None] * len(node.meta["val"])
        new = self._plan.values.new
        return [new(Int(int_val=0)) if spec is None else self._plan.tensor(node, spec) for spec in specs]

    # Branches

    def _branches(self, call: ControlFlowCall, results: Sequence[int]) -> None:
        shared = [self._plan.where(one) for one in call.shared]
        to_other = self._jump(call.node, self._where(call.predicate))
        self._branch(call, call.subgraphs[0], shared, results)
        to_end = self._jump(call.node)
        self._land(to_other)
        self._branch(call, call.subgraphs[1], shared, results)
        self._land(to_end)

    def _branch(
        self, call: ControlFlowCall, body: GraphModule, shared: Sequence[Ids | None], results: Sequence[int]
    ) -> None:
        specs = call.node.meta.get("spec") or [None] * len(results)
        for place, (found, result) in enumerate(zip(self._plan.body(body, shared), results, strict=True)):
            if specs[place] is None:
                self._move(call.node, found, result)
            elif found != result:
                raise ContractError(_computed_elsewhere(call.node, place))

    # Loops

    def _while(self, call: ControlFlowCall, results: Sequence[int]) -> None:
        shared = [self._plan.where(one) for one in call.shared]
        self._begin(call, results)
        head = len(self._plan.instructions)
        (decision,) = self._plan.body(call.subgraphs[0], [*results, *shared])
        to_end = self._jump(call.node, decision)
        self._carry(call, self._plan.body(call.subgraphs[1], [*results, *shared]), results)
        self._jump(call.node, destination=head)
        self._land(to_end)

    def _rows(self, call: ControlFlowCall, results: Sequence[int]) -> None:
        node, values = call.node, self._plan.values
        carried, stacked = results[: len(call.carried)], results[len(call.carried) :]
        sliced = [self._where(one) for one in call.sliced]
        shared = [self._plan.where(one) for one in call.shared]
        self._begin(call, carried)
        count = self._count(call)
        number, goes_on = values.new(Int(int_val=0)), values.new(Bool(bool_val=False))
        zero, step = self._constant(0), self._constant(1)
        self._move(node, zero, number)
        head = len(self._plan.instructions)
        self._call(node, _LESS, [number, count, goes_on])
        to_end = self._jump(node, goes_on)
        rows = []
        inputs = call.body.graph.find_nodes(op="placeholder")[len(carried) : len(carried) + len(sliced)]
        for placeholder, source in zip(inputs, sliced, strict=True):
            row = self._plan.tensor(placeholder, placeholder.meta["spec"])
            self._call(node, _ROW, [source, zero, number, row, row])
            rows.append(row)
        made = self._plan.body(call.body, [*carried, *rows, *shared])
        # Rows first: one may be what the round began with, which is overwritten then.
        computed = results_of_graph(call.body)[len(carried) :]
        for target, result, row_node in zip(stacked, made[len(carried) :], computed, strict=True):
            self._size_rows(node, target, row_node, result, number)
            self._call(node, _STORE_ROW, [target, result, number])
        self._carry(call, made[: len(carried)], carried)
        self._call(node, _ADD, [number, step, number])
        self._jump(node, destination=head)
        self._land(to_end)

    def _count(self, call: ControlFlowCall) -> int:
        """Return where the number of rows is; torch maps and scans over at least one."""
        first = call.sliced[0]
        size = first.meta["val"].shape[0]
        if isinstance(size, int):
            return self._constant(size)
        return self._size(call.node, self._where(first), 0)

    def _size_rows(self, node: Node, target: int, row: Node, found: Ids | None, number: int) -> None:
        """Take the size of rows from the first one, where it varies: storing a row only changes their number."""
        sizes: Sequence[Any] = row.meta["val"].shape
        if all(isinstance(size, int) for size in sizes):
            return
        is_first = self._plan.values.new(Bool(bool_val=False))
        self._call(node, _EQUAL, [number, self._constant(0), is_first])
        to_store = self._jump(node, is_first)
        items = [self._constant(1)]
        for dim, size in enumerate(sizes):
            items.append(self._constant(size) if isinstance(size, int) else self._size(node, found, dim))
        self._call(node, _FILL, [self._plan.values.integers(items), self._constant(0), target, target])
        self._land(to_store)

    def _size(self, node: Node, tensor: Ids | None, dim: int) -> int:
        """Ask for a size of a tensor, and return where it is."""
        size = self._plan.values.new(Int(int_val=0))
        self._call(node, _SIZE, [tensor, self._constant(dim), size])
        return size

    def _begin(self, call: ControlFlowCall, results: Sequence[int]) -> None:
        """Copy what the first round begins with to where it is carried."""
        for place, (start, result) in enumerate(zip(call.carried, results, strict=True)):
            self._set(call, place, self._where(start), result)

    def _carry(self, call: ControlFlowCall, made: Sequence[Ids | None], results: Sequence[int]) -> None:
        """Copy what a round returns to where the next one, or what follows the loop, looks for it."""
        specs = call.node.meta.get("spec") or [None] * len(results)
        sources = list(made)
        for place, found in enumerate(made):
            # Numbers may change places; tensors that do have been copied by a pass.
            if specs[place] is None and found != results[place] and found in results:
                kept = sources[place] = self._plan.values.new(Int(int_val=0))
                self._move(call.node, found, kept)
        for place, (source, result) in enumerate(zip(sources, results, strict=True)):
            if source != result:
                self._set(call, place, source, result)

    def _set(self, call: ControlFlowCall, place: int, source: Ids | None, target: int) -> None:
        specs = call.node.meta.get("spec")
        if specs is None or specs[place] is None:
            self._move(call.node, source, target)
        else:
            self._call(call.node, _COPY, [source, self._plan.values.constant(None), target, target])

    # Instructions

    def _where(self, value: Any) -> Any:
        return self._plan.where(value)

    def _constant(self, value: int) -> int:
        found = self._plan.values.constant(value)
        assert found is not None, "a number of the format"
        return found

    def _call(self, node: Node, operator: tuple[str, str], args: Sequence[Any]) -> None:
        self._plan.add_call(node, make_table(KernelCall, op_index=self._plan.operator(operator), args=list(args)))

    def _move(self, node: Node, source: Any, target: int) -> None:
        self._plan.add_call(node, make_table(MoveCall, move_from=source, move_to=target))

    def _jump(self, node: Node, unless: Any = None, destination: int = 0) -> int:
        """Add a jump, which is always taken without a condition, and return its index."""
        if unless is None:
            unless = self._plan.values.constant(False)
        index = len(self._plan.instructions)
        self._plan.add_call(
            node, make_table(JumpFalseCall, cond_value_index=unless, destination_instruction=destination)
        )
        return index

    def _land(self, jump: int) -> None:
        """Let a jump lead to the next instruction."""
        call = self._plan.instructions[jump].instr_args
        assert isinstance(call, JumpFalseCall)
        landed = make_table(
            JumpFalseCall,
            cond_value_index=call.cond_value_index,
            destination_instruction=len(self._plan.instructions),
        )
        self._plan.instructions[jump] = make_table(Instruction, instr_args=landed)


def _computed_elsewhere(node: Node, place: int) -> Diagnostic:
    return Diagnostic.of(
        "EK560",
        f"a branch of %{node.name} computes result {place} elsewhere than where the call has it",
        location=locate(node),
    )


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

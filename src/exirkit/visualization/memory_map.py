"""The memory map of a program file, or of a lowered program with its graphs: arenas, values and their spans of life."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.emit import (
    DelegateCall,
    ExecutionPlan,
    FrameList,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    PteFile,
    Tensor,
    open_program,
    read_program,
)
from exirkit.ir import (
    TensorShapeDynamism,
    TensorSpec,
    alloc,
    called_graphs,
    line_of_frames,
    module_path,
    out_operator_name,
    source_line,
)
from exirkit.passes import pool_of_arenas
from exirkit.program import ExecutorchProgramManager
from exirkit.runtime_ref import PlannedLifetime, lifetimes_of_program

ValueKind = Literal["input", "output", "state", "activation"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Part):
    """One instruction.

    Attributes:
        text: What it is in short: the name of its operator, `move`, `jump`, `free`, or a delegate.
        source: The line of the model that it comes from, as `file.py:12 in forward:  code`, if that is known.
        module: Path of the module that it comes from, if that is known.
        node: Name of the node that it comes from, if that is known.
    """

    text: str
    source: str | None = None
    module: str | None = None
    node: str | None = None


class MappedValue(_Part):
    """One tensor with planned memory.

    Attributes:
        name: Name of the node that made it, of the input or of the buffer; else its number, `%12`.
        value: Its number in the table of values.
        type: Dtype and sizes, `float32[1, 3, 224, 224]`; upper bounds where they vary.
        kind: What it is to the method.
        arena: Number of its arena.
        offset: Its first byte there.
        nbytes: Bytes that it can use.
        spans: First and last instruction of each time that it is needed, both inclusive.
        producer: The first instruction that writes to it; none for an input.
        readers: The instructions that read it.
    """

    name: str
    value: int
    type: str
    kind: ValueKind
    arena: int
    offset: int
    nbytes: int
    spans: tuple[tuple[int, int], ...]
    producer: int | None = None
    readers: tuple[int, ...] = ()


class ArenaMap(_Part):
    """One arena and how well it is used.

    Attributes:
        number: Its number, from 1.
        nbytes: Its size.
        limit: Bytes that there are for it, if a limit is set.
        live_nbytes: The most bytes that hold something at one instruction.
        lower_bound: The same with every value rounded up to the alignment of the arena: no arena of values that lie
            where they do, over each other or not, can be smaller.
        at: The first instruction at which so much is needed.
        alignment: What all offsets are a multiple of, at most 16.
        total_nbytes: Sum of the sizes of all its values: what it would be without reuse.
        pool: Number of the pool of a memory policy that it is a part of, where that is another number.
    """

    number: int
    nbytes: int
    limit: int | None = None
    live_nbytes: int
    lower_bound: int
    at: int
    alignment: int
    total_nbytes: int
    pool: int | None = None

    @property
    def waste(self) -> int:
        """Bytes above the lower bound."""
        return max(self.nbytes - self.lower_bound, 0)


class MethodMap(_Part):
    """The memory of one method.

    Attributes:
        name: Its name.
        steps: Its instructions.
        arenas: The arenas that have bytes or a limit, by number.
        values: The tensors in them, in the order of the table of values.
    """

    name: str
    steps: tuple[Step, ...]
    arenas: tuple[ArenaMap, ...]
    values: tuple[MappedValue, ...]

    def step_count(self) -> int:
        """Return how many instructions a memory map is wide; one for a method without any."""
        return max(len(self.steps), 1)

    def values_of(self, arena: int) -> list[MappedValue]:
        """Return the values in an arena."""
        return [value for value in self.values if value.arena == arena]

    def live_at(self, arena: int, step: int) -> list[MappedValue]:
        """Return the values that an arena has to hold at an instruction, largest first."""
        live = [value for value in self.values_of(arena) if any(first <= step <= last for first, last in value.spans)]
        return sorted(live, key=lambda value: (-value.nbytes, value.offset, value.value))

    def producer_of(self, value: MappedValue) -> Step | None:
        """Return the instruction that makes a value, if one does."""
        return None if value.producer is None else self.steps[value.producer]


class MemoryMap(_Part):
    """The memory of a program.

    Attributes:
        title: What it is a memory map of: a file or a model.
        methods: Its methods that plan any memory.
    """

    title: str
    methods: tuple[MethodMap, ...]


# The planner aligns to this by default; offsets that happen to be rounder tell nothing.
_MAX_ALIGNMENT = 16


def arena_of_values(
    number: int, nbytes: int, limit: int | None, values: Sequence[MappedValue], step_count: int
) -> ArenaMap:
    """Return one arena with its figures.

    Args:
        number: Number of the arena.
        nbytes: Its size.
        limit: Bytes that there are for it.
        values: The values in it.
        step_count: Number of instructions of the method, at least 1.
    """
    alignment = _alignment(value.offset for value in values)
    at, bound = _fullest(values, step_count, alignment)
    live = _covered((value for value in values if _is_live(value, at)), 1)
    return ArenaMap(
        number=number,
        nbytes=nbytes,
        limit=limit,
        live_nbytes=live,
        # The last value of an arena need not be rounded up to the alignment.
        lower_bound=min(bound, nbytes),
        at=at,
        alignment=alignment,
        total_nbytes=sum(value.nbytes for value in values),
    )


def live_bytes(values: Iterable[MappedValue], step_count: int) -> list[int]:
    """Return the sum of the sizes of the values that are needed at each instruction, in bytes.

    Values that share bytes count once each, so that it is an upper bound of the bytes that hold something.
    """
    changes = [0] * (step_count + 1)
    for value in values:
        for first, last in value.spans:
            changes[first] += value.nbytes
            changes[last + 1] -= value.nbytes
    live, found = 0, []
    for change in changes[:-1]:
        live += change
        found.append(live)
    return found


def _fullest(values: Sequence[MappedValue], step_count: int, alignment: int) -> tuple[int, int]:
    """Return the first instruction at which most bytes hold something, and how many, in units of the alignment."""
    rounded = [value.model_copy(update={"nbytes": value.nbytes + -value.nbytes % alignment}) for value in values]
    sums = live_bytes(rounded, step_count)
    best, at = 0, 0
    # The sums are upper bounds: once the best is as large as the next of them, nothing after it can be larger.
    for step in sorted(range(step_count), key=lambda step: (-sums[step], step)):
        if sums[step] < best or (sums[step] == best and step > at):
            break
        covered = _covered((value for value in values if _is_live(value, step)), alignment)
        if covered > best or (covered == best and step < at):
            best, at = covered, step
    return at, best


def _is_live(value: MappedValue, step: int) -> bool:
    return any(first <= step <= last for first, last in value.spans)


def _covered(values: Iterable[MappedValue], alignment: int) -> int:
    """Return how many bytes are in at least one of the values, their ends rounded up to the alignment."""
    covered = reached = 0
    for value in sorted(values, key=lambda value: value.offset):
        end = value.offset + value.nbytes
        end += -end % alignment
        covered += max(end - max(value.offset, reached), 0)
        reached = max(reached, end)
    return covered


def _alignment(offsets: Iterable[int]) -> int:
    """Return the largest power of two, at most 16, that all offsets are a multiple of."""
    bits = _MAX_ALIGNMENT
    for offset in offsets:
        bits |= offset
    return bits & -bits


Handle = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """What a node tells about the instruction that it became."""

    name: str
    source: str | None
    module: str | None


class Remaining:
    """Origins that no instruction has taken yet; several nodes of one operator share a debug handle."""

    def __init__(self, handles: Mapping[int, Handle], origins: Mapping[tuple[Handle, str], list[Origin]]) -> None:
        self._handles = handles
        self._origins = {key: deque(found) for key, found in origins.items()}
        self._any = {handle: found[0] for (handle, _), found in origins.items()}

    def take(self, instruction: int, operator: str) -> Origin | None:
        """Return the next node that has the debug handle and the operator of an instruction.

        Control flow becomes operators that are in no graph; for these it is a node with the same debug handle.
        """
        handle = self._handles.get(instruction)
        if handle is None:
            return None
        found = self._origins.get((handle, operator))
        return found.popleft() if found else self._any.get(handle)


@dataclass(frozen=True)
class MethodNames:
    """What a graph tells about a plan.

    Attributes:
        handles: Debug handle, or handles, of instructions by index.
        origins: Nodes by debug handle and operator, in order.
        places: Names of the placeholders with planned memory, by arena and offset.
        pools: Numbers of the pools that arenas are parts of, by number of the arena.
    """

    handles: Mapping[int, Handle] = field(default_factory=dict)
    origins: Mapping[tuple[Handle, str], list[Origin]] = field(default_factory=dict)
    places: Mapping[tuple[int, int], str] = field(default_factory=dict)
    pools: Mapping[int, int] = field(default_factory=dict)

    def remaining(self) -> Remaining:
        """Return the origins, to be taken one after another in the order of instructions."""
        return Remaining(self.handles, self.origins)


def method_names(program: ExportedProgram, handles: Mapping[int, Handle]) -> MethodNames:
    """Return what the planned graph of a method tells.

    Args:
        program: A program of the ExecuTorch dialect.
        handles: Debug handle, or handles, of instructions by index.
    """
    origins: dict[tuple[Handle, str], list[Origin]] = {}
    for module in called_graphs(program.graph_module):
        for node in module.graph.nodes:
            handle = node.meta.get("debug_handle")
            if node.op == "call_function" and node.target is not alloc and handle is not None:
                operator = out_operator_name(node.target).removesuffix(".")
                origins.setdefault((handle, operator), []).append(origin_of(node))
    return MethodNames(handles, origins, _places(program), pool_of_arenas(program))


def origin_of(node: Node) -> Origin:
    """Return what a node tells about itself."""
    return Origin(node.name, source_line(node), module_path(node))


def _places(program: ExportedProgram) -> dict[tuple[int, int], str]:
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    found = {}
    for node in program.graph.find_nodes(op="placeholder"):
        spec = node.meta.get("spec")
        if isinstance(spec, TensorSpec) and spec.mem_id is not None and spec.mem_offset is not None:
            found[spec.mem_id, spec.mem_offset] = targets.get(node.name) or node.name
    return found


Limits = Mapping[int, int]


def memory_map_of_file(path: str, *, limits: Limits | None = None, method: str | None = None) -> MemoryMap:
    """Return the memory map of a program file.

    Its values have the names of inputs and buffers that are in the file; all others are numbered. Source lines are
    there if the file was emitted with `emit_stacktrace=True`.

    Args:
        path: A `.pte` file.
        limits: Bytes that there are for an arena, by its number.
        method: Only this method.

    Raises:
        ProgramFormatError: It is damaged, or no program.
        ProgramVerifyError: EK601 to EK626, the program is wrong.
        ModelError: EK667, a method is too large.
        OSError: It cannot be read.
    """
    with open_program(path) as file:
        return _memory_map(file, str(path), limits or {}, {}, {}, method)


def memory_map_of_program(file: PteFile) -> MemoryMap:
    """Return the memory map of a program that was read, of all its methods, also of those that plan no memory.

    Raises:
        ProgramVerifyError: EK601 to EK626, the program is wrong.
        ModelError: EK667, a method is too large.
    """
    names = {plan.name: MethodNames() for plan in file.program.execution_plan}
    return _memory_map(file, "program", {}, names, {}, None)


def memory_map_of_manager(
    manager: ExecutorchProgramManager,
    *,
    title: str = "program",
    limits: Limits | None = None,
    method: str | None = None,
) -> MemoryMap:
    """Return the memory map of a lowered program, with names and source lines from its graphs.

    Args:
        manager: What `to_executorch` returns.
        title: What to call it.
        limits: Bytes that there are for an arena, by its number.
        method: Only this method.

    Raises:
        ProgramVerifyError: EK601 to EK626, the emitted program is wrong.
        ModelError: EK667, a method is too large.
    """
    names = manager_names(manager, method=method)
    return _memory_map(read_program(manager.buffer), title, limits or {}, names, manager.view_bases, method)


def manager_names(manager: ExecutorchProgramManager, *, method: str | None = None) -> dict[str, MethodNames]:
    """Return what the planned graphs of a lowered program tell, by method; with `method`, of that one only."""
    return {
        name: method_names(manager.exported_program(name), manager.debug_handle_map.get(name, {}))
        for name in sorted(manager.methods)
        if method in (None, name)
    }


def _memory_map(
    file: PteFile,
    title: str,
    limits: Limits,
    names: Mapping[str, MethodNames],
    views: Mapping[str, Mapping[int, int]],
    method: str | None,
) -> MemoryMap:
    lives = lifetimes_of_program(file, views=views)
    methods = [
        _method(plan, lives[plan.name], limits, names.get(plan.name, MethodNames()))
        for plan in file.program.execution_plan
        if method in (None, plan.name) and (any(plan.non_const_buffer_sizes[1:]) or plan.name in names)
    ]
    return MemoryMap(title=title, methods=tuple(methods))


def _method(plan: ExecutionPlan, lives: list[PlannedLifetime], limits: Limits, names: MethodNames) -> MethodMap:
    steps, made_by = steps_of(plan, names)
    values = _numbered([_value(plan, life, made_by, names) for life in lives])
    sizes = list(plan.non_const_buffer_sizes)
    pools = names.pools or {number: number for number in range(len(sizes))}
    numbers = [number for number in range(1, len(sizes)) if sizes[number] or (number in limits and number in pools)]
    arenas = [
        arena_of_values(
            number,
            sizes[number],
            limits.get(pools.get(number, number)),
            [value for value in values if value.arena == number],
            max(len(steps), 1),
        ).model_copy(update={"pool": pools[number] if pools.get(number, number) != number else None})
        for number in numbers
    ]
    return MethodMap(name=plan.name, steps=tuple(steps), arenas=tuple(arenas), values=tuple(values))


def steps_of(plan: ExecutionPlan, names: MethodNames) -> tuple[list[Step], list[str | None]]:
    """Return the instructions of a plan, and the names of the nodes that they come from."""
    steps: list[Step] = []
    nodes: list[str | None] = []
    remaining = names.remaining()
    for text, frames in _instructions(plan):
        origin = remaining.take(len(steps), text)
        source = line_of_frames((one.filename, one.lineno, one.name, one.context) for one in frames.items)
        if origin is None:
            steps.append(Step(text=text, source=source))
            nodes.append(None)
        else:
            steps.append(Step(text=text, source=origin.source or source, module=origin.module, node=origin.name))
            nodes.append(origin.name)
    return steps, nodes


def _instructions(plan: ExecutionPlan) -> Iterator[tuple[str, FrameList]]:
    for chain in plan.chains:
        traces = chain.stacktrace or []
        for index, instruction in enumerate(chain.instructions):
            yield _text(plan, instruction), traces[index] if index < len(traces) else FrameList()


def _text(plan: ExecutionPlan, instruction: Instruction) -> str:
    step = instruction.instr_args
    if isinstance(step, KernelCall):
        operator = plan.operators[step.op_index]
        return f"{operator.name}.{operator.overload}" if operator.overload else operator.name
    if isinstance(step, DelegateCall):
        return f"delegate {plan.delegates[step.delegate_index].id}"
    if isinstance(step, MoveCall):
        return "move"
    return "jump" if isinstance(step, JumpFalseCall) else "free"


def _value(plan: ExecutionPlan, life: PlannedLifetime, made_by: list[str | None], names: MethodNames) -> MappedValue:
    tensor: Any = plan.values[life.value].val
    name = names.places.get((life.arena, life.start)) if life.producer is None or life.kind == "state" else None
    if name is None and life.producer is not None and life.kind != "input":
        name = made_by[life.producer]
    return MappedValue(
        name=name or _stored_name(plan, life, tensor),
        value=life.value,
        type=type_of_tensor(tensor),
        kind=life.kind,
        arena=life.arena,
        offset=life.start,
        nbytes=life.end - life.start,
        spans=life.spans,
        producer=life.producer,
        readers=life.readers,
    )


def _numbered(values: list[MappedValue]) -> list[MappedValue]:
    """Tell the results of one node apart: `split[0]`, `split[1]`."""
    together = Counter((value.name, value.producer) for value in values)
    seen: Counter[tuple[str, int | None]] = Counter()
    found = []
    for value in values:
        key = value.name, value.producer
        if together[key] > 1:
            value = value.model_copy(update={"name": f"{value.name}[{seen[key]}]"})
            seen[key] += 1
        found.append(value)
    return found


def _stored_name(plan: ExecutionPlan, life: PlannedLifetime, tensor: Tensor) -> str:
    """Return what the file calls a value."""
    extra = tensor.extra_tensor_info
    if extra is not None and extra.fully_qualified_name:
        return extra.fully_qualified_name
    return f"input {list(plan.inputs).index(life.value)}" if life.value in plan.inputs else f"%{life.value}"


def type_of_tensor(tensor: Tensor) -> str:
    """Return dtype and sizes, `float32[2, 4]`; upper bounds where they vary."""
    dtype = str(tensor.scalar_type.dtype).removeprefix("torch.")
    bound = "" if tensor.shape_dynamism is TensorShapeDynamism.STATIC else " at most"
    return f"{dtype}[{', '.join(map(str, tensor.sizes))}]{bound}"

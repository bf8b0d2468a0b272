"""From a program file, or a lowered program with its graphs, to the picture of its memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

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
from exirkit.ir import TensorShapeDynamism, line_of_frames
from exirkit.program import ExecutorchProgramManager
from exirkit.runtime_ref import PlannedLifetime, lifetimes_of_program

from .arena_figures import arena_of_values
from .node_names import MethodNames, method_names
from .picture import MemoryPicture, MethodPicture, PicturedValue, Step

Limits = Mapping[int, int]


def picture_file(path: str, *, limits: Limits | None = None, method: str | None = None) -> MemoryPicture:
    """Return the picture of a program file.

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
        return _picture(file, str(path), limits or {}, {}, {}, method)


def picture_manager(
    manager: ExecutorchProgramManager,
    *,
    title: str = "program",
    limits: Limits | None = None,
    method: str | None = None,
) -> MemoryPicture:
    """Return the picture of a lowered program, with names and source lines from its graphs.

    Args:
        manager: What `to_executorch` returns.
        title: What to call it.
        limits: Bytes that there are for an arena, by its number.
        method: Only this method.

    Raises:
        ProgramVerifyError: EK601 to EK626, the emitted program is wrong.
        ModelError: EK667, a method is too large.
    """
    names = {
        name: method_names(manager.exported_program(name), manager.debug_handle_map.get(name, {}))
        for name in sorted(manager.methods)
        if method in (None, name)
    }
    return _picture(read_program(manager.buffer), title, limits or {}, names, manager.view_bases, method)


def _picture(
    file: PteFile,
    title: str,
    limits: Limits,
    names: Mapping[str, MethodNames],
    views: Mapping[str, Mapping[int, int]],
    method: str | None,
) -> MemoryPicture:
    lives = lifetimes_of_program(file, views=views)
    methods = [
        _method(plan, lives[plan.name], limits, names.get(plan.name, MethodNames()))
        for plan in file.program.execution_plan
        if method in (None, plan.name) and (any(plan.non_const_buffer_sizes[1:]) or plan.name in names)
    ]
    return MemoryPicture(title=title, methods=tuple(methods))


def _method(plan: ExecutionPlan, lives: list[PlannedLifetime], limits: Limits, names: MethodNames) -> MethodPicture:
    steps, made_by = _steps(plan, names)
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
    return MethodPicture(name=plan.name, steps=tuple(steps), arenas=tuple(arenas), values=tuple(values))


def _steps(plan: ExecutionPlan, names: MethodNames) -> tuple[list[Step], list[str | None]]:
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
            steps.append(Step(text=text, source=origin.source or source, module=origin.module))
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


def _value(plan: ExecutionPlan, life: PlannedLifetime, made_by: list[str | None], names: MethodNames) -> PicturedValue:
    tensor: Any = plan.values[life.value].val
    name = names.places.get((life.arena, life.start)) if life.producer is None or life.kind == "state" else None
    if name is None and life.producer is not None and life.kind != "input":
        name = made_by[life.producer]
    return PicturedValue(
        name=name or _stored_name(plan, life, tensor),
        value=life.value,
        type=_type(tensor),
        kind=life.kind,
        arena=life.arena,
        offset=life.start,
        nbytes=life.end - life.start,
        spans=life.spans,
        producer=life.producer,
        readers=life.readers,
    )


def _numbered(values: list[PicturedValue]) -> list[PicturedValue]:
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


def _type(tensor: Tensor) -> str:
    dtype = str(tensor.scalar_type.dtype).removeprefix("torch.")
    bound = "" if tensor.shape_dynamism is TensorShapeDynamism.STATIC else " at most"
    return f"{dtype}[{', '.join(map(str, tensor.sizes))}]{bound}"

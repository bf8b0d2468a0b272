"""A program file as the single stage of a report: its instructions as lines that name what they read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from exirkit.emit import (
    Chain,
    DelegateCall,
    ExecutionPlan,
    FrameList,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorList,
    PteFile,
    Tensor,
    TensorList,
    ValueNames,
)
from exirkit.ir import innermost_frame
from exirkit.runtime_ref import Effect, effects_of_program
from exirkit.visualization.memory_map import MappedValue, MethodMap, memory_map_of_program, type_of_tensor

from .recording import RecordedStage
from .rows import Row, RowTable, SourcePlace

_NOT_OF_NAMES = re.compile(r"[^\w.]")


def file_stages(file: PteFile, table: RowTable) -> dict[str, tuple[RecordedStage, MethodMap]]:
    """Return each method of a program file as a stage, and its memory plan, whose steps are the lines of the stage.

    A value that is written several times has a line for each of them; a line that reads it names the last one before
    it in the file. That is what jumps make of it where a branch was not taken.

    Args:
        file: The program; it is checked first.
        table: Where rows go.

    Raises:
        ProgramVerifyError: EK601 to EK626, the program is wrong.
        ModelError: EK667, a method is too large.
    """
    effects = effects_of_program(file)
    maps = {one.name: one for one in memory_map_of_program(file).methods}
    return {
        plan.name: _PlanReader(plan, effects[plan.name], maps[plan.name], table).read()
        for plan in file.program.execution_plan
    }


class _LineNames(ValueNames):
    """Names of lines in place of numbers of values."""

    def __init__(self, plan: ExecutionPlan, variables: set[int]) -> None:
        super().__init__(plan.values, variables)
        self.lines: dict[int, str] = {}

    def name(self, index: int) -> str:
        return f"%{self.lines.get(index, index)}"


class _PlanReader:
    """Reads a method."""

    def __init__(self, plan: ExecutionPlan, effects: Sequence[Effect], memory: MethodMap, table: RowTable) -> None:
        self._plan = plan
        self._effects = effects
        self._memory = memory
        self._mapped = {one.value: one for one in memory.values}
        self._table = table
        self._results = [_results(each, one) for (each, _), one in zip(_instructions(plan), effects, strict=True)]
        self._names = _LineNames(plan, {one for each in self._results for one in each})
        self._taken: set[str] = set()
        self._rows: list[int] = []

    def read(self) -> tuple[RecordedStage, MethodMap]:
        for at, index in enumerate(self._plan.inputs):
            self._add([index], "input", "", fallback=f"input_{at}")
        for index in self._stored():
            tensor = self._names.value(index)
            assert isinstance(tensor, Tensor)
            verb = "buffer" if tensor.allocation_info is not None else "constant"
            self._add([index], verb, tensor.external_name or "")
        steps = []
        numbered = zip(_instructions(self._plan), self._memory.steps, strict=True)
        for number, ((instruction, frames), step) in enumerate(numbered):
            results = self._results[number]
            # Before the results have their new names: it may read what it overwrites.
            args = self._arguments(instruction, self._effects[number], results)
            fallback = "" if results else f"{step.text.partition(' ')[0]}_{number}"
            name = self._add(results, step.text, args, frames, fallback=fallback)
            steps.append(step.model_copy(update={"node": name}))
        self._add([], "output", self._names.names(self._plan.outputs), fallback="output")
        doc = "The instructions of the file."
        stage = RecordedStage("file", "", "", True, tuple(self._rows), doc)
        return stage, self._memory.model_copy(update={"steps": tuple(steps)})

    def _stored(self) -> list[int]:
        """Return tensors that have contents before anything writes to them, in the order in which they are read."""
        written, found = set(self._plan.inputs), dict[int, None]()
        for effect, results in zip(self._effects, self._results, strict=True):
            found |= dict.fromkeys(one for one in effect.reads if one not in written)
            written.update(results)
        return list(found)

    def _arguments(self, instruction: Instruction, effect: Effect, results: Sequence[int]) -> str:
        step = instruction.instr_args
        if isinstance(step, JumpFalseCall):
            return f"{self._names.name(step.cond_value_index)}, else step {step.destination_instruction}"
        new = set(results).difference(effect.reads)
        shown = [index for index in _operands(instruction) if not self._is_of(index, new)]
        return self._names.arguments(shown)

    def _is_of(self, index: int, new: set[int]) -> bool:
        items = _tensors_in(self._names, index) or [index]
        return new.issuperset(items)

    def _add(
        self, values: Sequence[int], verb: str, args: str, frames: FrameList | None = None, *, fallback: str = ""
    ) -> str:
        """Add a line that gives values their contents, and return its name."""
        name = self._free_name(values, fallback)
        for index in values:
            self._names.lines[index] = name
        text, table = self._table.text, self._table
        tensors = [one for index in values if isinstance(one := self._names.value(index), Tensor)]
        types = [type_of_tensor(one) for one in tensors]
        shown = types[0] if len(types) == 1 else f"({', '.join(types)})" if types else ""
        places = [_place(self._mapped[index]) for index in values if index in self._mapped]
        self._rows.append(
            table.row(
                Row(
                    table.entity(), text(name), 0, text(verb), text(args), text(shown), self._source(frames), -1,
                    text("; ".join(places)),
                )
            )
        )  # fmt: skip
        return name

    def _free_name(self, values: Sequence[int], fallback: str) -> str:
        tensor = self._names.value(values[0]) if values else None
        extra = tensor.extra_tensor_info if isinstance(tensor, Tensor) else None
        known = "" if extra is None else extra.fully_qualified_name or ""
        base = name = _NOT_OF_NAMES.sub("_", known or fallback or str(values[0]))
        number = 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name

    def _source(self, frames: FrameList | None) -> int:
        if frames is None:
            return -1
        frame = innermost_frame((one.filename, one.lineno, one.name, one.context) for one in frames.items)
        places = self._table.places
        return -1 if frame is None else places.setdefault(SourcePlace(*frame), len(places))


def _instructions(plan: ExecutionPlan) -> Iterator[tuple[Instruction, FrameList | None]]:
    for chain in plan.chains:
        yield from zip(chain.instructions, _frames(chain), strict=True)


def _frames(chain: Chain) -> list[FrameList | None]:
    known = (chain.stacktrace or [])[: len(chain.instructions)]
    return [*known, *[None] * (len(chain.instructions) - len(known))]


def _operands(instruction: Instruction) -> Sequence[int]:
    step = instruction.instr_args
    if isinstance(step, KernelCall | DelegateCall):
        return step.args
    if isinstance(step, MoveCall):
        return [step.move_from]
    return [step.value_index] if isinstance(step, FreeCall) else [step.cond_value_index]


def _results(instruction: Instruction, effect: Effect) -> list[int]:
    """Return the values that are other ones after an instruction."""
    step = instruction.instr_args
    found = [*effect.out_writes, *effect.writes, *(target for _, target in effect.handles)]
    if isinstance(step, MoveCall):
        found.append(step.move_to)
    elif isinstance(step, KernelCall) and step.args and not found:
        found.append(step.args[-1])
    return list(dict.fromkeys(found))


def _tensors_in(names: ValueNames, index: int) -> list[int]:
    value = names.value(index)
    if isinstance(value, Tensor):
        return [index]
    items = value.items if isinstance(value, TensorList | OptionalTensorList) else ()
    return [one for one in items if isinstance(names.value(one), Tensor)]


def _place(value: MappedValue) -> str:
    steps = ", ".join(f"{first} to {last}" for first, last in value.spans)
    return f"arena {value.arena}, bytes {value.offset} to {value.offset + value.nbytes}, steps {steps}"

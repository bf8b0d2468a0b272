"""What takes space in a program: its constants by operator, module and dtype, and which calls there are how often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from exirkit.emit import (
    DelegateCall,
    ExecutionPlan,
    Instruction,
    KernelCall,
    OptionalTensorList,
    Program,
    Tensor,
    TensorList,
)
from exirkit.program import ExecutorchProgramManager

from .memory_map import MethodNames, manager_names, steps_of


@dataclass
class SizeEntry:
    """What belongs to one operator, module or dtype.

    Attributes:
        name: The operator, module or dtype.
        nbytes: Bytes of constants and initial values that are first used there; what is used again elsewhere counts
            once.
        constants: How many these are.
        calls: How many instructions belong to it.
    """

    name: str
    nbytes: int = 0
    constants: int = 0
    calls: int = 0


@dataclass(frozen=True)
class ProgramSizes:
    """What takes space in the constants of a program; each list starts with the largest.

    Attributes:
        by_operator: By the operator that uses a constant first; `unused` for what no instruction uses.
        by_dtype: By dtype.
        by_module: By the module of the model whose call uses a constant first; empty if that is not known.
    """

    by_operator: list[SizeEntry]
    by_dtype: list[SizeEntry]
    by_module: list[SizeEntry]


@dataclass
class _Entries:
    found: dict[str, SizeEntry] = field(default_factory=dict)

    def of(self, name: str) -> SizeEntry:
        return self.found.setdefault(name, SizeEntry(name))

    def add(self, name: str, nbytes: int) -> None:
        entry = self.of(name)
        entry.nbytes += nbytes
        entry.constants += 1

    def sorted(self) -> list[SizeEntry]:
        return sorted(self.found.values(), key=lambda one: (-one.nbytes, -one.calls, one.name))


def program_sizes(
    program: Program, names: Mapping[str, MethodNames] | None = None, *, depth: int | None = None
) -> ProgramSizes:
    """Return what takes space in a program.

    Args:
        program: The program.
        names: What `method_names` knows of its methods, if it was lowered here: modules are known from there.
        depth: How many parts the paths of modules keep: 1 adds up what is in `encoder.0` and `encoder.1`.
    """
    operators, modules, dtypes = _Entries(), _Entries(), _Entries()
    seen: set[tuple[str, int]] = set()
    known = False
    for plan in program.execution_plan:
        instructions = [each for chain in plan.chains for each in chain.instructions]
        steps, _ = steps_of(plan, (names or {}).get(plan.name, MethodNames()))
        known = known or any(step.module for step in steps)
        for instruction, step in zip(instructions, steps, strict=True):
            module = ".".join((step.module or "").split(".")[:depth])
            operators.of(step.text).calls += 1
            modules.of(module).calls += 1
            for tensor in _arguments(plan, instruction):
                if _is_stored(tensor) and _key(tensor) not in seen:
                    seen.add(_key(tensor))
                    for entries, name in ((operators, step.text), (modules, module), (dtypes, _dtype(tensor))):
                        entries.add(name, tensor.nbytes)
    for tensor in _tensors(program):
        if _is_stored(tensor) and _key(tensor) not in seen:
            seen.add(_key(tensor))
            for entries, name in ((operators, "unused"), (modules, ""), (dtypes, _dtype(tensor))):
                entries.add(name, tensor.nbytes)
    return ProgramSizes(operators.sorted(), dtypes.sorted(), modules.sorted() if known else [])


def sizes_of_manager(manager: ExecutorchProgramManager, *, depth: int | None = None) -> ProgramSizes:
    """Return what takes space in a lowered program, with modules from its graphs.

    Args:
        manager: What `to_executorch` returns.
        depth: How many parts the paths of modules keep.
    """
    return program_sizes(manager.executorch_program, manager_names(manager), depth=depth)


def _tensors(program: Program) -> Iterator[Tensor]:
    values = (value.val for plan in program.execution_plan for value in plan.values)
    return (value for value in values if isinstance(value, Tensor))


def _arguments(plan: ExecutionPlan, instruction: Instruction) -> Iterator[Tensor]:
    call = instruction.instr_args
    for index in call.args if isinstance(call, (KernelCall, DelegateCall)) else ():
        yield from _tensors_of(plan, [index])


def _tensors_of(plan: ExecutionPlan, indices: Iterable[int]) -> Iterator[Tensor]:
    for index in indices:
        value = plan.values[index].val if 0 <= index < len(plan.values) else None
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (TensorList, OptionalTensorList)):
            items = [plan.values[item].val for item in value.items if 0 <= item < len(plan.values)]
            yield from (item for item in items if isinstance(item, Tensor))


def _is_stored(tensor: Tensor) -> bool:
    return bool(tensor.data_buffer_idx) and tensor.external_name is None


def _key(tensor: Tensor) -> tuple[str, int]:
    """Return which constant or initial value it is: both are counted from 1."""
    return "constant" if tensor.allocation_info is None else "state", tensor.data_buffer_idx


def _dtype(tensor: Tensor) -> str:
    return str(tensor.scalar_type.dtype).removeprefix("torch.")

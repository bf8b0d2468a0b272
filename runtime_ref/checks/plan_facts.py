"""What the instructions of a plan do to its value table, gathered once for the checks and for loading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from exirkit.emit import (
    Bool,
    Double,
    ExecutionPlan,
    FreeCall,
    Int,
    IntList,
    KernelCall,
    MoveCall,
    OptionalTensorList,
    Tensor,
    TensorList,
)
from exirkit.runtime_ref.backends import LoadedDelegate
from exirkit.runtime_ref.kernels.kernel import Kernel, KernelKind
from exirkit.runtime_ref.kernels.registry import OperatorRegistry

# In characters; the longest names of torch have a hundred.
_LONGEST_NAME: Final = 1000


@dataclass
class PlanFacts:
    """Facts about one plan whose indices are in range.

    Attributes:
        kernels: The kernel of each operator of the plan, None where there is none.
        numbers: Values that receive a number when the program runs, so that their stored kind is a placeholder.
        handles: Pairs (source, target): the target value becomes the same tensor as the source.
        written: Pairs (value, instruction): a kernel writes to the memory of that tensor.
        rebound: Values that may become another tensor or number while the program runs.
        reshown: Tensors that may come to show other memory, or none.
        delegates: The delegates of the plan, once they are loaded.
    """

    kernels: Sequence[Kernel | None]
    numbers: set[int] = field(default_factory=set)
    handles: list[tuple[int, int]] = field(default_factory=list)
    written: list[tuple[int, int]] = field(default_factory=list)
    rebound: set[int] = field(default_factory=set)
    reshown: set[int] = field(default_factory=set)
    delegates: Sequence[LoadedDelegate] = ()

    def may_become(self, sources: Iterable[int]) -> set[int]:
        """Return the values that may at some time be one of the tensors `sources`, these included."""
        return _closure(sources, self.handles)

    def may_have_been(self, targets: Iterable[int]) -> set[int]:
        """Return the values whose tensor may at some time be that of one of `targets`, these included."""
        return _closure(targets, [(target, source) for source, target in self.handles])


def resolve_operators(plan: ExecutionPlan, registry: OperatorRegistry) -> list[Kernel | None]:
    """Return the kernel of each operator of the plan, or None for those that are not registered."""
    return [
        # A name that is as long as the file, in every operator, would be copied and looked up as often.
        registry.find(operator_name(plan, index)) if len(one.name) + len(one.overload) < _LONGEST_NAME else None
        for index, one in enumerate(plan.operators)
    ]


def operator_name(plan: ExecutionPlan, index: int) -> str:
    """Return the name of operator `index` with its overload, `aten::add.out`."""
    operator = plan.operators[index]
    return f"{operator.name}.{operator.overload}" if operator.overload else operator.name


def gather_facts(plan: ExecutionPlan, kernels: Sequence[Kernel | None]) -> PlanFacts:
    """Return the facts about a plan.

    Requires: indices of values and operators are in range and every call has at least the arguments of its kernel.
    """
    facts = PlanFacts(kernels)
    facts.reshown.update(_unplanned_inputs(plan))
    # Delegates that are programs are handed numbers that vary.
    facts.rebound.update(index for index in plan.inputs if isinstance(plan.values[index].val, Int | Double | Bool))
    number = 0
    for chain in plan.chains:
        for instruction in chain.instructions:
            step = instruction.instr_args
            if isinstance(step, KernelCall):
                kernel = kernels[step.op_index]
                if kernel is not None:
                    _gather_call(plan, facts, number, kernel, step.args)
            elif isinstance(step, MoveCall):
                facts.rebound.add(step.move_to)
                if isinstance(plan.values[step.move_from].val, Tensor):
                    facts.handles.append((step.move_from, step.move_to))
                else:
                    facts.numbers.add(step.move_to)
            elif isinstance(step, FreeCall):
                facts.reshown.add(step.value_index)
            number += 1
    facts.reshown = facts.may_have_been(facts.reshown)
    return facts


def tensors_in(plan: ExecutionPlan, index: int) -> Iterator[int]:
    """Yield the tensors that a value is or lists."""
    value = plan.values[index].val
    if isinstance(value, Tensor):
        yield index
    elif isinstance(value, TensorList | OptionalTensorList):
        yield from (item for item in value.items if item >= 0)


def values_in(plan: ExecutionPlan, index: int) -> Iterator[int]:
    """Yield the value and what it lists."""
    yield index
    value = plan.values[index].val
    if isinstance(value, IntList | TensorList | OptionalTensorList):
        yield from (item for item in value.items if item >= 0)


def _unplanned_inputs(plan: ExecutionPlan) -> Iterator[int]:
    """Yield the inputs that show the caller's own memory."""
    for index in plan.inputs:
        value = plan.values[index].val
        if isinstance(value, Tensor) and value.allocation_info is None:
            yield index


def _gather_call(plan: ExecutionPlan, facts: PlanFacts, number: int, kernel: Kernel, args: Sequence[int]) -> None:
    for place, slot in enumerate(kernel.slots):
        if slot.is_written:
            facts.written += [(index, number) for index in tensors_in(plan, args[place])]
    results = args[len(kernel.slots) :]
    if kernel.kind is KernelKind.VALUE:
        if not kernel.returns_tensor:
            facts.numbers.update(results)
            facts.rebound.update(results)
    elif kernel.kind is KernelKind.IN_PLACE:
        facts.rebound.update(result for result in results if result != args[0])
        facts.handles += [(args[0], result) for result in results if result != args[0]]
    elif kernel.name == "executorch_prim::et_view.default":
        facts.reshown.add(args[2])
        facts.handles.append((args[0], args[2]))


def _closure(start: Iterable[int], edges: Sequence[tuple[int, int]]) -> set[int]:
    following: dict[int, list[int]] = {}
    for source, target in edges:
        following.setdefault(source, []).append(target)
    reached = set(start)
    waiting = list(reached) if following else []
    while waiting:
        for target in following.get(waiting.pop(), ()):
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    return reached

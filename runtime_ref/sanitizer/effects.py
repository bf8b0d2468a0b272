"""What the instructions of a plan do to memory: which tensors each reads, writes, and lets others show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from exirkit.emit import (
    Bool,
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    Int,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Tensor,
)
from exirkit.ir import overwritable_arguments
from exirkit.runtime_ref.backends import results_of_delegate
from exirkit.runtime_ref.checks.calls import PlanFacts, operator_name, tensors_in
from exirkit.runtime_ref.kernels.kernel import Kernel, KernelKind

VIEW: Final = "executorch_prim::et_view.default"
COPY_ROW: Final = "executorch_prim::et_copy_index.tensor"
# Operators that change their first argument without reading it.
_OVERWRITING: Final = frozenset(
    f"aten::{name}"
    for name in (
        "bernoulli_.Tensor",
        "bernoulli_.float",
        "cauchy_",
        "copy_",
        "exponential_",
        "fill_.Scalar",
        "fill_.Tensor",
        "geometric_",
        "log_normal_",
        "normal_",
        "random_",
        "random_.from",
        "random_.to",
        "uniform_",
        "zero_",
    )
)
# Operators that take a tensor for its shape only, by the name before the overload.
_SHAPE_ONLY: Final = frozenset(
    f"aten::{name}"
    for name in (
        "empty_like",
        "full_like",
        "new_empty",
        "new_empty_strided",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones_like",
        "rand_like",
        "randint_like",
        "randn_like",
        "sym_numel",
        "sym_size",
        "sym_stride",
        "zeros_like",
    )
)


@dataclass(frozen=True, slots=True)
class Effect:
    """One instruction.

    Attributes:
        number: Its number within the plan.
        text: Its operator, or what else it is.
        reads: Tensors whose elements it reads.
        writes: Tensors to which it writes.
        out_writes: Those of `writes` that are out arguments or results.
        kills: Values whose contents before it do not matter to whatever comes after it.
        handles: Pairs (source, target): the target becomes the tensor, or shows the memory, of the source.
        overwrites: Pairs (result, argument): the kernel may write the result over the argument, if laid out alike.
        following: Numbers of the instructions that may come next; the number of all instructions is the end.
    """

    number: int
    text: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    out_writes: tuple[int, ...] = ()
    kills: tuple[int, ...] = ()
    handles: tuple[tuple[int, int], ...] = ()
    following: tuple[int, ...] = ()
    overwrites: tuple[tuple[int, int], ...] = ()


def effects_of(
    plan: ExecutionPlan, facts: PlanFacts, *, unknown: Callable[[int, Sequence[int]], Effect] | None = None
) -> list[Effect]:
    """Return the effect of every instruction of a checked plan.

    Args:
        plan: The method.
        facts: What its instructions do to values.
        unknown: The effect of a call that no kernel is known for, or of a delegate, from its number and arguments;
            without it there is no such call.
    """
    effects: list[Effect] = []
    rows = _rows(plan, facts)
    for chain in plan.chains:
        start = len(effects)
        for instruction in chain.instructions:
            args = None if unknown is None else _foreign_arguments(facts, instruction)
            if unknown is None or args is None:
                effects.append(_effect(plan, facts, instruction, len(effects), start))
            else:
                effects.append(unknown(len(effects), args))
        for number in range(start, len(effects) - 2):
            if _enters_a_loop(plan, facts, [one.instr_args for one in chain.instructions[number - start :][:3]]):
                # The test in front of the first round is known to succeed, so nothing behind the loop comes next.
                effects[number] = replace(effects[number], following=(number + 3,))
        for number, instruction in enumerate(chain.instructions, start):
            begun = rows.get(getattr(instruction.instr_args, "move_to", -1), ())
            if begun:
                # A loop that has a varying number of rounds may have none, and reads no old rows for all that.
                effects[number] = replace(effects[number], kills=(*effects[number].kills, *begun))
    return effects


def _rows(plan: ExecutionPlan, facts: PlanFacts) -> dict[int, tuple[int, ...]]:
    """Return the tensors that loops fill row by row, by the numbers that count the rows."""
    found: dict[int, tuple[int, ...]] = {}
    for chain in plan.chains:
        for step in (one.instr_args for one in chain.instructions):
            if not isinstance(step, KernelCall):
                continue
            kernel = facts.kernels[step.op_index]
            if kernel is not None and kernel.name == COPY_ROW:
                target, _, counter = step.args[:3]
                found[counter] = (*found.get(counter, ()), target)
    return found


def _enters_a_loop(plan: ExecutionPlan, facts: PlanFacts, steps: Sequence[Any]) -> bool:
    """Return whether instructions start a counter, test that it is below a number that it is below, and jump if not."""
    begin, test, jump = steps
    if not (isinstance(begin, MoveCall) and isinstance(test, KernelCall) and isinstance(jump, JumpFalseCall)):
        return False
    if operator_name(plan, test.op_index) != "executorch_prim::lt.Scalar" or len(test.args) != 3:
        return False
    counter, end, answer = test.args
    ends = begin.move_from, end
    numbers = [plan.values[index].val for index in ends]
    if (begin.move_to, answer) != (counter, jump.cond_value_index) or not (facts.rebound | facts.numbers).isdisjoint(
        ends
    ):
        return False
    first, last = numbers
    return isinstance(first, Int) and isinstance(last, Int) and first.int_val < last.int_val


def _foreign_arguments(facts: PlanFacts, instruction: Instruction) -> Sequence[int] | None:
    """Return the arguments of a call of something that is not known here; None for any other instruction."""
    step = instruction.instr_args
    if isinstance(step, DelegateCall) or (isinstance(step, KernelCall) and facts.kernels[step.op_index] is None):
        return step.args
    return None


def _effect(plan: ExecutionPlan, facts: PlanFacts, instruction: Instruction, number: int, start: int) -> Effect:
    step = instruction.instr_args
    following: tuple[int, ...] = (number + 1,)
    if isinstance(step, KernelCall):
        kernel = facts.kernels[step.op_index]
        assert kernel is not None, "load_method reports unknown kernels first"
        return _call_effect(plan, kernel, step.args, number, operator_name(plan, step.op_index))
    if isinstance(step, MoveCall):
        handles = ((step.move_from, step.move_to),) if isinstance(plan.values[step.move_from].val, Tensor) else ()
        return Effect(number, "move", kills=(step.move_to,), handles=handles, following=following)
    if isinstance(step, JumpFalseCall):
        reads = tuple(tensors_in(plan, step.cond_value_index))
        following = _following(plan, facts, step, number, start)
        return Effect(number, "jump_false", reads=reads, following=following)
    if isinstance(step, FreeCall):
        return Effect(number, "free", kills=(step.value_index,), following=following)
    if isinstance(step, DelegateCall):
        return _delegate_effect(plan, facts, step, number)
    raise TypeError(f"no instruction is a {type(step).__name__}")


def _delegate_effect(plan: ExecutionPlan, facts: PlanFacts, step: DelegateCall, number: int) -> Effect:
    results = results_of_delegate(plan, facts.delegates[step.delegate_index], step.args)
    inputs = step.args[: len(step.args) - len(results)]
    reads = tuple(tensor for index in inputs for tensor in tensors_in(plan, index))
    text = f"delegate {plan.delegates[step.delegate_index].id}"
    written = tuple(results)
    return Effect(number, text, reads, written, written, kills=written, following=(number + 1,))


def _following(plan: ExecutionPlan, facts: PlanFacts, step: JumpFalseCall, number: int, start: int) -> tuple[int, ...]:
    """Return where a jump may lead; the exporter writes unconditional jumps as those on the constant False."""
    condition = plan.values[step.cond_value_index].val
    destination = start + step.destination_instruction
    if isinstance(condition, Bool) and step.cond_value_index not in facts.rebound:
        return (number + 1,) if condition.bool_val else (destination,)
    return tuple(dict.fromkeys((number + 1, destination)))


def _call_effect(plan: ExecutionPlan, kernel: Kernel, args: Sequence[int], number: int, name: str) -> Effect:
    results = args[len(kernel.slots) :]
    following = (number + 1,)
    if kernel.name == VIEW:
        return Effect(number, name, kills=(args[2],), handles=((args[0], args[2]),), following=following)
    if kernel.name == COPY_ROW:
        # Rows written earlier are told from foreign bytes when they are read, so nothing has to be live until then.
        return Effect(number, name, (args[1],), (args[0],), (args[0],), (args[0],), following=following)
    reads: list[int] = []
    changed: list[int] = []
    outs: list[int] = []
    shape_only = kernel.name.partition(".")[0] in _SHAPE_ONLY
    for slot, index in zip(kernel.slots, args, strict=False):
        tensors = list(tensors_in(plan, index))
        if slot.is_out:
            outs += tensors
        elif slot.is_written:
            changed += tensors
            reads += [] if kernel.name in _OVERWRITING else tensors
        elif not shape_only:
            reads += tensors
    handles: tuple[tuple[int, int], ...] = ()
    if kernel.kind is KernelKind.VALUE:
        outs += [tensor for index in results for tensor in tensors_in(plan, index)]
    elif kernel.kind is KernelKind.IN_PLACE:
        handles = tuple((args[0], result) for result in results if result != args[0])
    kept = set(reads)
    written = tuple(dict.fromkeys((*changed, *outs)))
    kills = tuple(index for index in written if index not in kept) + tuple(target for _, target in handles)
    over = tuple(_overwrites(plan, kernel, args))
    return Effect(number, name, tuple(dict.fromkeys(reads)), written, tuple(outs), kills, handles, following, over)


def _overwrites(plan: ExecutionPlan, kernel: Kernel, args: Sequence[int]) -> Iterator[tuple[int, int]]:
    table = overwritable_arguments(kernel.name)
    if table:
        at = {slot.name: index for slot, index in zip(kernel.slots, args, strict=False)}
        for result, names in table.items():
            for name in names:
                yield from product(tensors_in(plan, at[result]), tensors_in(plan, at[name]))

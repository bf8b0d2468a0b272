"""Calls of a program file as a runtime with certain kernels sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from exirkit.emit import (
    Bool,
    BoolList,
    Double,
    DoubleList,
    ExecutionPlan,
    Int,
    IntList,
    KernelCall,
    Null,
    OptionalTensorList,
    String,
    Tensor,
    TensorList,
)
from exirkit.ir import Diagnostic, Location, TensorShapeDynamism
from exirkit.runtime_ref.kernels.kernel import Kernel
from exirkit.runtime_ref.kernels.registry import OperatorRegistry
from exirkit.runtime_ref.kernels.slots import Slot
from exirkit.verifiers import UNKNOWN, Fact, KernelTable, TensorFacts, broken_conditions, check_kernel_names

from .calls import numbered
from .plan_facts import PlanFacts, gather_facts, operator_name, resolve_operators


def check_plan_kernels(plan: ExecutionPlan, registry: OperatorRegistry, table: KernelTable) -> list[Diagnostic]:
    """Check that a runtime has the kernels of a method, and that these take its calls.

    Args:
        plan: The method, in which `verify_program` found nothing.
        registry: Operators whose schemas say what their arguments are called.
        table: Kernels of the runtime.

    Returns:
        All findings (EK359: no kernel, EK360: the kernel does not take this call), in order of instructions.
    """
    names = [operator_name(plan, index) for index in range(len(plan.operators))]
    found = check_kernel_names(names, table, plan.name)
    for number, name, facts in facts_of_plan(plan, registry):
        where = Location(method=plan.name, node=f"instruction {number}")
        found += [one.model_copy(update={"location": where}) for one in broken_conditions(table, name, facts)]
    return found


def facts_of_plan(plan: ExecutionPlan, registry: OperatorRegistry) -> Iterator[tuple[int, str, Mapping[str, Fact]]]:
    """Yield the calls of kernels in a method: number of the instruction, operator, and what it is given by name.

    Calls of operators that the registry does not know are left out.
    """
    kernels = resolve_operators(plan, registry)
    facts = gather_facts(plan, kernels)
    for number, instruction, _ in numbered(plan):
        step = instruction.instr_args
        if isinstance(step, KernelCall):
            kernel = kernels[step.op_index]
            if kernel is not None:
                yield number, operator_name(plan, step.op_index), _facts_of_call(plan, facts, kernel, step.args)


def _facts_of_call(plan: ExecutionPlan, facts: PlanFacts, kernel: Kernel, args: Sequence[int]) -> dict[str, Fact]:
    return {slot.name: _fact(plan, facts, index, slot) for slot, index in zip(kernel.slots, args, strict=False)}


def _fact(plan: ExecutionPlan, facts: PlanFacts, index: int, slot: Slot | None = None) -> Fact:
    if index in facts.numbers or index in facts.rebound:
        return _moved(plan.values[index].val)
    value = plan.values[index].val
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, TensorList | OptionalTensorList):
        return tuple(None if item < 0 else _fact(plan, facts, item) for item in value.items)
    if isinstance(value, IntList):
        return tuple(_fact(plan, facts, item) for item in value.items)
    if isinstance(value, DoubleList | BoolList):
        return tuple(value.items)
    return _number(value, slot)


def _moved(value: Any) -> Fact:
    # A handle has the rank and dtype of what it becomes; a number is whatever it is when the program runs.
    if not isinstance(value, Tensor):
        return UNKNOWN
    tensor = _tensor(value)
    return TensorFacts(tensor.dtype, (UNKNOWN,) * len(tensor.sizes), UNKNOWN)


def _tensor(value: Tensor) -> TensorFacts:
    varies = value.shape_dynamism != TensorShapeDynamism.STATIC
    sizes = tuple(UNKNOWN if varies else size for size in value.sizes)
    dtype = str(value.scalar_type.dtype).removeprefix("torch.")
    return TensorFacts(dtype, sizes, tuple(value.dim_order))


def _number(value: Any, slot: Slot | None) -> Fact:
    if isinstance(value, Null):
        return None
    if isinstance(value, Int):
        return _decoded(value.int_val, slot)
    if isinstance(value, Bool):
        return bool(value.bool_val)
    if isinstance(value, Double):
        return value.double_val
    return value.string_val if isinstance(value, String) else UNKNOWN


def _decoded(number: int, slot: Slot | None) -> Fact:
    """Return an integer, or the name of the dtype or layout for which it stands."""
    if slot is None or slot.decode is None:
        return number
    try:
        meant = slot.decode(number)
    except ValueError:
        return UNKNOWN
    if isinstance(meant, torch.dtype | torch.layout | torch.memory_format):
        return str(meant).removeprefix("torch.")
    return meant if isinstance(meant, int | float) else number

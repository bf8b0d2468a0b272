"""The static check of a whole program: everything that can be known to be wrong before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from exirkit.emit import (
    Bool,
    BoolList,
    DelegateCall,
    Double,
    DoubleList,
    ExecutionPlan,
    Int,
    IntList,
    KernelCall,
    Null,
    OptionalTensorList,
    PteFile,
    String,
    Tensor,
    TensorList,
)
from exirkit.ir import Diagnostic, Location, TensorShapeDynamism
from exirkit.runtime_ref.backends import results_of_delegate
from exirkit.runtime_ref.kernels.kernel import INPUT_KINDS, Kernel, Slot
from exirkit.runtime_ref.kernels.registry import OperatorRegistry, default_registry
from exirkit.runtime_ref.limits import Findings, Limits
from exirkit.verifiers import UNKNOWN, Fact, KernelTable, TensorFacts, broken_conditions, check_kernel_names

from .calls import (
    PlanFacts,
    check_indices,
    check_kinds,
    check_values,
    gather_facts,
    is_constant,
    numbered,
    operator_name,
    resolve_operators,
)


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


def verify_program(
    file: PteFile,
    *,
    registry: OperatorRegistry | None = None,
    limits: Limits | None = None,
    needs_data: bool = True,
) -> None:
    """Check every method of a program that has been read; find as much as possible in one go.

    Kernels that are not registered are not a finding here: another runtime may have them. `load_method` reports
    them.

    Args:
        file: The program and its data.
        registry: Operators whose calls are checked against their schemas; by default all that run here.
        limits: How large things may be.
        needs_data: Whether data that is to be in another file has to be there.

    Raises:
        ProgramVerifyError: EK601 to EK629, up to fifty findings, each with the method, the value or instruction,
            and what would have been right.
    """
    check_program(file, registry or default_registry(), limits or Limits(), needs_data=needs_data)


def check_program(
    file: PteFile, registry: OperatorRegistry, limits: Limits, *, needs_data: bool = True
) -> dict[str, PlanFacts]:
    """Check every method as `verify_program` does, and return what their instructions do."""
    findings = Findings()
    check_method_names(file, findings)
    facts = {
        plan.name: check_plan(file, plan, findings, registry=registry, limits=limits, needs_data=needs_data)
        for plan in file.program.execution_plan
    }
    findings.raise_if_any()
    return {name: each for name, each in facts.items() if each is not None}


def check_method_names(file: PteFile, findings: Findings) -> None:
    """Check that there are methods and that no two share a name."""
    seen: set[str] = set()
    for plan in file.program.execution_plan:
        if plan.name in seen:
            findings.add("EK616", f"two methods are called {plan.name!r}")
        seen.add(plan.name)


def check_plan(
    file: PteFile,
    plan: ExecutionPlan,
    findings: Findings,
    *,
    registry: OperatorRegistry,
    limits: Limits,
    needs_data: bool = True,
) -> PlanFacts | None:
    """Check one method; return what its instructions do, or None if something is wrong with it."""
    if findings.full:
        # Another finding would not be reported, and what is not checked must not be relied on.
        return None
    findings.method = plan.name
    before = findings.count
    kernels = resolve_operators(plan, registry)
    check_values(file, plan, findings, limits, needs_data=needs_data)
    check_indices(plan, kernels, findings)
    if findings.count > before:
        # Kinds and effects cannot be told while indices lead nowhere.
        findings.method = None
        return None
    facts = gather_facts(plan, kernels)
    check_kinds(plan, facts, findings)
    _check_inputs(plan, findings)
    _check_constants(plan, facts, findings)
    findings.method = None
    return facts if findings.count == before else None


def check_delegate_calls(plan: ExecutionPlan, facts: PlanFacts, findings: Findings) -> None:
    """Check what only a loaded delegate tells: which arguments of its calls are results, and may be written to."""
    number = 0
    for chain in plan.chains:
        for instruction in chain.instructions:
            step = instruction.instr_args
            if isinstance(step, DelegateCall):
                try:
                    results = results_of_delegate(plan, facts.delegates[step.delegate_index], step.args)
                    facts.written += [(index, number) for index in results]
                except ValueError as error:
                    where = f"instruction {number}"
                    findings.add("EK628", f"delegate {step.delegate_index} cannot be called so: {error}", at=where)
            number += 1
    _check_constants(plan, facts, findings)


def _check_inputs(plan: ExecutionPlan, findings: Findings) -> None:
    for position, index in enumerate(plan.inputs):
        kind = type(plan.values[index].val)
        if kind not in INPUT_KINDS:
            names = ", ".join(one.__name__ for one in INPUT_KINDS)
            findings.add("EK602", f"input {position} is value {index}, a {kind.__name__}", expected=names)


def _check_constants(plan: ExecutionPlan, facts: PlanFacts, findings: Findings) -> None:
    """Check that nothing writes to the bytes of the file, which may be mapped read-only."""
    constants = {
        index for index, entry in enumerate(plan.values) if isinstance(entry.val, Tensor) and is_constant(entry.val)
    }
    if not constants:
        return
    for source, target in facts.handles:
        if target in constants:
            findings.add("EK614", f"value {target} is a constant, but becomes value {source}", at=f"value {target}")
    reachable = facts.may_become(constants)
    for index, number in facts.written:
        if index in reachable:
            what = "a constant" if index in constants else "a constant at times"
            findings.add(
                "EK614",
                f"value {index} is {what}, and is written to",
                at=f"instruction {number}",
                expected="a tensor with memory of its own",
            )
    for position, index in enumerate(plan.inputs):
        if index in reachable:
            findings.add("EK614", f"input {position} is value {index}, a constant", at=f"input {position}")

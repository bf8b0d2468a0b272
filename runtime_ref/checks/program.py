"""The static check of a whole program: everything that can be known to be wrong before anything runs."""

from __future__ import annotations

from exirkit.emit import DelegateCall, ExecutionPlan, PteFile, Tensor
from exirkit.runtime_ref.backends import results_of_delegate
from exirkit.runtime_ref.kernels.registry import OperatorRegistry, default_registry
from exirkit.runtime_ref.kernels.slots import INPUT_KINDS
from exirkit.runtime_ref.limits import Limits

from .calls import check_indices, check_kinds
from .findings import Findings
from .plan_facts import PlanFacts, gather_facts, resolve_operators
from .values import check_values, is_constant


def verify_program(file: PteFile, *, registry: OperatorRegistry | None = None, limits: Limits | None = None) -> None:
    """Check every method of a program that has been read; find as much as possible in one go.

    Kernels that are not registered are not a finding here: another runtime may have them. `load_method` reports
    them.

    Args:
        file: The program and its data.
        registry: Operators whose calls are checked against their schemas; by default all that run here.
        limits: How large things may be.

    Raises:
        ProgramVerifyError: EK601 to EK626, up to fifty findings, each with the method, the value or instruction,
            and what would have been right.
    """
    check_program(file, registry or default_registry(), limits or Limits())


def check_program(file: PteFile, registry: OperatorRegistry, limits: Limits) -> dict[str, PlanFacts]:
    """Check every method as `verify_program` does, and return what their instructions do."""
    findings = Findings()
    check_method_names(file, findings)
    facts = {
        plan.name: check_plan(file, plan, findings, registry=registry, limits=limits)
        for plan in file.program.execution_plan
    }
    findings.raise_if_any()
    return {name: each for name, each in facts.items() if each is not None}


def check_method_names(file: PteFile, findings: Findings) -> None:
    """Check that there are methods and that no two share a name."""
    seen: set[str] = set()
    for plan in file.program.execution_plan:
        if plan.name in seen:
            findings.add("EK616", f"two methods are called {plan.name!r}", expected="different names")
        seen.add(plan.name)


def check_plan(
    file: PteFile, plan: ExecutionPlan, findings: Findings, *, registry: OperatorRegistry, limits: Limits
) -> PlanFacts | None:
    """Check one method; return what its instructions do, or None if something is wrong with it."""
    if findings.full:
        # Another finding would not be reported, and what is not checked must not be relied on.
        return None
    findings.method = plan.name
    before = findings.count
    kernels = resolve_operators(plan, registry)
    check_values(file, plan, findings, limits)
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

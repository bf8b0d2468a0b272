"""Static checks of instructions: indices first, then kinds of values against the schemas of their kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    TensorList,
)
from exirkit.runtime_ref.kernels.kernel import Kernel, KernelKind
from exirkit.runtime_ref.kernels.slots import SCALAR_KINDS, Slot

from .findings import Findings
from .plan_facts import PlanFacts, tensors_in


def numbered(plan: ExecutionPlan) -> Iterator[tuple[int, Instruction, int]]:
    """Yield number within the plan, instruction, and number of instructions of its chain."""
    number = 0
    for chain in plan.chains:
        for instruction in chain.instructions:
            yield number, instruction, len(chain.instructions)
            number += 1


def check_indices(plan: ExecutionPlan, kernels: Sequence[Kernel | None], findings: Findings) -> None:
    """Check that instructions, inputs and outputs name values, operators and places that exist."""
    count = len(plan.values)
    for what, listed in (("input", plan.inputs), ("output", plan.outputs)):
        for position, index in enumerate(listed):
            if not 0 <= index < count:
                place, legal = f"{what} {position}", f"0 to {count - 1}" if count else "no values"
                findings.add("EK601", f"{place} is value {index}", expected=legal, at=place)
    for number, instruction, length in numbered(plan):
        if findings.full:
            return
        _IndexCheck(plan, kernels, findings, number).run(instruction, length)


class _IndexCheck:
    """The indices of one instruction."""

    def __init__(self, plan: ExecutionPlan, kernels: Sequence[Kernel | None], findings: Findings, number: int) -> None:
        self._plan = plan
        self._kernels = kernels
        self._findings = findings
        self._at = f"instruction {number}"

    def run(self, instruction: Instruction, length: int) -> None:
        """Check by kind; the reader has made sure that there is no other kind."""
        step = instruction.instr_args
        if isinstance(step, KernelCall):
            self._values(step.args)
            self._kernel_call(step)
        elif isinstance(step, DelegateCall):
            self._values(step.args)
            if not 0 <= step.delegate_index < len(self._plan.delegates):
                self._add("EK605", f"there is no delegate {step.delegate_index}", len(self._plan.delegates))
        elif isinstance(step, MoveCall):
            self._values((step.move_from, step.move_to))
        elif isinstance(step, JumpFalseCall):
            self._values((step.cond_value_index,))
            # One past the last instruction is a legal place to jump to: the end.
            if not 0 <= step.destination_instruction <= length:
                self._add("EK606", f"a jump leads to instruction {step.destination_instruction}", length + 1)
        else:
            self._values((step.value_index,))

    def _values(self, indices: Sequence[int]) -> None:
        count = len(self._plan.values)
        for index in indices:
            if not 0 <= index < count:
                self._add("EK601", f"there is no value {index}", count)
                return

    def _kernel_call(self, call: KernelCall) -> None:
        if not 0 <= call.op_index < len(self._kernels):
            self._add("EK604", f"there is no operator {call.op_index}", len(self._kernels))
            return
        kernel = self._kernels[call.op_index]
        if kernel is None:
            return
        least = len(kernel.slots) + kernel.tail
        if len(call.args) < least:
            self._findings.add(
                "EK615",
                f"{kernel.name} is called with {len(call.args)} values",
                at=self._at,
                expected=f"{len(kernel.slots)} arguments and {kernel.tail} result",
            )

    def _add(self, code: str, message: str, count: int) -> None:
        expected = f"0 to {count - 1}" if count else "none: there are none"
        self._findings.add(code, message, at=self._at, expected=expected)


def check_kinds(plan: ExecutionPlan, facts: PlanFacts, findings: Findings) -> None:
    """Check that values have the kinds that their uses need.

    Requires: `check_indices` found nothing.
    """
    check = _KindCheck(plan, facts, findings)
    for number, instruction, _ in numbered(plan):
        if findings.full:
            return
        check.run(number, instruction)


class _KindCheck:
    """The kinds of values in one plan."""

    def __init__(self, plan: ExecutionPlan, facts: PlanFacts, findings: Findings) -> None:
        self._plan = plan
        self._facts = facts
        self._findings = findings
        self._kinds = [type(entry.val) for entry in plan.values]
        self._number = 0

    def run(self, number: int, instruction: Instruction) -> None:
        """Check one instruction."""
        self._number = number
        step = instruction.instr_args
        if isinstance(step, KernelCall):
            kernel = self._facts.kernels[step.op_index]
            if kernel is not None:
                self._arguments(kernel, step.args)
                self._results(kernel, step.args)
        elif isinstance(step, MoveCall):
            self._move(step)
        elif isinstance(step, JumpFalseCall):
            condition = step.cond_value_index
            if condition not in self._facts.numbers:
                self._kind(condition, (Bool, Tensor), "the condition of a jump")
        elif isinstance(step, FreeCall) and self._kind(step.value_index, (Tensor,), "what is freed"):
            tensor = self._plan.values[step.value_index].val
            if isinstance(tensor, Tensor) and tensor.allocation_info is not None:
                self._add("EK626", f"value {step.value_index} is freed but has a planned place")

    def _arguments(self, kernel: Kernel, args: Sequence[int]) -> None:
        for slot, index in zip(kernel.slots, args, strict=False):
            kind = self._kinds[index]
            if kind in slot.accepts:
                if slot.decode is not None and kind is Int:
                    self._decodes(kernel, slot, index)
            elif not (slot.takes_scalar and index in self._facts.numbers):
                self._kind(index, slot.accepts, f"argument {slot.name} of {kernel.name}")

    def _decodes(self, kernel: Kernel, slot: Slot, index: int) -> None:
        value = self._plan.values[index].val
        assert slot.decode is not None
        if index in self._facts.numbers or not isinstance(value, Int):
            return
        try:
            slot.decode(value.int_val)
        except ValueError as error:
            self._add("EK602", f"argument {slot.name} of {kernel.name} is value {index}, {value.int_val}: {error}")

    def _results(self, kernel: Kernel, args: Sequence[int]) -> None:
        results = args[len(kernel.slots) :]
        if kernel.kind is KernelKind.OUT:
            outs = [tensor for place in kernel.outs for tensor in tensors_in(self._plan, args[place])]
            named = [tensor for index in results for tensor in tensors_in(self._plan, index)]
            if outs != named:
                expected = f"the out arguments, {outs}"
                self._add("EK622", f"{kernel.name} names the results {list(results)}, tensors {named}", expected)
        elif kernel.kind is KernelKind.IN_PLACE:
            for index in results:
                self._kind(index, (Tensor,), f"the result of {kernel.name}")
        elif kernel.kind is KernelKind.VALUE:
            wanted = SCALAR_KINDS
            if kernel.returns_tensor:
                wanted = (TensorList,) if kernel.returns > 1 else (Tensor,)
            for index in results:
                self._kind(index, wanted, f"the result of {kernel.name}")

    def _move(self, step: MoveCall) -> None:
        source, target = step.move_from, step.move_to
        if self._kind(source, (Tensor, *SCALAR_KINDS), "what is moved"):
            wanted = (Tensor,) if self._kinds[source] is Tensor else SCALAR_KINDS
            self._kind(target, wanted, f"where value {source} is moved")

    def _kind(self, index: int, wanted: tuple[type, ...], what: str) -> bool:
        if self._kinds[index] in wanted:
            return True
        names = " or ".join(kind.__name__ for kind in wanted) or "None"
        self._add("EK602", f"{what} is value {index}, a {self._kinds[index].__name__}", names)
        return False

    def _add(self, code: str, message: str, expected: str | None = None) -> None:
        self._findings.add(code, message, at=f"instruction {self._number}", expected=expected)

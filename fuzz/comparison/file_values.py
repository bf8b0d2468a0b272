"""What a program file computes on a runtime, and the values between its instructions.

A runtime only gives the outputs of a method. A value in between is examined in a file that ends behind the instruction
which computes it and has it as its only output, so that the same works for every runtime, without its help.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from exirkit.emit import (
    ExecutionPlan,
    JumpFalseCall,
    KernelCall,
    TensorList,
    lay_out,
    read_program,
    restore,
    restore_mutable_data,
    restore_named_data,
)
from exirkit.fuzz.official import OfficialRuntime, missing_reason
from exirkit.ir import DiagnosticError
from exirkit.runtime_ref import Runtime

from .first_wrong import Calls
from .value_gaps import Tolerances, ValueGap, gap_of

Run: TypeAlias = Callable[[bytes, str, Calls], "RuntimeResult"]

OFFICIAL_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class RuntimeResult:
    """What a runtime made of a file.

    Attributes:
        outputs: Of every run; empty if it failed.
        failure: Why it failed.
    """

    outputs: list[list[Any]]
    failure: str | None = None


@dataclass(frozen=True)
class WrongInstruction:
    """The first instruction whose result differs.

    Attributes:
        index: Its number, from 0.
        operator: What it calls.
        gap: How far its result is off.
        runs: How many files were run to find it.
    """

    index: int
    operator: str
    gap: ValueGap
    runs: int


def run_reference(data: bytes, method: str, calls: Calls) -> RuntimeResult:
    """Run a method of a file on the reference runtime."""
    try:
        loaded = Runtime.get().load_program(data).load_method(method)
        return RuntimeResult([loaded.execute(copied_inputs(inputs)) for inputs in calls])
    except DiagnosticError as error:
        return RuntimeResult([], error.diagnostics[0].headline())


class Official:
    """The official runtime, in a process that may die; use it as a context manager.

    Attributes:
        missing: Why it cannot be asked; None if it can.
    """

    def __init__(self) -> None:
        self.missing = missing_reason()
        self._runtime: OfficialRuntime | None = None

    def __enter__(self) -> Official:
        return self

    def __exit__(self, *_: object) -> None:
        if self._runtime is not None:
            self._runtime.close()

    def run(self, data: bytes, method: str, calls: Calls) -> RuntimeResult:
        """Run a method of a file."""
        if self._runtime is None:
            self._runtime = OfficialRuntime()
        given = [copied_inputs(inputs) for inputs in calls]
        answer = self._runtime.run(data, given, method=method, timeout_s=OFFICIAL_TIMEOUT_S)
        if answer.failure is None:
            return RuntimeResult(answer.outputs)
        return RuntimeResult([], f"{answer.failure.kind}: {_telling(answer.failure.text)}")


class InstructionValues:
    """The results of the instructions of one method, in files that end behind them.

    Args:
        data: The file.
        method: Name of the method.
        calls: Flat inputs of every run; the results of the last one are examined.
    """

    def __init__(self, data: bytes, method: str, calls: Calls) -> None:
        self._file = read_program(data)
        self._method = method
        self._calls = calls
        self.plan = next(one for one in self._file.program.execution_plan if one.name == method)
        instructions = [one for chain in self.plan.chains for one in chain.instructions]
        self._is_straight = len(self.plan.chains) == 1 and not any(
            isinstance(one.instr_args, JumpFalseCall) for one in instructions
        )
        self.kernels = [index for index, one in enumerate(instructions) if isinstance(one.instr_args, KernelCall)]

    @property
    def can_be_examined(self) -> bool:
        """Whether the method is straight-line code, so that an instruction runs once."""
        return self._is_straight and bool(self.kernels)

    def operator(self, instruction: int) -> str:
        """Return the name of the operator that an instruction calls, such as `aten::add.out`."""
        called = self.plan.operators[self._call(instruction).op_index]
        return f"{called.name}.{called.overload}" if called.overload else called.name

    def value(self, instruction: int, run: Run) -> Any:
        """Return the result of an instruction on a runtime; None if it fails there."""
        result = run(self._until(instruction), self._method, self._calls)
        return result.outputs[-1] if result.failure is None else None

    def first_difference(
        self, run: Run, expected: Callable[[int], Any], tolerances: Tolerances, candidates: Sequence[int] | None = None
    ) -> WrongInstruction | None:
        """Return an instruction whose result differs while that of the one before it does not.

        Args:
            run: A runtime.
            expected: Returns the expected results of an instruction, as `value` does.
            tolerances: What is near enough.
            candidates: Instructions whose results can be compared; by default all that call kernels.
        """
        listed = list(self.kernels if candidates is None else candidates)
        gaps: dict[int, ValueGap] = {}

        def is_wrong(at: int) -> bool:
            got, wanted = self.value(listed[at], run), expected(listed[at])
            gaps[at] = ValueGap("type", text="no value") if got is None else gap_of(got, wanted, tolerances)
            return gaps[at].is_bad

        if not listed or not is_wrong(len(listed) - 1):
            return None
        good, bad = -1, len(listed) - 1
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if is_wrong(middle) else (middle, bad)
        return WrongInstruction(listed[bad], self.operator(listed[bad]), gaps[bad], len(gaps))

    def _call(self, instruction: int) -> KernelCall:
        call = self.plan.chains[0].instructions[instruction].instr_args
        assert isinstance(call, KernelCall), "only these have results that are examined"
        return call

    def _until(self, instruction: int) -> bytes:
        results = _results_of(self.plan, self._call(instruction))
        chain = self.plan.chains[0]
        kept = chain.model_copy(
            update={
                "instructions": chain.instructions[: instruction + 1],
                "stacktrace": chain.stacktrace and chain.stacktrace[: instruction + 1],
            }
        )
        plan = self.plan.model_copy(update={"chains": [kept], "outputs": results})
        program = restore(self._file)
        program = program.model_copy(update={"execution_plan": [plan]})
        mutable, named = restore_mutable_data(self._file), restore_named_data(self._file)
        return lay_out(program, mutable_data=mutable, named_data=named).to_bytes()


def _results_of(plan: ExecutionPlan, call: KernelCall) -> list[int]:
    last = plan.values[call.args[-1]].val
    return [item for item in last.items if item >= 0] if isinstance(last, TensorList) else [call.args[-1]]


def copied_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Return inputs that a program may write to."""
    return [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in inputs]


def _telling(text: str) -> str:
    """Return the lines of a log of the official runtime that say what was wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("E ", "F "))]
    return " | ".join((lines[:1] + telling)[:3]) or "it gave no reason"

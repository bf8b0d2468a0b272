"""The interpreter: the steps of a loaded method, run in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exirkit.emit import (
    ExecutionPlan,
    FreeCall,
    Instruction,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorList,
    PteFile,
    TensorList,
)
from exirkit.ir import Diagnostic, Location, ModelError
from exirkit.runtime_ref.checks.plan_facts import PlanFacts, operator_name
from exirkit.runtime_ref.limits import Limits

from .arguments import Environment
from .cells import Heap, StepFailure, TensorCell
from .inputs import bind_inputs, release_inputs, set_numbers
from .steps import Step, make_step
from .value_table import Arenas, make_values

_DEFAULT_SEED = 0


class Interpreter:
    """One method with its memory. State in mutable buffers lives as long as the object.

    Attributes:
        plan: The method.
        heap: Memory of tensors that have no place in an arena because their sizes have no bound.

    Requires: the plan has been checked, all its kernels exist, and it has no delegates.
    """

    def __init__(self, file: PteFile, plan: ExecutionPlan, facts: PlanFacts, arenas: Arenas, limits: Limits) -> None:
        self.plan = plan
        self.heap = Heap()
        self._limits = limits
        generator = torch.Generator().manual_seed(_DEFAULT_SEED)
        with torch.inference_mode():
            self._values = make_values(file, plan, arenas, self.heap)
            self._environment = Environment(plan, facts, self._values, generator)
            self._chains: list[list[Step]] = [
                [make_step(self._environment, instruction) for instruction in chain.instructions]
                for chain in plan.chains
            ]
        self._initial = {index: self._values[index] for index in sorted(facts.rebound)}

    def seed(self, seed: int) -> None:
        """Restart the random numbers of this method."""
        self._environment.generator.manual_seed(seed)

    def run(self, inputs: Sequence[Any], *, numbers_vary: bool = False) -> list[Any]:
        """Run the method once and return copies of its outputs.

        Args:
            inputs: One entry per input.
            numbers_vary: Whether numbers may be others than those with which the program was made.

        Raises:
            UsageError: EK640 to EK645, wrong inputs.
            ModelError: EK650 to EK655, an instruction failed. Counters restart at the next run, but buffers that
                were written keep what was written.
        """
        made_with = {index: self._values[index] for index in self.plan.inputs} if numbers_vary else {}
        with torch.inference_mode():
            try:
                set_numbers(self.plan, self._values, inputs if numbers_vary else ())
                self._start(inputs)
                for number, steps in enumerate(self._chains):
                    self._run_chain(number, steps)
                shown = [self._output(position, index) for position, index in enumerate(self.plan.outputs)]
                self._end()
            except ModelError:
                for index, entry in self._initial.items():
                    self._values[index] = entry
                raise
            finally:
                release_inputs(self.plan, self._values)
                for index, entry in made_with.items():
                    self._values[index] = entry
        # Outside of inference mode, so that copies are ordinary tensors.
        return [_copy(one) for one in shown]

    def tensor(self, index: int) -> torch.Tensor:
        """Return a copy of the tensor that is value `index` now."""
        return self._values[index].tensor().clone()  # type: ignore[no-any-return]

    def _start(self, inputs: Sequence[Any]) -> None:
        bind_inputs(self.plan, self._values, inputs)

    def _end(self) -> None:
        """Check what is left when all outputs are known; nothing here."""

    def _run_chain(self, chain: int, steps: Sequence[Step]) -> None:
        at = 0
        end = len(steps)
        jumps_back = 0
        try:
            while at < end:
                target = steps[at]()
                if target is None:
                    at += 1
                    continue
                if target <= at:
                    jumps_back += 1
                    self._check_rounds(jumps_back)
                at = target
        except StepFailure as failure:
            raise ModelError(self._diagnostic(chain, at, failure)) from None
        except Exception as error:
            # Whatever a kernel of torch or of a user raises is about the program; the text names what it was given.
            message = f"the kernel failed: {_first_line(error)}"
            raise ModelError(self._diagnostic(chain, at, StepFailure("EK650", message))) from error

    def _check_rounds(self, jumps_back: int) -> None:
        if jumps_back > self._limits.jumps_back:
            raise StepFailure("EK655", f"the method still loops after {jumps_back} rounds")

    def _output(self, position: int, index: int) -> Any:
        try:
            return _shown(self.plan, self._values, index)
        except StepFailure as failure:
            raise self._failed(failure, f"output {position}") from None

    def _failed(self, failure: StepFailure, place: str | None) -> ModelError:
        """Return the error for a failure outside of all instructions."""
        return ModelError(
            Diagnostic(
                code=failure.code,
                message=failure.message,
                location=Location(method=self.plan.name, node=place),
                expected=failure.expected,
                notes=failure.notes,
                hint=failure.hint,
            )
        )

    def _diagnostic(self, chain: int, at: int, failure: StepFailure) -> Diagnostic:
        instruction = self.plan.chains[chain].instructions[at]
        before = sum(len(one.instructions) for one in self.plan.chains[:chain])
        text, arguments = _describe_instruction(self.plan, instruction)
        return Diagnostic(
            code=failure.code,
            message=failure.message,
            location=Location(method=self.plan.name, node=f"instruction {before + at}", text=text),
            expected=failure.expected,
            notes=(
                *failure.notes,
                *(f"value {index}: {_describe(self._values[index])}" for index in dict.fromkeys(arguments)),
            ),
            hint=failure.hint,
        )


def _shown(plan: ExecutionPlan, values: list[Any], index: int) -> Any:
    """Return what a value is now, without copying it."""
    listed = plan.values[index].val
    if isinstance(listed, IntList | TensorList | OptionalTensorList):
        return [None if item < 0 else _shown(plan, values, item) for item in listed.items]
    entry = values[index]
    return entry.tensor() if isinstance(entry, TensorCell) else entry


def _copy(shown: Any) -> Any:
    if isinstance(shown, torch.Tensor):
        return shown.clone()
    return [_copy(one) for one in shown] if isinstance(shown, list) else shown


def _describe_instruction(plan: ExecutionPlan, instruction: Instruction) -> tuple[str, Sequence[int]]:
    """Return an instruction as text, and the values that it names."""
    step = instruction.instr_args
    if isinstance(step, KernelCall):
        arguments = [index for index in step.args for index in _with_items(plan, index)]
        return f"{operator_name(plan, step.op_index)}({', '.join(map(str, step.args))})", arguments
    if isinstance(step, MoveCall):
        return f"move({step.move_from}, {step.move_to})", (step.move_from, step.move_to)
    if isinstance(step, JumpFalseCall):
        return f"jump_false({step.cond_value_index}, {step.destination_instruction})", (step.cond_value_index,)
    if isinstance(step, FreeCall):
        return f"free({step.value_index})", (step.value_index,)
    return f"delegate({', '.join(map(str, step.args))})", step.args


def _with_items(plan: ExecutionPlan, index: int) -> list[int]:
    value = plan.values[index].val
    return [item for item in value.items if item >= 0] if isinstance(value, TensorList) else [index]


def _describe(entry: Any) -> str:
    if not isinstance(entry, TensorCell):
        return repr(entry)
    if entry.current is None:
        return f"{entry.dtype} with the declared sizes {list(entry.sizes)}, no memory"
    return f"{entry.dtype} {list(entry.current.shape)}"


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__

"""The interpreter: inputs are checked and copied, then the steps of a loaded method run in order.

Steps are instructions turned into callables that need no look-ups when they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch

from exirkit.emit import (
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorList,
    PteFile,
    Tensor,
    TensorList,
)
from exirkit.ir import Diagnostic, Location, ModelError, TensorShapeDynamism, UsageError
from exirkit.runtime_ref.backends import results_of_delegate, run_delegate
from exirkit.runtime_ref.checks.calls import PlanFacts, operator_name
from exirkit.runtime_ref.kernels.kernel import Kernel, KernelKind
from exirkit.runtime_ref.limits import Limits
from exirkit.runtime_ref.tracing import Tracer

from .shape_inference import Shapes, empty_outs
from .substitution import Substitution
from .values import Arenas, Arguments, Environment, Heap, StepFailure, TensorCell, bind_arguments, make_values


def bind_inputs(plan: ExecutionPlan, values: list[Any], inputs: Sequence[Any]) -> None:
    """Hand the inputs of one run to the value table.

    A tensor with a planned place is copied there. One without is shown as it is, if it lies in memory as the
    program declares, and otherwise as a copy. Numbers, texts and None were constants when the program was made:
    they have to be the same again.

    Raises:
        UsageError: EK640 to EK645, all that is wrong with these inputs.
    """
    _check_inputs(plan, values, inputs)
    for index, given in zip(plan.inputs, inputs, strict=True):
        cell = values[index]
        if isinstance(cell, TensorCell):
            _hand_over(cell, given.detach(), planned=_declared(plan, index).allocation_info is not None)


def set_numbers(plan: ExecutionPlan, values: list[Any], inputs: Sequence[Any]) -> None:
    """Let numbers take the place of those of the same kind with which the program was made.

    Only a delegate is called with numbers that vary, such as sizes that are known when the program runs.
    """
    for index, given in zip(plan.inputs, inputs, strict=False):
        if type(given) is type(values[index]) and isinstance(given, int | float):
            values[index] = given


def release_inputs(plan: ExecutionPlan, values: list[Any]) -> None:
    """Let go of the tensors of the caller."""
    for index in plan.inputs:
        if isinstance(values[index], TensorCell):
            values[index].free()


def _declared(plan: ExecutionPlan, index: int) -> Tensor:
    value = plan.values[index].val
    assert isinstance(value, Tensor)
    return value


def _hand_over(cell: TensorCell, given: torch.Tensor, *, planned: bool) -> None:
    if not planned and cell.dense_like_declared(given):
        cell.current = given
        return
    cell.resize(given.shape).copy_(given)


def _check_inputs(plan: ExecutionPlan, values: list[Any], inputs: object) -> None:
    if not isinstance(inputs, Sequence):
        message = f"inputs are given as one {type(inputs).__name__}"
        raise UsageError(
            _finding(plan, None, "EK641", message, "a sequence with one entry per input", hint="pass [x], not x")
        )
    if len(inputs) != len(plan.inputs):
        message = f"{plan.name} was given {len(inputs)} inputs"
        raise UsageError(_finding(plan, None, "EK640", message, f"{len(plan.inputs)} inputs"))
    wrong = [
        found
        for position, (index, given) in enumerate(zip(plan.inputs, inputs, strict=True))
        if (found := _check_input(plan, values[index], position, index, given)) is not None
    ]
    if wrong:
        raise UsageError(wrong)


def _check_input(plan: ExecutionPlan, entry: Any, position: int, index: int, given: Any) -> Diagnostic | None:
    if isinstance(entry, TensorCell):
        return _check_tensor(plan, position, index, given)
    # True == 1 == 1.0 in Python, but they are three kinds of values in a program.
    if type(given) is not type(entry):
        message = f"input {position} is a {type(given).__name__}"
        return _finding(plan, position, "EK641", message, type(entry).__name__)
    if given != entry:
        message = f"input {position} is {given!r}, but the program was made for another value"
        return _finding(plan, position, "EK645", message, repr(entry))
    return None


def _check_tensor(plan: ExecutionPlan, position: int, index: int, given: Any) -> Diagnostic | None:
    declared = _declared(plan, index)
    dtype, sizes = declared.scalar_type.dtype, declared.sizes
    if not isinstance(given, torch.Tensor) or given.device.type != "cpu" or given.layout != torch.strided:
        found = f"a tensor on {given.device}" if isinstance(given, torch.Tensor) else f"a {type(given).__name__}"
        return _finding(plan, position, "EK641", f"input {position} is {found}", "a dense tensor on the CPU")
    if given.dtype != dtype:
        hint = f"convert it with .to({dtype})"
        return _finding(plan, position, "EK642", f"input {position} has dtype {given.dtype}", str(dtype), hint=hint)
    shape = list(given.shape)
    if declared.shape_dynamism is TensorShapeDynamism.STATIC:
        if shape != sizes:
            return _finding(plan, position, "EK643", f"input {position} has shape {shape}", f"shape {sizes}")
    elif len(shape) != len(sizes):
        expected = f"{len(sizes)} dimensions, at most {sizes}"
        return _finding(plan, position, "EK643", f"input {position} has shape {shape}", expected)
    elif declared.shape_dynamism is TensorShapeDynamism.DYNAMIC_BOUND and prod(shape) > prod(sizes):
        message = f"input {position}, value {index}, has shape {shape}, beyond its bound {sizes}"
        return _finding(plan, position, "EK644", message, f"at most {prod(sizes)} elements")
    return None


def _finding(
    plan: ExecutionPlan,
    position: int | None,
    code: str,
    message: str,
    expected: str,
    *,
    hint: str | None = None,
) -> Diagnostic:
    node = None if position is None else f"input {position}"
    return Diagnostic(
        code=code,
        message=message,
        location=Location(method=plan.name, node=node),
        expected=expected,
        hint=hint,
    )


# Runs one instruction; returns the number of the next one within its chain, or None for the one that follows.
Step = Callable[[], int | None]

_MAX_KNOWN_SHAPES = 64


def make_step(environment: Environment, instruction: Instruction) -> Step:
    """Return what runs an instruction of a checked plan whose kernels all exist."""
    step = instruction.instr_args
    values = environment.values
    if isinstance(step, KernelCall):
        kernel = environment.facts.kernels[step.op_index]
        assert kernel is not None, "load_method reports unknown kernels first"
        return _kernel_step(environment, kernel, step.args)
    if isinstance(step, MoveCall):
        return partial(_move, values, step.move_from, step.move_to)
    if isinstance(step, JumpFalseCall):
        return partial(_jump_if_false, values, step.cond_value_index, step.destination_instruction)
    if isinstance(step, DelegateCall):
        return _delegate_step(environment, step)
    return partial(_free, values, step.value_index)


def _delegate_step(environment: Environment, step: DelegateCall) -> Step:
    loaded = environment.facts.delegates[step.delegate_index]
    results = results_of_delegate(environment.plan, loaded, step.args)
    inputs = step.args[: len(step.args) - len(results)]
    backend = environment.plan.delegates[step.delegate_index].id
    return partial(run_delegate, loaded, backend, environment.values, inputs, results)


def _kernel_step(environment: Environment, kernel: Kernel, args: Sequence[int]) -> Step:
    if kernel.kind is KernelKind.OUT:
        return OutStep(environment, kernel, args)
    arguments = bind_arguments(environment, kernel, args, cells=kernel.kind is KernelKind.MEMORY)
    results = args[len(kernel.slots) :]
    if kernel.kind is KernelKind.MEMORY:
        return partial(_run, kernel.call, arguments)
    if kernel.kind is KernelKind.IN_PLACE:
        return partial(_run_in_place, kernel.call, arguments, environment.values, args[0], results)
    if kernel.returns_tensor:
        return partial(_run_for_tensors, kernel, arguments, environment, results[0])
    return partial(_run_for_number, kernel, arguments, environment.values, results[0])


def _run(call: Callable[..., Any], arguments: Arguments) -> None:
    positional, keywords, _ = arguments.gather()
    call(*positional, **keywords)


def _run_in_place(
    call: Callable[..., Any], arguments: Arguments, values: list[Any], changed: int, results: Sequence[int]
) -> None:
    _run(call, arguments)
    for result in results:
        values[result] = values[changed]


def _run_for_number(kernel: Kernel, arguments: Arguments, values: list[Any], result: int) -> None:
    positional, keywords, _ = arguments.gather()
    number = kernel.call(*positional, **keywords)
    if not isinstance(number, int | float):
        raise StepFailure("EK653", f"{kernel.name} gives {type(number).__name__}, not a number", value=result)
    values[result] = number


def _run_for_tensors(kernel: Kernel, arguments: Arguments, environment: Environment, result: int) -> None:
    positional, keywords, _ = arguments.gather()
    found = kernel.call(*positional, **keywords)
    listed = environment.plan.values[result].val
    targets = listed.items if isinstance(listed, TensorList) else [result]
    for target, tensor in zip(targets, found if kernel.returns > 1 else [found], strict=True):
        _store(environment.values[target], tensor)


def _store(cell: TensorCell, result: torch.Tensor) -> None:
    if result.dtype != cell.dtype:
        raise StepFailure(
            "EK653", f"the result has {result.dtype}, value {cell.index} has {cell.dtype}", value=cell.index
        )
    cell.resize(result.shape).copy_(result)


def _move(values: list[Any], source: int, target: int) -> None:
    values[target] = values[source]


def _free(values: list[Any], index: int) -> None:
    values[index].free()


def _jump_if_false(values: list[Any], condition: int, destination: int) -> int | None:
    truth = values[condition]
    if isinstance(truth, TensorCell):
        truth = _truth_of(truth.tensor(), condition)
    return None if truth else destination


def _truth_of(tensor: torch.Tensor, index: int) -> bool:
    if tensor.dtype != torch.bool:
        raise StepFailure("EK654", f"the condition is a tensor of {tensor.dtype}", value=index, expected="torch.bool")
    return bool(tensor.all())


class OutStep:
    """A call of a kernel that writes into given tensors.

    The shapes of the results are found first, by running the kernel on tensors without data, so that torch never
    resizes a tensor that lives in an arena. Where only a real run can tell the shapes, results are computed into
    new memory and copied. A call whose arguments never change is checked once and then bound for good.
    """

    def __init__(self, environment: Environment, kernel: Kernel, args: Sequence[int]) -> None:
        self._kernel = kernel
        self._call = kernel.call
        self._shape_inference = environment.shape_inference
        self._values = environment.values
        self._arguments = bind_arguments(environment, kernel, args)
        self._outs = {kernel.slots[place].name: _out_indices(environment, args[place]) for place in kernel.outs}
        indices = [index for out in self._outs.values() for index in (out if isinstance(out, list) else [out])]
        self._settles = self._arguments.is_fixed and all(environment.keeps(index) for index in indices)
        self._settled: Callable[[], Any] | None = None
        self._known: dict[tuple[Any, ...], Shapes] = {}
        self._infers = True

    def __call__(self) -> None:
        """Run the kernel once."""
        if self._settled is not None:
            self._settled()
            return
        positional, keywords, key = self._arguments.gather()
        shapes = self._shapes(positional, keywords, key)
        if shapes is None:
            self._run_apart(positional, keywords)
            return
        outs = {name: self._resized(out, shapes[name]) for name, out in self._outs.items()}
        self._call(*positional, **keywords, **outs)
        if self._settles:
            self._settled = partial(self._call, *positional, **keywords, **outs)

    def _shapes(self, positional: list[Any], keywords: dict[str, Any], key: tuple[Any, ...]) -> Shapes | None:
        shapes = self._known.get(key)
        if shapes is None and self._infers:
            shapes = self._shape_inference.infer(self._kernel, positional, keywords, self._dtypes())
            if shapes is not None and self._fit(shapes):
                if len(self._known) >= _MAX_KNOWN_SHAPES:
                    self._known.clear()
                self._known[key] = shapes
                return shapes
            return None
        return shapes

    def _fit(self, shapes: Shapes) -> bool:
        """Return whether the outs may take on these shapes.

        Kernels without data are now and then wrong about the shape of an unused result, so a mismatch is not an
        error yet: the real kernel decides.
        """
        try:
            for name, out in self._outs.items():
                for index, shape in zip(*_paired(out, shapes[name]), strict=True):
                    self._values[index].check_shape(shape)
        except StepFailure:
            return False
        return True

    def _run_apart(self, positional: list[Any], keywords: dict[str, Any]) -> None:
        """Compute into new memory, then copy: nothing tells the shapes in advance."""
        results = empty_outs(self._dtypes())
        self._call(*positional, **keywords, **results)
        # The arguments were right, so asking for shapes again would fail again.
        self._infers = False
        for name, out in self._outs.items():
            for index, result in zip(*_paired(out, results[name]), strict=True):
                _store(self._values[index], result)

    def _dtypes(self) -> dict[str, Any]:
        values = self._values
        return {
            name: [values[index].dtype for index in out] if isinstance(out, list) else values[out].dtype
            for name, out in self._outs.items()
        }

    def _resized(self, out: int | list[int], shape: Any) -> Any:
        values = self._values
        if isinstance(out, list):
            return [values[index].resize(one) for index, one in zip(out, shape, strict=True)]
        return values[out].resize(shape)


def _paired(out: int | list[int], result: Any) -> tuple[list[int], list[Any]]:
    return (out, result) if isinstance(out, list) else ([out], [result])


def _out_indices(environment: Environment, index: int) -> int | list[int]:
    value = environment.plan.values[index].val
    if isinstance(value, Tensor):
        return index
    assert isinstance(value, TensorList)
    return list(value.items)


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

    def run(
        self,
        inputs: Sequence[Any],
        *,
        numbers_vary: bool = False,
        substitution: Substitution | None = None,
        tracer: Tracer | None = None,
    ) -> list[Any]:
        """Run the method once and return copies of its outputs.

        Args:
            inputs: One entry per input.
            numbers_vary: Whether numbers may be others than those with which the program was made.
            substitution: Values that take the place of computed ones.
            tracer: Records the run.

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
                chains = self._chains
                if substitution is not None:
                    chains = substitution.wrapped(self.plan, self._environment.facts, self._values, chains)
                run = None if tracer is None else tracer.begin(self.plan.name)
                if tracer is not None and run is not None:
                    chains = tracer.wrapped(run, self.plan, partial(_shown, self.plan, self._values), chains)
                for number, steps in enumerate(chains):
                    self._run_chain(number, steps)
                shown = [self._output(position, index) for position, index in enumerate(self.plan.outputs)]
                if tracer is not None and run is not None:
                    tracer.end(run, shown)
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

"""Steps: instructions turned into callables that need no look-ups when they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from exirkit.emit import (
    DelegateCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Tensor,
    TensorList,
)
from exirkit.runtime_ref.backends import results_of_delegate, run_delegate
from exirkit.runtime_ref.kernels.kernel import Kernel, KernelKind

from .arguments import Arguments, Environment, bind_arguments
from .cells import StepFailure, TensorCell
from .shape_inference import Shapes, empty_outs

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

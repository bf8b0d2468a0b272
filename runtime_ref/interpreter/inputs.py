"""Inputs of a method: checked against what the program declares, then copied into planned memory or shown in place."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from exirkit.emit import ExecutionPlan, Tensor
from exirkit.ir import Diagnostic, Location, TensorShapeDynamism, UsageError

from .cells import TensorCell


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

"""What eager torch makes of a program, call by call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.fuzz.programs import Argument, Call, Program, Ref, Size, inputs_of, stored_tensor
from exirkit.fuzz.programs.sizes import size_value


@dataclass(frozen=True)
class EagerResult:
    """What one run gave.

    Attributes:
        outputs: What the method returned.
        state: What buffers and inputs that the method writes to hold afterwards, by name.
        values: All values, by name, if asked for.
    """

    outputs: list[Any]
    state: Mapping[str, torch.Tensor]
    values: Mapping[str, Any]


def run_eagerly(program: Program, *, is_double: bool = False, keeps_values: bool = False) -> list[EagerResult]:
    """Run the runs of a program, one after another."""
    stored = {one.name: _double(stored_tensor(program, one.name), is_double) for one in program.stored}
    methods = {method.name: method for method in program.methods}
    results = []
    with torch.no_grad():
        for run in program.runs:
            method = methods[run.method]
            given = [_double(one, is_double) for one in inputs_of(program, run)]
            values: dict[str, Any] = {**run.sizes, **stored}
            values |= {one.name: each for one, each in zip(method.inputs, given, strict=True)}
            for call in method.steps:
                _run_call(call, values, is_double)
            outputs = [_value(one, values) for one in method.outputs]
            outputs = [one.clone() if isinstance(one, torch.Tensor) else one for one in outputs]
            state = {name: values[ref.name].clone() for name, ref in method.updates}
            stored |= {name: tensor for name, tensor in state.items() if name in stored}
            results.append(EagerResult(outputs, state, values if keeps_values else {}))
    return results


def _run_call(call: Call, values: dict[str, Any], is_double: bool) -> None:
    namespace, name, overload = call.op.split(".")
    op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    result = op(
        *(_argument(one, values, is_double) for one in call.args),
        **{key: _argument(one, values, is_double) for key, one in call.kwargs},
    )
    made = result if isinstance(result, list | tuple) else [result]
    values.update((target, one) for target, one in zip(call.results, made, strict=False) if target is not None)


def _argument(one: Argument, values: Mapping[str, Any], is_double: bool) -> Any:
    made = _value(one, values)
    is_narrow = isinstance(made, torch.dtype) and made.is_floating_point
    return torch.float64 if is_double and is_narrow else made


def _value(one: Argument, values: Mapping[str, Any]) -> Any:
    if isinstance(one, Ref):
        return values[one.name]
    if isinstance(one, Size):
        return size_value(one.text, values)
    if isinstance(one, tuple):
        return [_value(each, values) for each in one]
    return one


def _double(tensor: torch.Tensor, is_double: bool) -> torch.Tensor:
    return tensor.double() if is_double and tensor.is_floating_point() else tensor

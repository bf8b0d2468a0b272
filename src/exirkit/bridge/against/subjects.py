"""Programs that passes and rules are compared on: generated ones, and real models."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import torch
from torch.export import ExportedProgram

from exirkit.fuzz import (
    Call,
    Examination,
    ExirkitCompiler,
    Failure,
    GraphResult,
    Program,
    ResultComparison,
    Tolerances,
    check_program,
    expectations_of,
    gap_of,
    load_object,
    results_of,
)
from exirkit.ir import Diagnostic, ModelError, UsageError, operator_name, operator_named, pytree, view_of_copy

Inputs: TypeAlias = Mapping[str, Sequence[Sequence[Any]]]
"""Flat inputs of every run, by method."""


class Subject(Protocol):
    """A program to compare on.

    Attributes:
        exported: Exported programs by method.
        inputs: What they are run on.
    """

    @property
    def exported(self) -> Mapping[str, ExportedProgram]:
        """Exported programs by method."""

    @property
    def inputs(self) -> Inputs:
        """What they are run on."""

    def failures(self, stage: str, method: str, results: Sequence[GraphResult]) -> Iterator[Failure]:
        """Yield in what results of a method are not those of eager PyTorch."""


class GeneratedSubject:
    """A generated program; its results are compared within the error that float64 says can be asked.

    Args:
        program: The program.
    """

    def __init__(self, program: Program) -> None:
        self._examination = Examination(program, ExirkitCompiler())
        # Passes make other operators of operators, so that last bits are free.
        self._expectations = expectations_of(program, is_exact=False)

    @property
    def exported(self) -> Mapping[str, ExportedProgram]:
        """Exported programs by method."""
        return self._examination.exported

    @property
    def inputs(self) -> Inputs:
        """What they are run on."""
        return self._examination.inputs

    def failures(self, stage: str, method: str, results: Sequence[GraphResult]) -> Iterator[Failure]:
        """Yield in what results of a method are not those of eager PyTorch."""
        comparison = ResultComparison(self._examination, stage, stage, is_signed_zero_free=True)
        for index, one in enumerate(results):
            state = {**one.state, **one.inputs}
            yield from comparison.failures(method, index, one.outputs, state, self._expectations[method])


def as_exported(program: Program) -> Program:
    """Return a program with the calls that exporters return, which passes before quantising look for.

    Copies of views are views, convolutions and batch norms the operators that models call, and last arguments that are
    defaults are left out. Rules match these forms as well as those that they are written in. The program is returned as
    it is where that would be wrong.
    """
    methods = tuple(
        replace(one, steps=tuple(_call_as_exported(_as_layer(each)) for each in one.steps)) for one in program.methods
    )
    made = replace(program, methods=methods)
    try:
        check_program(made)
    except ModelError:
        return program
    return made


def _as_layer(call: Call) -> Call:
    """Return a convolution or a batch norm as models call it; any other call as it is."""
    if call.op == "aten.convolution.default" and len(call.args) == 9 and call.args[6] is False:
        x, weight, bias, stride, padding, dilation, _, _, groups = call.args
        name = f"aten.conv{len(stride)}d.default" if isinstance(stride, list | tuple) else call.op
        return replace(call, op=name, args=(x, weight, bias, stride, padding, dilation, groups))
    is_norm = call.op == "aten._native_batch_norm_legit_no_training.default" and len(call.args) == 7
    if is_norm and call.results[1:] == (None, None):
        *tensors, momentum, eps = call.args
        op, args = "aten.batch_norm.default", (*tensors, False, momentum, eps, False)
        return replace(call, op=op, args=args, results=call.results[:1])
    return call


def _call_as_exported(call: Call) -> Call:
    if not call.op.startswith("aten."):
        return call
    op: Any = operator_named(call.op)
    args = list(call.args)
    for argument in reversed(op._schema.arguments[: len(args)]):
        default = argument.default_value if argument.has_default_value() else ()
        if type(args[-1]) is not type(default) or args[-1] != default:
            break
        args.pop()
    view = view_of_copy(op)
    return replace(call, op=call.op if view is None else operator_name(view), args=tuple(args))


class RealSubject:
    """A model, compared within the tolerances of its dtypes.

    Args:
        programs: Exported programs with example inputs, by method.
    """

    def __init__(self, programs: Mapping[str, ExportedProgram]) -> None:
        self._programs = programs

    @property
    def exported(self) -> Mapping[str, ExportedProgram]:
        """Exported programs by method."""
        return self._programs

    @property
    def inputs(self) -> Inputs:
        """What they are run on: the example inputs."""
        return {name: [pytree.tree_leaves(one.example_inputs)] for name, one in self._programs.items()}

    @cached_property
    def _expected(self) -> Mapping[str, Sequence[GraphResult]]:
        return {name: results_of(one, self.inputs[name]) for name, one in self._programs.items()}

    def failures(self, stage: str, method: str, results: Sequence[GraphResult]) -> Iterator[Failure]:
        """Yield in what results of a method are not those of the exported program."""
        for got, expected in zip(results, self._expected[method], strict=True):
            gap = gap_of(list(got.outputs), list(expected.outputs), Tolerances())
            if gap.is_bad:
                yield Failure(stage, f"output {gap.kind}", f"{stage}: {method}: {gap.text}", stage)


def real_programs(name: str) -> dict[str, ExportedProgram]:
    """Return the exported programs of models, by what they are called.

    Args:
        name: `MODULE:FUNCTION`, which takes nothing and returns a model and its inputs, an exported program, or a dict
            of these.

    Raises:
        ModelError: EK863, there is no such function.
        UsageError: EK767, it returns something else, or torch.export does not take the model.
    """
    found = load_object(name)
    made = found() if callable(found) else found
    named = made if isinstance(made, Mapping) else {name.rpartition(":")[2]: made}
    return {str(key): _exported(name, str(key), one) for key, one in named.items()}


def _exported(source: str, name: str, made: Any) -> ExportedProgram:
    if isinstance(made, ExportedProgram) and made.example_inputs is not None:
        return made
    if not isinstance(made, tuple) or len(made) < 2 or not isinstance(made[0], torch.nn.Module):
        raise _rejected(f"{source} gives for {name} a {type(made).__name__}")
    model, inputs = made[0], tuple(made[1])
    try:
        with torch.no_grad():
            return torch.export.export(
                copy.copy(model).eval(), inputs, dynamic_shapes=made[2] if len(made) > 2 else None, strict=False
            )
    except Exception as error:
        first = str(error).strip().splitlines() or [""]
        raise _rejected(f"torch.export does not take {name} of {source}: {type(error).__name__}: {first[0]}") from error


def _rejected(message: str) -> UsageError:
    return UsageError(
        Diagnostic(
            code="EK767",
            message=message,
            expected="(model, inputs), an exported program with example inputs, or a dict of these by name",
        )
    )

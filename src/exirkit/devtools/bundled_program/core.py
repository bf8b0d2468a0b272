"""A program and its test cases, checked against each other before they are written."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from exirkit.emit import (
    Bool,
    BundledMethodTestCase,
    BundledMethodTestSuite,
    BundledProgramTable,
    BundledTensor,
    BundledValue,
    Double,
    ExecutionPlan,
    Int,
    Tensor,
    open_program,
    read_program,
)
from exirkit.ir import Diagnostic, Location, TensorShapeDynamism, UsageError

from .config import ConfigValue, MethodTestCase, MethodTestSuite

_NUMBERS: dict[type, type[Int] | type[Bool] | type[Double]] = {int: Int, bool: Bool, float: Double}
_FIELDS: dict[type, str] = {Int: "int_val", Bool: "bool_val", Double: "double_val"}


class BundledProgram:
    """A program with test cases of its methods.

    Args:
        executorch_program: What `to_executorch` returned, of exirkit or of the official package: anything whose
            `buffer` is the bytes of a program file.
        method_test_suites: The test cases, at most one suite for each method.
        pte_file_path: A program file, in place of `executorch_program`.

    Attributes:
        executorch_program: As given.
        method_test_suites: The suites in the order of the names of their methods.

    Raises:
        UsageError: EK709, not exactly one of program and path, or a suite of a method that there is not; EK710, a case
            does not fit its method.
        ProgramFormatError: The program is not one.
        OSError: The file cannot be read.
    """

    def __init__(
        self,
        executorch_program: Any = None,
        method_test_suites: Sequence[MethodTestSuite] = (),
        pte_file_path: str | PathLike[str] | None = None,
    ) -> None:
        self.executorch_program = executorch_program
        self.method_test_suites = sorted(method_test_suites, key=lambda suite: suite.method_name)
        self._data = _program_bytes(executorch_program, pte_file_path)
        self._schema: BundledProgramTable | None = None
        program = (read_program(self._data) if pte_file_path is None else open_program(pte_file_path)).program
        self._plans = {plan.name: plan for plan in program.execution_plan}
        _check_methods(self.method_test_suites, self._plans)
        findings = [
            found
            for suite in self.method_test_suites
            for index, case in enumerate(suite.test_cases)
            for found in _misfits(self._plans[suite.method_name], index, case)
        ]
        if findings:
            raise UsageError(findings)

    def serialize_to_schema(self) -> BundledProgramTable:
        """Return the tables of the file; tensors are stored in the dim order that the program declares for them."""
        if self._schema is None:
            suites = [
                BundledMethodTestSuite(
                    method_name=suite.method_name,
                    test_cases=[_stored_case(self._plans[suite.method_name], case) for case in suite.test_cases],
                )
                for suite in self.method_test_suites
            ]
            self._schema = BundledProgramTable(method_test_suites=suites, program=self._data)
        return self._schema


def _program_bytes(program: Any, path: str | PathLike[str] | None) -> bytes:
    if (program is None) == (path is None):
        given = "neither a program nor a path" if path is None else "a program and a path"
        raise UsageError(Diagnostic.of("EK709", f"{given} was given"))
    if path is not None:
        return Path(path).read_bytes()
    data = program if isinstance(program, bytes | bytearray | memoryview) else getattr(program, "buffer", None)
    if data is None:
        raise UsageError(Diagnostic.of("EK709", f"the program is of type {type(program).__name__}"))
    return bytes(data)


def _check_methods(suites: Sequence[MethodTestSuite], plans: dict[str, ExecutionPlan]) -> None:
    seen = set()
    for suite in suites:
        if suite.method_name not in plans:
            message = f"there is a test suite of {suite.method_name}, which is not a method of the program"
            raise UsageError(Diagnostic.of("EK709", message, notes=(f"methods: {', '.join(sorted(plans))}",)))
        if suite.method_name in seen:
            message = f"there are two test suites of {suite.method_name}"
            raise UsageError(Diagnostic.of("EK709", message, hint="put all cases of a method into one suite"))
        seen.add(suite.method_name)


def _misfits(plan: ExecutionPlan, index: int, case: MethodTestCase) -> list[Diagnostic]:
    """Return what of a test case does not fit the method."""
    found: list[str] = []
    for what, indices, values in (
        ("input", plan.inputs, case.inputs),
        ("expected output", plan.outputs, case.expected_outputs),
    ):
        if what == "expected output" and not values:
            continue
        if len(values) != len(indices):
            found.append(f"it has {len(values)} {what}s, and the method {len(indices)}")
            continue
        for place, (at, value) in enumerate(zip(indices, values, strict=True)):
            declared = plan.values[at].val
            is_output = what == "expected output"
            text = _misfit(declared, value, numbers=not is_output)
            if text is not None:
                found.append(f"{what} {place} is {text}")
    where = Location(method=plan.name, node=f"test case {index}")
    return [Diagnostic.of("EK710", f"a test case does not fit its method: {text}", location=where) for text in found]


def _misfit(declared: object, value: ConfigValue, *, numbers: bool) -> str | None:
    """Return how a value differs from what is declared, or None."""
    if isinstance(value, torch.Tensor):
        return _tensor_misfit(declared, value)
    kind = _NUMBERS.get(type(value))
    if numbers and kind is not None and isinstance(declared, kind):
        own = getattr(declared, _FIELDS[kind])
        return None if own == value else f"{value!r}, but the program was made for {own!r}"
    expected = "a tensor" if isinstance(declared, Tensor) else f"of kind {type(declared).__name__}"
    if not numbers and not isinstance(declared, Tensor):
        return f"{value!r}; only tensors can be compared, and the method returns something {expected}"
    return f"{value!r} of type {type(value).__name__}, not {expected}"


def _tensor_misfit(declared: object, value: torch.Tensor) -> str | None:
    if not isinstance(declared, Tensor):
        return f"a tensor, not of kind {type(declared).__name__}"
    if value.dtype != declared.scalar_type.dtype:
        return f"of dtype {value.dtype}, not {declared.scalar_type.dtype}"
    shape, sizes = list(value.shape), declared.sizes
    if declared.shape_dynamism is TensorShapeDynamism.STATIC:
        return None if shape == sizes else f"of shape {shape}, not {sizes}"
    if len(shape) != len(sizes):
        return f"of shape {shape}, which does not have {len(sizes)} dimensions"
    is_bound = declared.shape_dynamism is TensorShapeDynamism.DYNAMIC_BOUND
    return f"of shape {shape}, beyond its bound {sizes}" if is_bound and prod(shape) > prod(sizes) else None


def _stored_case(plan: ExecutionPlan, case: MethodTestCase) -> BundledMethodTestCase:
    return BundledMethodTestCase(
        inputs=_stored(plan, plan.inputs, case.inputs),
        expected_outputs=_stored(plan, plan.outputs, case.expected_outputs),
    )


def _stored(plan: ExecutionPlan, indices: Sequence[int], values: Sequence[ConfigValue]) -> list[BundledValue]:
    return [_stored_value(plan.values[at].val, value) for at, value in zip(indices, values, strict=False)]


def _stored_value(declared: object, value: ConfigValue) -> BundledValue:
    if isinstance(value, torch.Tensor):
        # The official runtime takes the bytes of an input as they are, and ends the process if an output has others.
        assert isinstance(declared, Tensor), "test cases were checked"
        return BundledValue(val=BundledTensor.of(value, list(declared.dim_order)))
    kind = _NUMBERS[type(value)]
    return BundledValue(val=kind.model_validate({_FIELDS[kind]: value}))

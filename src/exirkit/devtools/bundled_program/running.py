"""Test cases of a bundled program on the reference runtime, each on a method that was just loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import torch

from exirkit.emit import (
    BundledMethodTestCase,
    BundledProgramTable,
    BundledTensor,
    BundledValue,
    PteFile,
    open_bundled_program,
    read_bundled_program,
    read_program,
)
from exirkit.ir import Diagnostic, Location, UsageError
from exirkit.runtime_ref import Runtime

RTOL = 1e-5
ATOL = 1e-8
# Other dtypes, bfloat16 among them, are compared bit by bit, as the official runtime does.
_WITH_TOLERANCE = (torch.float16, torch.float32, torch.float64)


@dataclass(frozen=True)
class CaseResult:
    """How a test case ended.

    Attributes:
        method: Name of the method.
        index: Index of the case.
        outputs: What the method returned.
        is_compared: Whether the case has expected outputs.
        differences: One finding for each output that is not as expected (EK728).
    """

    method: str
    index: int
    outputs: Sequence[Any]
    is_compared: bool
    differences: Sequence[Diagnostic] = field(default_factory=tuple)

    @property
    def ok(self) -> bool:
        """Whether no output differs from what is expected."""
        return not self.differences


class Bundle:
    """A bundled program that was read: its program, and its test cases to run.

    Attributes:
        table: The tables of the file.
        file: The program in it.
    """

    def __init__(self, table: BundledProgramTable) -> None:
        self.table = table
        self.file: PteFile = read_program(memoryview(table.program))
        # The first of several suites of one method counts, as in the official runtime.
        self._suites = {suite.method_name: suite for suite in reversed(table.method_test_suites)}

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Bundle:
        """Map a file into memory.

        Raises:
            ProgramFormatError: The file, or the program in it, is damaged.
            OSError: The file cannot be opened.
        """
        return cls(open_bundled_program(path))

    @classmethod
    def read(cls, data: bytes) -> Bundle:
        """Read a file that is in memory (raises ProgramFormatError)."""
        return cls(read_bundled_program(data))

    @property
    def cases(self) -> list[tuple[str, int]]:
        """Method and index of every test case."""
        suites = sorted(self._suites.items())
        return [(name, index) for name, suite in suites for index in range(len(suite.test_cases))]

    def inputs(self, method: str, index: int) -> list[Any]:
        """Return the inputs of a test case (raises EK720 if there is none)."""
        return [_value(one) for one in self._case(method, index).inputs]

    def expected_outputs(self, method: str, index: int) -> list[Any]:
        """Return the expected outputs of a test case, none if it has none (raises EK720 if there is no such case)."""
        return [_value(one) for one in self._case(method, index).expected_outputs]

    def run(
        self, method: str, index: int, *, rtol: float = RTOL, atol: float = ATOL, data_path: Any = None
    ) -> CaseResult:
        """Run a test case on the reference runtime and compare its outputs.

        The method is loaded for this run, so that what earlier cases left in its buffers does not count.

        Args:
            method: Name of the method.
            index: Index of the case.
            rtol: Relative tolerance, for float16, float32 and float64.
            atol: Absolute tolerance, for these.
            data_path: Data files of the program, as for `Runtime.load_program`.

        Raises:
            UsageError: EK720, there is no such case; EK640 to EK645, its inputs do not fit the method.
            ModelError: The program is wrong, or an instruction fails.
        """
        inputs, expected = self.inputs(method, index), self.expected_outputs(method, index)
        outputs = Runtime.get().load_program(self.file, data_path=data_path).load_method(method).execute(inputs)
        where = Location(method=method, node=f"test case {index}")
        found = compared_outputs(outputs, expected, where, rtol=rtol, atol=atol) if expected else []
        return CaseResult(method, index, outputs, bool(expected), found)

    def _case(self, method: str, index: int) -> BundledMethodTestCase:
        suite = self._suites.get(method)
        count = len(suite.test_cases) if suite is not None else 0
        if suite is None or not 0 <= index < count:
            known = ", ".join(f"{name} has {len(one.test_cases)}" for name, one in sorted(self._suites.items()))
            message = f"the bundled program has no test case {index} of {method}"
            raise UsageError(Diagnostic.of("EK720", message, notes=(f"test cases: {known or 'none'}",)))
        return suite.test_cases[index]


def _value(stored: BundledValue) -> Any:
    if isinstance(stored.val, BundledTensor):
        return stored.val.tensor()
    (number,) = stored.val.model_dump().values()
    return number


def compared_outputs(
    outputs: Sequence[Any], expected: Sequence[Any], where: Location, *, rtol: float = RTOL, atol: float = ATOL
) -> list[Diagnostic]:
    """Return a finding (EK728) for each output that differs from what is expected of it.

    Args:
        outputs: What a method returned.
        expected: What it should have returned.
        where: The test case.
        rtol: Relative tolerance, for float16, float32 and float64; other dtypes must agree bit by bit.
        atol: Absolute tolerance, for these.
    """
    if len(outputs) != len(expected):
        message = f"there are {len(outputs)} outputs, and {len(expected)} are expected"
        return [Diagnostic.of("EK728", message, location=where)]
    found = []
    for index, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        text = _difference(output, wanted, rtol, atol)
        if text is not None:
            found.append(Diagnostic.of("EK728", f"output {index} {text}", location=where))
    return found


def _difference(output: Any, wanted: Any, rtol: float, atol: float) -> str | None:
    if not isinstance(output, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        same = type(output) is type(wanted) and output == wanted
        return None if same else f"is {output!r}, and {wanted!r} is expected"
    if (output.dtype, output.shape) != (wanted.dtype, wanted.shape):
        return f"is {output.dtype} {list(output.shape)}, and {wanted.dtype} {list(wanted.shape)} is expected"
    if output.dtype in _WITH_TOLERANCE:
        near = torch.isclose(output.double(), wanted.double(), rtol=rtol, atol=atol, equal_nan=True)
    else:
        near = _bits(output) == _bits(wanted)
    if bool(near.all()):
        return None
    count = int((~near).sum())
    place = [int(one) for one in (~near).nonzero()[0]]
    one, other = output[tuple(place)].item(), wanted[tuple(place)].item()
    return f"differs in {count} of {near.numel()} elements: {one!r} at {place}, and {other!r} is expected"


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    same_width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(same_width[tensor.itemsize])

"""Bundled programs (`.bpte`): a program with inputs to run it on and the outputs that are expected then.

The whole is one flatbuffer; the program lies in it as in a file of its own, aligned so that it can be run in place.

Source: the bundled program schema of ExecuTorch, file identifier `BP08`, version 2.
"""

from __future__ import annotations

from os import PathLike
from typing import Annotated, ClassVar, Final, Union

import torch
from pydantic import Discriminator, Field, Tag

from exirkit.ir import Diagnostic, ModelError, UsageError

from .file_kinds import FileKind, file_kind, not_of_kind
from .flatbuffer import Blob, Fault, Int32, Table, UInt8, UInt32, UnionTable, decode, encode, member_name
from .schema import FORCE_ALIGN_BYTES, Bool, Double, Int, ProgramFormatError, ScalarType
from .segments import (
    FileImage,
    TensorLayout,
    broken,
    bytes_view,
    check_layout,
    in_file,
    malformed,
    map_file,
    stored_tensor,
)
from .values import contents

_IDENTIFIER: Final = b"BP08"
# The identifier tells layouts apart; the number counts releases of the same one.
_VERSION: Final = 2
_PROGRAM_ALIGNMENT: Final = 32
_PREFIX_NBYTES: Final = 8
_WHAT: Final = "bundled program"


class BundledTensor(Table):
    """A tensor with its elements, which lie dense in `dim_order`."""

    scalar_type: ScalarType
    sizes: list[Int32] = Field(default_factory=list)
    data: Blob = b""
    dim_order: list[UInt8] = Field(default_factory=list)

    @classmethod
    def of(cls, tensor: torch.Tensor, dim_order: list[int]) -> BundledTensor:
        """Return a tensor of any strides as it is stored; the data is a view where it lies in this order already.

        Raises:
            ModelError: EK501, the format has no such element type.
        """
        return cls(
            scalar_type=ScalarType.from_dtype(tensor.dtype),
            sizes=list(tensor.shape),
            data=contents(tensor, dim_order),
            dim_order=dim_order,
        )

    @property
    def layout(self) -> TensorLayout:
        """How the elements lie."""
        return TensorLayout(scalar_type=self.scalar_type, sizes=self.sizes, dim_order=self.dim_order)

    def tensor(self) -> torch.Tensor:
        """Return a copy of the tensor.

        Raises:
            UsageError: EK535, torch cannot hold its elements.
        """
        if not self.scalar_type.is_plain:
            raise UsageError(Diagnostic.of("EK535", f"a bundled value is a tensor of {self.scalar_type.name}"))
        return stored_tensor(self.layout, memoryview(self.data))


# The tag on the wire is the position in this union, from 1.
BundledKinds = Union[  # noqa: UP007 - the members are read with typing.get_args
    Annotated[BundledTensor, Tag("BundledTensor")],
    Annotated[Int, Tag("Int")],
    Annotated[Bool, Tag("Bool")],
    Annotated[Double, Tag("Double")],
]


class BundledValue(UnionTable):
    """One input or expected output."""

    union_field: ClassVar[str] = "val"

    val: Annotated[BundledKinds, Discriminator(member_name)]


class BundledMethodTestCase(Table):
    """Inputs of a run and the outputs that are expected; without outputs a run is not compared."""

    inputs: list[BundledValue] = Field(default_factory=list)
    expected_outputs: list[BundledValue] = Field(default_factory=list)


class BundledMethodTestSuite(Table):
    """The test cases of one method."""

    method_name: str
    test_cases: list[BundledMethodTestCase] = Field(default_factory=list)


class BundledProgramTable(Table):
    """The root: suites in the order of the names of their methods, and the bytes of a program file."""

    version: UInt32 = _VERSION
    method_test_suites: list[BundledMethodTestSuite] = Field(default_factory=list)
    program: Blob = b""


def bundled_program_file(table: BundledProgramTable) -> FileImage:
    """Return a bundled program, ready to be written; program and tensors are not copied.

    Raises:
        ModelError: EK520, a value does not fit its field; EK525, 2 GiB or more.
    """
    alignments: dict[type, int] = {BundledProgramTable: _PROGRAM_ALIGNMENT}
    encoded = encode(table, _IDENTIFIER, alignment=FORCE_ALIGN_BYTES, alignments=alignments)
    return FileImage(encoded.nbytes(), encoded.chunks())


def read_bundled_program(data: object) -> BundledProgramTable:
    """Read a bundled program that is in memory; its program and its tensors stay views.

    Requires: `data` does not change as long as the result is in use.
    Ensures: every tensor fits its data. The program in it is not read: `read_program(found.program)` does that.

    Raises:
        ProgramFormatError: EK506 to EK515, EK529, EK531, EK532, saying what is wrong, at which byte and in which field.
        UsageError: EK521 if `data` is not contiguous bytes.
    """
    view = bytes_view(data)
    if file_kind(view) is not FileKind.BUNDLED_PROGRAM or len(view) < _PREFIX_NBYTES + 4:
        raise malformed("EK529", not_of_kind(view, f"a {_WHAT}"), 4, _IDENTIFIER.decode())
    if bytes(view[4:8]) != _IDENTIFIER:
        message = f"the file is of version {bytes(view[4:8]).decode()}"
        raise malformed("EK531", message, 4, _IDENTIFIER.decode())
    try:
        table = decode(BundledProgramTable, view, what=_WHAT)
    except Fault as fault:
        raise ProgramFormatError(fault.diagnostic(_WHAT)) from None
    if table.version > _VERSION:
        raise broken("EK531", f"the file is of version {table.version}", "version", f"at most {_VERSION}")
    for number, suite in enumerate(table.method_test_suites):
        for index, case in enumerate(suite.test_cases):
            where = f"method_test_suites[{number}].test_cases[{index}]"
            _check_values(case.inputs, f"{where}.inputs")
            _check_values(case.expected_outputs, f"{where}.expected_outputs")
    return table


def open_bundled_program(path: str | PathLike[str]) -> BundledProgramTable:
    """Map a bundled program into memory and read it; the mapping ends with the last view of it.

    Raises:
        ProgramFormatError: As `read_bundled_program`, with the path of the file.
        OSError: The file cannot be opened.
    """
    try:
        return read_bundled_program(map_file(path))
    except ModelError as error:
        raise in_file(error, path) from None


def _check_values(values: list[BundledValue], where: str) -> None:
    for index, value in enumerate(values):
        if isinstance(value.val, BundledTensor):
            check_layout(value.val.layout, len(value.val.data), f"{where}[{index}].val")

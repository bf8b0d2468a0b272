"""Program files as the official reader and writer offer them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from exirkit.emit import NamedBlob, Program, lay_out, read_program, restore, restore_mutable_data, restore_named_data


@dataclass(frozen=True)
class PTEFile:
    """What is in a program file.

    Attributes:
        program: The program, with its constants and payloads in it.
        mutable_data: Initial values of buffers; None if there are none.
        named_data: Named data by key; None if there is none.
    """

    program: Program
    mutable_data: Any = None
    named_data: dict[str, NamedBlob] | None = None


def deserialize_pte_binary(program_data: bytes) -> PTEFile:
    """Return what is in a program file.

    Raises:
        ProgramFormatError: EK502 to EK518, the file is damaged.
    """
    file = read_program(bytes(program_data))
    return PTEFile(restore(file), restore_mutable_data(file), restore_named_data(file))


def serialize_pte_binary(pte_file: PTEFile, **options: Any) -> bytes:
    """Return the file of a program.

    Args:
        pte_file: What is to be in it.
        options: Alignments and the like, as for `exirkit.emit.lay_out`.
    """
    image = lay_out(pte_file.program, mutable_data=pte_file.mutable_data, named_data=pte_file.named_data, **options)
    return image.to_bytes()

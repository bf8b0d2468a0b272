"""Bundled programs as bytes, and back."""

from exirkit.devtools.bundled_program.core import BundledProgram
from exirkit.emit import BundledProgramTable, bundled_program_file, read_bundled_program

__all__ = ["deserialize_from_flatbuffer_to_bundled_program", "serialize_from_bundled_program_to_flatbuffer"]


def serialize_from_bundled_program_to_flatbuffer(bundled_program: BundledProgram) -> bytes:
    """Return the file of a bundled program.

    Raises:
        ModelError: EK525, it would have 2 GiB or more.
    """
    return bundled_program_file(bundled_program.serialize_to_schema()).to_bytes()


def deserialize_from_flatbuffer_to_bundled_program(flatbuffer: bytes) -> BundledProgramTable:
    """Return the tables of the file of a bundled program; `Bundle` runs its cases.

    Raises:
        ProgramFormatError: EK506 to EK515, EK529, EK531, EK532, the file is damaged or of another kind.
    """
    return read_bundled_program(flatbuffer)

"""What can be wrong with a `.pte` file, by who notices."""

from __future__ import annotations

from exirkit.ir import ModelError


class ProgramFormatError(ModelError):
    """The bytes are not a well-formed program file: nothing can be read from it."""


class ProgramVerifyError(ModelError):
    """The file is well formed, but the program in it breaks a rule of the format and cannot run."""

"""A fault that the codec met, and where: the byte, and the path of fields that led there."""

from __future__ import annotations

from exirkit.ir import Diagnostic, Location


class Fault(Exception):  # noqa: N818 - never leaves the codec, which turns it into a diagnostic
    """Something is wrong; each level that the fault passes through adds its part of the path."""

    def __init__(self, code: str, message: str, offset: int | None = None, expected: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.offset = offset
        self.expected = expected
        self.path: list[str] = []

    def inside(self, part: str) -> Fault:
        """Add the part of the path that encloses what is there so far: `.name` or `[index]`."""
        self.path.append(part)
        return self

    def diagnostic(self) -> Diagnostic:
        """Return what a user is told."""
        path = "".join(reversed(self.path)).removeprefix(".") or "program"
        where = Location(node=path, offset_bytes=self.offset)
        return Diagnostic(code=self.code, message=self.message, location=where, expected=self.expected)

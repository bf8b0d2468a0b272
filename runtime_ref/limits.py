"""How much a file may ask for before it is rejected, and findings up to a limit of their own."""

from __future__ import annotations

from dataclasses import dataclass

from exirkit.emit import ProgramVerifyError
from exirkit.ir import Diagnostic, Location


@dataclass(frozen=True)
class Limits:
    """Bounds that no honest program of today reaches.

    Attributes:
        arena_nbytes: Size of all arenas of one method together, and of any one tensor.
        dimensions: Number of dimensions of a tensor, as in the C++ runtime.
        jumps_back: Number of jumps to an earlier instruction in one run of a method.
    """

    arena_nbytes: int = 1 << 36
    dimensions: int = 16
    jumps_back: int = 1 << 24


MAX_FINDINGS = 50
# Texts of the file stand in messages; a name may be as long as the file, and be that of every operator in it.
MAX_CHARACTERS = 1000


class Findings:
    """Collects the diagnostics of one program.

    Attributes:
        diagnostics: What was found, in order.
        method: Name of the method that is being checked; it becomes part of every location.
        count: How many there were, those beyond the limit included.
    """

    def __init__(self, limit: int = MAX_FINDINGS) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.method: str | None = None
        self.count = 0
        self._limit = limit

    @property
    def full(self) -> bool:
        """Whether the limit is reached; callers may stop looking."""
        return len(self.diagnostics) >= self._limit

    def add(
        self, code: str, message: str, *, at: str | None = None, expected: str | None = None, hint: str | None = None
    ) -> None:
        """Record one error at the place `at` (`value 7`, `instruction 3`) of the current method."""
        # Whether a method is in order must be told even when there is no room for what is wrong with it.
        self.count += 1
        if self.full:
            return
        method = None if self.method is None else shortened(self.method)
        location = Location(method=method, node=at)
        self.diagnostics.append(
            Diagnostic.of(code, shortened(message), location=location, expected=expected, hint=hint)
        )

    def raise_if_any(self) -> None:
        """Raise a `ProgramVerifyError` that carries everything found, or do nothing."""
        if self.diagnostics:
            raise ProgramVerifyError(self.diagnostics)


def shortened(text: str) -> str:
    """Return a text, without its end if it is very long."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}... ({len(text)} characters in all)"

"""Text with its place in a file, so that every complaint about it has file, line, column and a caret."""

from __future__ import annotations

from dataclasses import dataclass

from exirkit.ir import Diagnostic, Location


@dataclass(frozen=True)
class SourceText:
    """A piece of text and where it stands.

    Attributes:
        value: The text.
        file: Path of the file, if it comes from one.
        line: Line of its first character, counted from 1.
        column: Column of its first character, counted from 1; for a block, of the first character of every line.
        is_block: Whether further lines start at `column` too.
        lines: All lines of the file, for the caret.
    """

    value: str
    file: str | None = None
    line: int = 1
    column: int = 1
    is_block: bool = True
    lines: tuple[str, ...] = ()

    def location(self, line: int = 1, offset: int = 0, length: int = 1) -> Location:
        """Return the place of a character.

        Args:
            line: Line inside the text, counted from 1.
            offset: Characters before it on that line.
            length: How many characters are meant.
        """
        at = self.line + line - 1
        column = offset + (self.column if self.is_block or line == 1 else 1)
        own = self.value.splitlines()
        if self.lines:
            text = self.lines[at - 1] if at <= len(self.lines) else None
        else:
            text = own[line - 1] if line <= len(own) else None
            column, at = offset + 1, line
        return Location(file=self.file or "<rule>", line=at, column=column, text=text, span=max(1, length))

    def diagnostic(
        self,
        code: str,
        message: str,
        *,
        line: int = 1,
        offset: int = 0,
        length: int = 1,
        hint: str | None = None,
        expected: str | None = None,
        notes: tuple[str, ...] = (),
    ) -> Diagnostic:
        """Return an error that points at a place in the text."""
        place = self.location(line, offset, length)
        return Diagnostic(code=code, message=message, location=place, hint=hint, expected=expected, notes=notes)

"""Progress on standard error, reports on standard output."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from .errors import printable

# rich and pydantic are imported when something is printed with them: `exirkit --help` does without.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status
    from rich.table import Table

# Wide enough for any table: what is piped into a file or a pager is not to be cut to 80 columns.
_PIPE_WIDTH = 240
# Source lines in tables; the document of --json has all of them.
_SOURCE_LETTERS = 100


class Steps:
    """Shows on standard error what is being done, if that is a terminal, and keeps the time of every phase.

    Attributes:
        seconds: Wall time by phase.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._console: Console | None = None
        self._status: Status | None = None
        self._line = ""
        self._since = 0.0

    def __enter__(self) -> Self:
        # Not Console.is_terminal: FORCE_COLOR makes that true for pipes.
        if sys.stderr.isatty():
            from rich.console import Console

            # A fixed stream: what model code prints is redirected at times, and progress must not be.
            self._console = Console(file=sys.stderr)
            self._status = self._console.status("")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is None:
            return
        self._status.stop()
        if error is None:
            self._finish_line()

    def __call__(self, line: str) -> None:
        """Show what comes next; the step before is finished."""
        if self._status is None:
            return
        from rich.text import Text

        self._finish_line()
        self._line, self._since = printable(line), time.perf_counter()
        self._status.update(Text(self._line))
        self._status.start()

    @contextlib.contextmanager
    def phase(self, name: str, line: str | None = None) -> Iterator[None]:
        """Add the time that the block takes to the phase `name`."""
        if line is not None:
            self(line)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def _finish_line(self) -> None:
        if self._line and self._console is not None:
            from rich.text import Text

            elapsed = time.perf_counter() - self._since
            self._console.print(Text(f"{elapsed:6.1f} s  {self._line}", style="dim"))
        self._line = ""


@contextlib.contextmanager
def output_to_stderr() -> Iterator[None]:
    """Send what the block prints to standard error: output of a model's own code must not mix with reports."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        # Native code and child processes write to the descriptor; a test harness may have closed it.
        with contextlib.suppress(OSError, io.UnsupportedOperation):
            kept = os.dup(1)
            stack.callback(os.close, kept)
            os.dup2(2, 1)
            stack.callback(os.dup2, kept, 1)
            if sys.__stdout__ is not None:
                stack.callback(sys.__stdout__.flush)
        yield


def print_json(document: Any) -> None:
    """Print a document of dataclasses, pydantic models and containers as JSON; infinities and NaN are strings."""
    from pydantic_core import to_json

    typer.echo(to_json(document, indent=2, inf_nan_mode="strings").decode())


def print_line(line: str = "", *, style: str = "", err: bool = False) -> None:
    """Print one line, with control characters escaped; it is not wrapped."""
    text = printable(line)
    # click drops styles where standard output is not a terminal.
    typer.echo(typer.style(text, bold=True) if style == "bold" else text, err=err)


def print_text(text: str, *, err: bool = False) -> None:
    """Print several lines, with control characters escaped."""
    typer.echo("\n".join(map(printable, text.splitlines())), err=err)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table on standard output; columns whose name starts with `>` are right-aligned."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False, emoji=False)
    console.print(_table(columns, rows, title))


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None) -> Table:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", header_style="dim")
    for column in columns:
        made.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold"
        )
    for row in rows:
        made.add_row(*(Text(printable(str(cell))) for cell in row))
    return made


def nbytes_text(nbytes: int) -> str:
    """Return a number of bytes with thousands separated: `3,145,728`."""
    return f"{nbytes:,}"


def shape_text(shape: Sequence[int] | None) -> str:
    """Return sizes as `2x3`; a scalar tensor is `[]`."""
    return "x".join(str(size) for size in shape) if shape else "[]"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 call`, `2 calls`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def source_text(source: str | None, letters: int | None = _SOURCE_LETTERS) -> str:
    """Return a source line without the directories of its file, cut to at most `letters`."""
    place, gap, code = (source or "").partition(":  ")
    line = place.rpartition("/")[2] + gap + code
    return line if letters is None or len(line) <= letters else line[: letters - 3] + "..."

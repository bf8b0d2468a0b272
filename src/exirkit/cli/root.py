"""The application to which each module of `commands` adds its command, and how a command ends."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from exirkit import __version__

from .errors import failure_of, report_failure, wants_traceback

INTERRUPTED = 130

_ORDER = (
    *(
        "lower",
        "run",
        "inspect",
        "verify",
        "compare",
        "bisect",
        "gap",
        "print",
        "report",
        "profile",
        "memory",
        "size",
        "diff",
        "oplist",
    ),
    *("weights", "partition", "new-backend", "bundle", "bundle-failure", "replay", "migrate", "demo"),
    *("explain", "rule", "propagation"),
    *("quantizer", "quantization", "fuzz"),
)

_EPILOG = (
    "Exit codes: 0 done; 1 the model or file cannot be handled; 2 wrong usage; 3 a pass or backend broke its contract; "
    "4 a bug of exirkit; 130 interrupted."
    "\n\n"
    "An error is one line on standard error: `exirkit -v` shows it in full, `exirkit explain CODE` explains it, "
    "EXIRKIT_TRACEBACK=1 shows where it comes from. With `--json`, standard output is one JSON document, also after an "
    "error."
)


class OneLineGroup(TyperGroup):
    """Commands whose errors are one line and an exit code, never a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the help; those that `_ORDER` does not have come last."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> NoReturn:
        """Run the command that the arguments name, and leave with its exit code."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        try:
            with _quiet(), _noted_interrupts() as interrupts:
                code = super().main(given, *rest, **{**named, "standalone_mode": False})
        except BrokenPipeError:
            # The reader of our output has exited; the interpreter must not complain when it flushes the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except Exception as error:
            if wants_traceback():
                raise
            if interrupts:
                sys.exit(INTERRUPTED)
            failure = failure_of(error)
            options = given[: given.index("--")] if "--" in given else given
            report_failure(failure, as_json="--json" in options, verbose=bool({"-v", "--verbose"} & set(options)))
            code = failure.report.exit_code
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    cls=OneLineGroup,
    epilog=_EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Boxes cut names of options on narrow terminals.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"exirkit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show errors in full, not on one line.")] = False,
) -> None:
    """Lower PyTorch models to ExecuTorch programs; run, inspect and verify them."""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings and log records of torch.

    Warnings come back with `-W` or `PYTHONWARNINGS`, log records with `EXIRKIT_TRACEBACK=1`.
    """
    disabled = logging.root.manager.disable
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        if not wants_traceback():
            logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)


@contextlib.contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Give a list of the interrupts (Ctrl-C) so far; they are raised as always.

    An interrupt may come while a library imports itself, and arrive as the ImportError that the library raises then.
    """
    interrupts: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    # Only the main thread may set handlers, and a handler of an embedding program must stay.
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    previous = signal.signal(signal.SIGINT, note) if is_ours else None
    try:
        yield interrupts
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, previous)


def load_commands(word: str | None = None) -> None:
    """Import the module of a command, which adds it to the application; those of all commands if `word` names none.

    Args:
        word: First word of the command line. One that names no module can be an option, or wrong: then help and hints
            need all commands.
    """
    folder = Path(__file__).with_name("commands")
    known = {
        module.name: f"exirkit.cli.commands{package}.{module.name}"
        for package, path in (("", folder), (".devtools", folder / "devtools"))
        for module in iter_modules([str(path)])
    }
    wanted = (word or "").replace("-", "_")
    for name in [wanted] if wanted in known else known:
        import_module(known[name])

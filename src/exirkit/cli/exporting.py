"""From what a factory returns, or a `.pt2` file, to exported programs."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from .failures import CommandError

_EXPECTED = (
    "(model, example_inputs), (model, example_inputs, dynamic_shapes), an ExportedProgram, or a dict of method names "
    "with any of these"
)


def load_exported(path: Path) -> ExportedProgram:
    """Return the program in a file that `torch.export.save` wrote.

    Raises:
        CommandError: EK718, torch does not load it.
    """
    try:
        return torch.export.load(path)
    except Exception as error:
        raise CommandError(
            code="EK718",
            message=f"torch.export.load failed: {first_line(error)}",
            file=str(path),
            hint="the file must come from torch.export.save of the installed torch version",
        ) from error


def export_methods(made: Any, *, strict: bool, say: Callable[[str], None]) -> dict[str, ExportedProgram]:
    """Export everything that a factory returned.

    Args:
        made: What the factory returned.
        strict: Whether `torch.export` traces with TorchDynamo.
        say: Called with a line before each export.

    Raises:
        CommandError: EK716, it is something else; EK717, `torch.export` failed.
    """
    if not isinstance(made, Mapping):
        return {"forward": _export("forward", made, strict, say)}
    if not made or not all(isinstance(name, str) for name in made):
        raise CommandError(code="EK716", message=f"the factory returned a dict without method names, not {_EXPECTED}")
    return {name: _export(name, value, strict, say) for name, value in made.items()}


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _export(name: str, made: Any, strict: bool, say: Callable[[str], None]) -> ExportedProgram:
    if isinstance(made, ExportedProgram):
        return made
    model, inputs, dynamic_shapes = _taken_apart(name, made)
    say(f"{name}: exporting")
    # When it fails, torch prints the graph it had so far; when it does not, what was printed is the model's.
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            program = torch.export.export(model, inputs, dynamic_shapes=dynamic_shapes, strict=strict)
    except Exception as error:
        raise CommandError(
            code="EK717",
            message=f"torch.export failed for method {name}: {first_line(error)}",
            hint="EXIRKIT_TRACEBACK=1 shows where; this part is torch's, before exirkit begins",
        ) from error
    sys.stderr.write(printed.getvalue())
    return program


def _taken_apart(name: str, made: Any) -> tuple[torch.nn.Module, tuple[Any, ...], Any]:
    if isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], torch.nn.Module):
        inputs = made[1]
        if isinstance(inputs, tuple | list):
            return made[0], tuple(inputs), made[2] if len(made) == 3 else None
        raise CommandError(
            code="EK716",
            message=f"the example inputs of method {name} are of type {type(inputs).__name__}, not a tuple",
            hint="write (x,) for one input",
        )
    raise CommandError(code="EK716", message=f"the factory returned {_described(made)} for {name}, not {_EXPECTED}")


def _described(made: Any) -> str:
    if isinstance(made, torch.nn.Module):
        return "a model without example inputs"
    if isinstance(made, tuple):
        return f"a tuple of {', '.join(type(each).__name__ for each in made) or 'nothing'}"
    return f"something of type {type(made).__name__}"

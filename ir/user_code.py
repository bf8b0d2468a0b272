"""Which lines of Python are the user's: not those of torch, of Python itself, or of exirkit."""

from __future__ import annotations

import inspect
import linecache
import os
import sysconfig
from collections.abc import Iterable
from functools import cache
from types import TracebackType

import torch

from .diagnostics import Location

_TORCH = os.path.dirname(os.path.abspath(torch.__file__))
# As they look in programs that were exported elsewhere.
_TORCH_PARTS = ("/site-packages/torch/", "/dist-packages/torch/", "/torch/nn/modules/", "/torch/nn/functional.py")
_ROOMS = (
    "bridge",
    "cli",
    "emit",
    "fuzz",
    "ir",
    "passes",
    "patterns",
    "pictures",
    "program",
    "runtime_ref",
    "verifiers",
)


def is_torch_file(path: str) -> bool:
    """Tell whether a file is one of torch's, where models are carried out, not written."""
    plain = path.replace("\\", "/")
    return path.startswith(_TORCH + os.sep) or any(part in plain for part in _TORCH_PARTS)


def _is_made(path: str) -> bool:
    """Tell whether code was generated from a graph, which has no file."""
    return path.startswith("<eval_with_key>")


@cache
def _own_directories() -> tuple[str, ...]:
    """Return the directories of exirkit's code; the rooms may be links."""
    here = os.path.dirname(os.path.abspath(__file__))
    rooms = [os.path.join(os.path.dirname(here), room) for room in _ROOMS]
    return tuple(path + os.sep for room in rooms for path in dict.fromkeys((room, os.path.realpath(room))))


@cache
def _python_directories() -> tuple[str, ...]:
    return tuple(os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib"))


def is_users_file(path: str) -> bool:
    """Tell whether a file is a user's, or at least that of a package which users choose beside exirkit."""
    if path.startswith("<") or is_torch_file(path):
        return False
    full = os.path.abspath(path)
    if full.startswith(_own_directories()):
        return False
    if "site-packages" in full or "dist-packages" in full:
        return f"{os.sep}executorch{os.sep}" not in full
    return not full.startswith(_python_directories())


def line_of_frames(frames: Iterable[tuple[str, int, str, str]]) -> str | None:
    """Return the innermost frame outside of torch as `file.py:12 in forward:  code`; None if there is none.

    Args:
        frames: File, line, function and code of each frame, outermost first.
    """
    own = [frame for frame in frames if frame[0] and not _is_made(frame[0]) and not is_torch_file(frame[0])]
    if not own:
        return None
    filename, line, function, code = own[-1]
    return f"{filename}:{line} in {function}" + (f":  {code}" if code else "")


def line_that_raised(error: BaseException) -> Location:
    """Return the innermost line of the user's code through which an error came; nothing if there is none."""
    found: tuple[str, int] | None = None
    cause: BaseException | None = error
    seen: set[int] = set()
    # Interpreters of torch raise another error in place of the one that they meet.
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        found = _line_in(cause.__traceback__) or found
        cause = cause.__cause__ or cause.__context__
    if found is None:
        return Location()
    return Location(file=found[0], line=found[1], text=linecache.getline(*found).strip() or None)


def _line_in(trace: TracebackType | None) -> tuple[str, int] | None:
    found: tuple[str, int] | None = None
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if is_users_file(path):
            found = (path, trace.tb_lineno)
        trace = trace.tb_next
    return found


def line_of_definition(thing: object) -> Location:
    """Return where a class, a function, or the class of another object is defined; nothing if that is not known."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        thing = type(thing)
    code = getattr(inspect.unwrap(thing), "__code__", None)
    if code is not None:
        return Location(file=code.co_filename, line=code.co_firstlineno)
    try:
        path = inspect.getsourcefile(thing)
        line = inspect.getsourcelines(thing)[1]
    except (OSError, TypeError):
        return Location()
    return Location(file=path, line=line)

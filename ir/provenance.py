"""Where nodes come from: lines of the user, modules of the model, and how calls and values are shown."""

from __future__ import annotations

import inspect
import linecache
import os
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir.diagnostics import Location

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
    "visualization",
    "program",
    "runtime_ref",
    "verifiers",
)


def is_torch_file(path: str) -> bool:
    """Return whether a file is one of torch's, where models are carried out, not written."""
    plain = path.replace("\\", "/")
    return path.startswith(_TORCH + os.sep) or any(part in plain for part in _TORCH_PARTS)


def _is_made(path: str) -> bool:
    """Return whether code was generated from a graph, which has no file."""
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
    """Return whether a file is a user's, or at least that of a package which users choose beside exirkit."""
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
    frame = innermost_frame(frames)
    if frame is None:
        return None
    filename, line, function, code = frame
    return f"{filename}:{line} in {function}" + (f":  {code}" if code else "")


def innermost_frame(frames: Iterable[tuple[str, int, str, str]]) -> tuple[str, int, str, str] | None:
    """Return the innermost frame outside of torch; None if there is none.

    Args:
        frames: File, line, function and code of each frame, outermost first.
    """
    own = [frame for frame in frames if frame[0] and not _is_made(frame[0]) and not is_torch_file(frame[0])]
    return own[-1] if own else None


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


# Keys that record where a node came from; all others record what it is, and are made again.
PROVENANCE_KEYS = (
    "stack_trace",
    "nn_module_stack",
    "source_fn_stack",
    "torch_fn",
    "from_node",
    "debug_handle",
    "custom",
    "seq_nr",
    "quantization_tag",
)


ATTRIBUTE_KEYS = "attribute_keys"
"""Entry of `node.meta`: keys of other entries that say what else is done to the result of the call."""


def inherited(origins: Sequence[Node]) -> dict[str, Any]:
    """Return the provenance of a node that stands for `origins`; the first is the anchor and wins.

    Debug handles of several origins are united, so that profiles and blame reach every one of them.
    """
    meta: dict[str, Any] = {}
    for origin in origins:
        for key in PROVENANCE_KEYS:
            if key in origin.meta and key not in meta:
                meta[key] = origin.meta[key]
    handles = _united_handles(origins)
    if handles:
        meta["debug_handle"] = handles[0] if len(handles) == 1 else handles
    return meta


def _united_handles(origins: Sequence[Node]) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for origin in origins:
        handle = origin.meta.get("debug_handle")
        for one in handle if isinstance(handle, tuple) else (handle,):
            if one is not None:
                found[one] = None
    return tuple(found)


def stack_frames(trace: str | None) -> list[tuple[str, int, str, str]]:
    """Return file, line, function and code of the frames of a trace as Python prints it, outermost first."""
    lines = [line.strip() for line in (trace or "").splitlines() if line.strip()]
    found = []
    for index, line in enumerate(lines):
        place = _frame(line)
        if place is not None:
            follower = lines[index + 1] if index + 1 < len(lines) else ""
            found.append((*place, "" if _frame(follower) else follower))
    return found


def _frame(line: str) -> tuple[str, int, str] | None:
    """Read `File "model.py", line 3, in forward`."""
    if not line.startswith('File "'):
        return None
    filename, quote, rest = line[len('File "') :].partition('"')
    parts = [part.strip() for part in rest.split(",") if part.strip()]
    if not quote or len(parts) < 2 or not parts[0].startswith("line ") or not parts[1].startswith("in "):
        return None
    number = parts[0].removeprefix("line ")
    return (filename, int(number), ",".join(parts[1:]).removeprefix("in ")) if number.isdigit() else None


def source_line(node: Node) -> str | None:
    """Return the line of the user's model that a node comes from, as `file.py:12 in forward:  code`.

    That is the innermost line outside of torch. A model that is made of torch's modules alone has none; `module_path`
    says where its nodes come from.
    """
    return line_of_frames(stack_frames(node.meta.get("stack_trace")))


def module_path(node: Node) -> str | None:
    """Return the path of the innermost module that a node comes from, `features.3.conv`; None for the model itself."""
    paths = module_paths(node)
    return (paths[-1] or None) if paths else None


def module_paths(node: Node) -> list[str]:
    """Return the paths of the modules that a node comes from, the outermost first; the model's own is empty."""
    stack: Any = node.meta.get("nn_module_stack")
    return [str(path).removeprefix("L['self']").removeprefix(".") for path, _ in (stack or {}).values()]


def module_types(node: Node) -> list[str]:
    """Return the full names of the classes of the modules that a node comes from, the outermost first."""
    stack: Any = node.meta.get("nn_module_stack")
    kinds = [kind for _, kind in (stack or {}).values()]
    return [f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind) for kind in kinds]


def locate(node: Node, method: str | None = None) -> Location:
    """Return the place of a node for a diagnostic."""
    shown = show_call(node.target, node.args, node.kwargs) if node.op == "call_function" else None
    text = None if shown is None else _cut(f"%{node.name} = {shown}")
    return Location(method=method, node=f"%{node.name}", text=text, source=source_line(node), module=module_path(node))


def show_call(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return a call as one line, `aten.add.Tensor(%x, %y, alpha=2)`, cut off where it gets long."""
    shown = [_show_argument(argument) for argument in args]
    shown += [f"{key}={_show_argument(argument)}" for key, argument in kwargs.items()]
    return _cut(f"{target_name(target)}({', '.join(shown)})")


def target_name(target: Any) -> str:
    """Return the name of a call target as graphs show it, `aten.add.Tensor` or `getitem`."""
    name = str(target)
    return str(getattr(target, "__name__", name)) if name.startswith("<") else name


def show_value(value: Any) -> str:
    """Return a recorded value in short, `float32[2, s0]`."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(show_value, value))})"
    return str(value)


def _show_argument(argument: Any) -> str:
    if isinstance(argument, Node):
        return f"%{argument.name}"
    if isinstance(argument, list | tuple):
        return f"[{', '.join(map(_show_argument, argument))}]"
    return repr(argument)


def _cut(text: str) -> str:
    return text if len(text) <= 160 else text[:157] + "..."

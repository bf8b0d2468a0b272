"""Where a node came from: the metadata that new nodes inherit from the nodes that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from .diagnostics import Location
from .user_code import line_of_frames

# Keys that say where a node came from; all others say what it is, and are made anew.
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

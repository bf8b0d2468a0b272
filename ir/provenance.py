"""Where a node came from: the metadata that new nodes inherit from the nodes that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from .diagnostics import Location

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


def source_line(node: Node) -> str | None:
    """Return the innermost line of the user's source that made the node, as `file.py:12 in forward:  code`."""
    trace = node.meta.get("stack_trace")
    if not trace:
        return None
    lines = [line.strip() for line in str(trace).splitlines() if line.strip()]
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith("File "):
            code = f":  {lines[index + 1]}" if index + 1 < len(lines) else ""
            return _shorten(lines[index]) + code
    return None


def _shorten(frame: str) -> str:
    # `File "/a/b.py", line 3, in forward` becomes `/a/b.py:3 in forward`.
    parts = frame.removeprefix("File ").split(", ")
    if len(parts) < 3:
        return frame
    path, line, function = parts[0].strip('"'), parts[1].removeprefix("line "), parts[2].removeprefix("in ")
    return f"{path}:{line} in {function}"


def locate(node: Node, method: str | None = None) -> Location:
    """Return the place of a node for a diagnostic."""
    shown = show_call(node.target, node.args, node.kwargs) if node.op == "call_function" else None
    text = None if shown is None else _cut(f"%{node.name} = {shown}")
    return Location(method=method, node=f"%{node.name}", text=text, source=source_line(node))


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

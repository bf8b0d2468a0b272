"""Where a node came from: the metadata that new nodes inherit from the nodes that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    return Location(method=method, node=f"%{node.name}", text=_shown(node), source=source_line(node))


def _shown(node: Node) -> str | None:
    if node.op != "call_function":
        return None
    arguments = [f"%{arg}" if isinstance(arg, Node) else repr(arg) for arg in node.args]
    arguments += [f"{key}={'%' if isinstance(arg, Node) else ''}{arg}" for key, arg in node.kwargs.items()]
    target = str(node.target)
    name = getattr(node.target, "__name__", target) if target.startswith("<") else target
    shown = f"%{node.name} = {name}({', '.join(arguments)})"
    return shown if len(shown) <= 160 else shown[:157] + "..."

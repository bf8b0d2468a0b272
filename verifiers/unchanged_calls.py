"""Calls that were found in order before and of which nothing has been replaced since: they need no second look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch.fx import Node


class CallMemory:
    """What checks of calls have found in order, in one run of a pipeline.

    A check that reads of a call its operator, its arguments and the recorded values of both finds the same again as
    long as all of these are the same objects: an edit replaces them.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, Node], tuple[Any, ...]] = {}

    def is_unchanged(self, check: str, node: Node) -> bool:
        """Return whether a check has found a call in order, and would read the same now."""
        known = self._known.get((check, node))
        if known is None:
            return False
        read = _read(node)
        return len(read) == len(known) and all(map(_is, read, known))

    def note(self, check: str, node: Node) -> None:
        """Note that a check has found a call in order."""
        self._known[check, node] = _read(node)


def _read(node: Node) -> tuple[Any, ...]:
    values = [one.meta.get("val", _ABSENT) for one in node.all_input_nodes]
    return node.target, node.args, node.kwargs, node.meta.get("val", _ABSENT), *values


def _is(one: Any, other: Any) -> bool:
    return one is other


_ABSENT = object()
_MEMORY: ContextVar[CallMemory | None] = ContextVar("exirkit_call_memory", default=None)


@contextmanager
def remembering(memory: CallMemory) -> Iterator[None]:
    """Let the checks inside pass over calls that the memory knows, and note others in it."""
    token = _MEMORY.set(memory)
    try:
        yield
    finally:
        _MEMORY.reset(token)


def current_memory() -> CallMemory:
    """Return the memory of the run; outside of one, a new one, which knows nothing."""
    return _MEMORY.get() or CallMemory()

"""Watching pipelines: somebody outside is told what every stage of every run does, wherever the run was started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch.export import ExportedProgram


@dataclass(frozen=True, slots=True)
class StageEvent:
    """Something that happens in a run of a pipeline.

    Attributes:
        moment: The run starts, a stage is about to work, it has worked, or the run ends.
        run: Identity of the run, a number that no other run of the process has.
        pipeline: File of the pipeline.
        position: How many stages of the run have worked so far. A group that starts anew goes back to an earlier one.
        number: Place of the stage in the file; nothing at start and end.
        name: What the stage is called; nothing at start and end.
        program: The program as it is now. It is edited further: who wants to keep it copies it.
        modified: Whether the stage has changed it.
        edit: The pass that works; None for checks, and at start and end.
    """

    moment: Literal["start", "before", "after", "end"]
    run: int
    pipeline: str
    position: int
    number: str
    name: str
    program: ExportedProgram
    modified: bool = False
    edit: Any = None


Watcher: TypeAlias = Callable[[StageEvent], None]


@dataclass(frozen=True, slots=True)
class Watch:
    """What holds for all runs inside of a `watching` block.

    Attributes:
        watcher: Called with every event.
        verify: `each`, `end` or `none`, in the place of what the pipelines say; None: as they say.
    """

    watcher: Watcher | None = None
    verify: str | None = None


_UNWATCHED = Watch()
_WATCH: ContextVar[Watch] = ContextVar("exirkit_pipeline_watch", default=_UNWATCHED)


@contextmanager
def watching(watcher: Watcher | None = None, *, verify: str | None = None) -> Iterator[None]:
    """Watch all runs of pipelines that this thread starts inside of the block.

    Args:
        watcher: Called with every event; what it raises ends the run.
        verify: When to check what should hold, in the place of what the pipelines say: `each`, `end` or `none`.
    """
    token = _WATCH.set(Watch(watcher, verify))
    try:
        yield
    finally:
        _WATCH.reset(token)


def current_watch() -> Watch:
    """Return what holds here."""
    return _WATCH.get()

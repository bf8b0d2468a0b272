"""Watching what works on programs: stages of pipelines, and passes that are applied without one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch.export import ExportedProgram

Moment: TypeAlias = Literal["start", "before", "after", "end"]


@dataclass(frozen=True, slots=True)
class StageEvent:
    """Something that happens in a run of a pipeline, or of a list of passes.

    Attributes:
        moment: The run starts, a stage is about to work, it has worked, or the run ends.
        run: Identity of the run, a number that no other run of the process has.
        pipeline: File of the pipeline; nothing for a list of passes.
        position: How many stages of the run have worked so far. A group that starts again goes back to an earlier one.
        number: Place of the stage in the file, or of the pass in the order of work; nothing at start and end.
        name: What the stage is called; nothing at start and end.
        program: The program as it is now. It is edited further: who wants to keep it copies it.
        modified: Whether the stage has changed it.
        edit: The pass that works; None for checks, and at start and end.
    """

    moment: Moment
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
        verify: `each`, `end` or `none`, instead of what the pipelines state; None: as they say.
        sees_passes: Whether the watcher is also told of passes that are applied without a pipeline.
    """

    watcher: Watcher | None = None
    verify: str | None = None
    sees_passes: bool = False


_UNWATCHED = Watch()
_WATCH: ContextVar[Watch] = ContextVar("exirkit_pipeline_watch", default=_UNWATCHED)


_RUNS = itertools.count()


@contextmanager
def watching(watcher: Watcher | None = None, *, verify: str | None = None, sees_passes: bool = False) -> Iterator[None]:
    """Watch all runs of pipelines that this thread starts inside of the block.

    Args:
        watcher: Called with every event; what it raises ends the run.
        verify: When to check what should hold, instead of what the pipelines state: `each`, `end` or `none`.
        sees_passes: Whether passes that are applied without a pipeline, as by `EdgeProgramManager.transform`, are told
            too: each call of `apply_user_passes` is a run, each pass a stage of it.
    """
    token = _WATCH.set(Watch(watcher, verify, sees_passes))
    try:
        yield
    finally:
        _WATCH.reset(token)


def current_watch() -> Watch:
    """Return what holds for runs that start now."""
    return _WATCH.get()


def next_run() -> int:
    """Return the identity of a new run."""
    return next(_RUNS)

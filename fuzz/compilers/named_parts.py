"""What users name for our chain: rule books and pipelines, read once and given their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from exirkit.ir import Diagnostic, UsageError
from exirkit.passes import Pipeline
from exirkit.patterns import CompiledRule, load_book, shipped_books


@dataclass(frozen=True)
class PlacedPipelines:
    """Pipelines by the step of lowering that they stand for.

    Attributes:
        to_edge: Instead of the shipped one, from `aten` to `edge`.
        on_edge: Run one after another on Edge programs.
        to_executorch: Instead of the shipped one, from `edge` to `executorch`.
    """

    to_edge: Pipeline | None = None
    on_edge: tuple[Pipeline, ...] = ()
    to_executorch: Pipeline | None = None

    def __iter__(self) -> Iterator[Pipeline]:
        yield from (one for one in (self.to_edge, *self.on_edge, self.to_executorch) if one is not None)


def place_pipelines(pipelines: Sequence[Pipeline | str]) -> PlacedPipelines:
    """Read pipelines, and give each its place by the dialects that it says it leads from and to.

    Raises:
        ModelError: All that is wrong with a file: EK470 to EK475.
        UsageError: EK871, two pipelines stand for one step, or one for none.
        OSError: A file cannot be read.
    """
    chosen: dict[tuple[str, str], list[Pipeline]] = {
        ("aten", "edge"): [],
        ("edge", "edge"): [],
        ("edge", "executorch"): [],
    }
    for one in pipelines:
        made = one if isinstance(one, Pipeline) else _pipeline(one, _stamp(one))
        step = (made.model.dialect.from_, made.model.dialect.to)
        if step not in chosen:
            raise _misplaced(f"{made.file} leads from {step[0]} to {step[1]}, which is not a step of lowering")
        if chosen[step] and step != ("edge", "edge"):
            raise _misplaced(f"{chosen[step][0].file} and {made.file} both lead from {step[0]} to {step[1]}")
        chosen[step].append(made)
    to_edge, on_edge, to_executorch = chosen.values()
    return PlacedPipelines(to_edge[0] if to_edge else None, tuple(on_edge), to_executorch[0] if to_executorch else None)


def rules_of_pipeline(pipeline: Pipeline) -> tuple[CompiledRule, ...]:
    """Return the rules of a pipeline that do not come with exirkit."""
    found: dict[str, CompiledRule] = {}
    for stage in (inner for one in pipeline.stages for inner in one.walk()):
        names = stage.stage.rules or ()
        shipped = {rule.id for name in names if name in shipped_books() for rule in rules_of_book(name)}
        found.update({rule.id: rule for rule in stage.rules or () if rule.id not in shipped})
    return tuple(found.values())


def rules_of_book(name: str) -> tuple[CompiledRule, ...]:
    """Return the rules of a book: a file, or a shipped one. It is read again only if the file has changed.

    Raises:
        ModelError: All that is wrong with the book: EK201 and following.
        OSError: The file cannot be read.
    """
    return _rules(name, _stamp(name))


@lru_cache(maxsize=64)
def _rules(name: str, stamp: object) -> tuple[CompiledRule, ...]:
    del stamp
    return tuple(load_book(name).require_valid().rules)


@lru_cache(maxsize=64)
def _pipeline(name: str, stamp: object) -> Pipeline:
    del stamp
    return Pipeline.from_file(name)


def _stamp(name: str) -> tuple[int, int] | None:
    """Return what changes with a file, or None if there is none of that name; the reader reports that."""
    try:
        status = Path(name).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _misplaced(message: str) -> UsageError:
    return UsageError(
        Diagnostic(
            code="EK871",
            message=message,
            hint="one from aten to edge, one from edge to executorch, and any number from edge to edge",
        )
    )

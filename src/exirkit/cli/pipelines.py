"""Pipelines in `exirkit lower`: which file stands for which step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exirkit.passes import Pipeline

from .failures import WRONG_USAGE, CommandError


@dataclass(frozen=True)
class ChosenPipelines:
    """The pipelines of one lowering.

    Attributes:
        to_edge: In the place of the shipped one, from `aten` to `edge`.
        on_edge: Run one after another on Edge programs.
        to_executorch: In the place of the shipped one, from `edge` to `executorch`.
    """

    to_edge: Pipeline | None = None
    on_edge: tuple[Pipeline, ...] = ()
    to_executorch: Pipeline | None = None

    def __iter__(self) -> Iterator[Pipeline]:
        yield from (one for one in (self.to_edge, *self.on_edge, self.to_executorch) if one is not None)


def choose_pipelines(files: Sequence[str]) -> ChosenPipelines:
    """Read pipeline files and give each its place, by the dialects that it says it leads from and to.

    Raises:
        ModelError: All that is wrong with a file.
        CommandError: EK711, two files stand for one step, or one for none.
        OSError: A file cannot be read.
    """
    chosen: dict[tuple[str, str], list[Pipeline]] = {
        ("aten", "edge"): [],
        ("edge", "edge"): [],
        ("edge", "executorch"): [],
    }
    for file in files:
        made = Pipeline.from_file(file)
        step = (made.model.dialect.from_, made.model.dialect.to)
        if step not in chosen:
            raise _wrong(f"{file} leads from {step[0]} to {step[1]}, which is no step of lowering")
        if chosen[step] and step != ("edge", "edge"):
            raise _wrong(f"{chosen[step][0].file} and {file} both lead from {step[0]} to {step[1]}")
        chosen[step].append(made)
    to_edge, on_edge, to_executorch = chosen.values()
    return ChosenPipelines(to_edge[0] if to_edge else None, tuple(on_edge), to_executorch[0] if to_executorch else None)


def _wrong(message: str) -> CommandError:
    return CommandError(
        code="EK711",
        message=message,
        hint="one from aten to edge, one from edge to executorch, and any number from edge to edge",
        exit_code=WRONG_USAGE,
    )

"""Recording what becomes of programs while they are lowered, stage by stage."""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.export import ExportedProgram

from exirkit.ir import graphs_by_path
from exirkit.passes import ApplyRules, StageEvent, code_of_pass, watching
from exirkit.patterns import CompiledRule, RewriteReport

from .rows import NodeReader, ProgramRows, RowTable


@dataclass(frozen=True)
class RecordedStage:
    """What one stage did to one method.

    Attributes:
        name: The pass, or another step of the lowering; `export` for what was given.
        number: Its place in the pipeline.
        pipeline: File of the pipeline; nothing for a pass that was given by itself.
        modified: Whether it says that it changed the program.
        rows: The program afterwards.
        doc: What the pass is for, in one line.
        place: File and line of the pass, if it does not come with exirkit.
        report: What rules did, if it applies rules.
    """

    name: str
    number: str
    pipeline: str
    modified: bool
    rows: Sequence[int]
    doc: str = ""
    place: str | None = None
    report: RewriteReport | None = None


@dataclass
class _Point:
    """A program that a run left, and the way to it.

    Attributes:
        program: The program, which is kept so that it can be told from others.
        state: Its rows.
        before: The point that the way comes from.
        stages: The stages from there.
        reader: What has read the program.
    """

    program: ExportedProgram
    state: ProgramRows
    before: _Point | None
    stages: list[RecordedStage]
    reader: NodeReader

    def reader_from_here(self) -> NodeReader:
        """Return a reader for what follows."""
        return self.reader.again(self.program, self.state)


@dataclass
class _Run:
    """A run that has not ended.

    Attributes:
        number: Identity of the run.
        start: Where it starts; None for a run within a stage of another one.
        method: The method.
        reader: Reads its stages.
        state: Rows of the program as it is now.
        steps: Stages by position; several where a stage is a pipeline.
        inner: Stages of a run within the stage that works now.
        program: The program on which the present stage works.
    """

    number: int
    start: _Point | None
    method: str
    reader: NodeReader
    state: ProgramRows
    steps: dict[int, list[RecordedStage]] = field(default_factory=dict)
    inner: list[RecordedStage] = field(default_factory=list)
    program: ExportedProgram | None = None

    def stages(self) -> list[RecordedStage]:
        """Return the stages in their order."""
        return [one for _, listed in sorted(self.steps.items()) for one in listed]


class LoweringRecord:
    """What becomes of programs while they are lowered.

    Args:
        programs: The programs as they were exported, by method.

    Attributes:
        table: The texts of all stages.
        rules: Rules that were applied, by id.
    """

    def __init__(self, programs: Mapping[str, ExportedProgram]) -> None:
        self.table = RowTable()
        self.rules: dict[str, CompiledRule] = {}
        self._tips: dict[str, _Point] = {}
        self._points: list[_Point] = []
        self._runs: list[_Run] = []
        for name, program in programs.items():
            reader = NodeReader(self.table, None)
            state = reader.read(program)
            stage = RecordedStage("export", "", "", True, state.rows, "The program as torch.export made it.")
            self._tips[name] = self._put(_Point(program, state, None, [stage], reader))

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods."""
        return tuple(self._tips)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record everything that is done inside of the block."""
        with watching(self._see, sees_passes=True):
            yield

    def add(self, name: str, programs: Mapping[str, ExportedProgram], doc: str = "") -> None:
        """Note what a step that is not made of passes has made of the programs.

        Args:
            name: Name of the step.
            programs: The programs now, by method; those that are known are left out.
            doc: What the step is for, in one line.
        """
        for method, program in programs.items():
            if method in self._tips:
                self._tips[method] = self._now(method, program, name, doc)

    def stages(self, method: str, lowered: ExportedProgram | None = None) -> list[RecordedStage]:
        """Return the stages of a method on the way to what became of it; what was given up on the way is left out.

        Args:
            method: The method.
            lowered: What became of it. Without it: the last that is known, where a lowering failed.
        """
        at: _Point | None = self._tips[method]
        rest: list[RecordedStage] = []
        if lowered is not None:
            at = self._now(method, lowered, "plan-memory", "Give every tensor its place in an arena.")
        else:
            rest = [one for run in self._runs if run.method == method and run.start is not None for one in run.stages()]
        parts = [rest]
        while at is not None:
            parts.append(at.stages)
            at = at.before
        return [stage for part in reversed(parts) for stage in part]

    def _now(self, method: str, program: ExportedProgram, name: str, doc: str) -> _Point:
        """Return the point of a program as it is now, which may have been edited after its run."""
        known = next((one for one in reversed(self._points) if one.program is program), None)
        before = known or self._tips[method]
        reader = before.reader_from_here()
        state = reader.read(program)
        if known is not None and tuple(known.state.rows) == tuple(state.rows):
            return known
        return self._put(_Point(program, state, before, [RecordedStage(name, "", "", True, state.rows, doc)], reader))

    def _put(self, point: _Point) -> _Point:
        self._points.append(point)
        return point

    def _see(self, event: StageEvent) -> None:
        if event.moment == "start":
            self._start(event)
            return
        while self._runs and self._runs[-1].number != event.run and any(one.number == event.run for one in self._runs):
            # It ended with an exception that its caller caught.
            self._runs.pop()
        if not self._runs or self._runs[-1].number != event.run:
            return
        run = self._runs[-1]
        if event.moment == "before":
            run.program, run.inner = event.program, []
            for position in [one for one in run.steps if one > event.position]:
                # A group that failed starts again another way.
                del run.steps[position]
        elif event.moment == "after":
            self._after(run, event)
        else:
            self._end(run, event)

    def _start(self, event: StageEvent) -> None:
        outer = self._runs[-1] if self._runs else None
        if outer is not None and outer.program is event.program:
            reader = NodeReader(self.table, outer.state)
            self._runs.append(_Run(event.run, None, outer.method, reader, reader.read(event.program)))
            return
        # Of runs that did not end, the last one is where a lowering failed; those before were only tries.
        self._runs.clear()
        origin = self._origin(event.program)
        if origin is None:
            # Backends lower their parts of a program in runs of their own.
            return
        method, point = origin
        reader = point.reader_from_here()
        self._runs.append(_Run(event.run, point, method, reader, reader.read(event.program)))

    def _origin(self, program: ExportedProgram) -> tuple[str, _Point] | None:
        """Return the method that a program is of, and its point; a new one if it is not known.

        None for a program with other inputs or another number of outputs than all methods.
        """
        known = next((one for one in reversed(self._points) if one.program is program), None)
        if known is not None:
            return self._method_of(known), known
        names = {
            (path, node.name) for path, module in graphs_by_path(program.graph_module) for node in module.graph.nodes
        }
        alike = [name for name, tip in self._tips.items() if _interface(tip.program) == _interface(program)]
        if not alike:
            return None
        # Methods are lowered in turns: of those that are equally near, it is the one that waits longest.
        method = max(alike, key=lambda name: len(names & self._tips[name].state.entities.keys()))
        point = self._now(method, program, "other changes", "What was done between runs of passes.")
        self._move(method, point)
        return method, point

    def _method_of(self, point: _Point) -> str:
        root: _Point = point
        while root.before is not None:
            root = root.before
        for name, tip in self._tips.items():
            at: _Point | None = tip
            while at is not None and at is not root:
                at = at.before
            if at is root:
                return name
        return next(iter(self._tips))

    def _move(self, method: str, point: _Point) -> None:
        """Make a point the last of a method, and the method the last of its turn."""
        del self._tips[method]
        self._tips[method] = point

    def _after(self, run: _Run, event: StageEvent) -> None:
        if event.modified:
            run.state = run.reader.read(event.program)
        report = None
        if isinstance(event.edit, ApplyRules):
            report = event.edit.report
            applied = () if report is None else report.applied
            self.rules.update({rule.id: rule for rule in event.edit.engine.rules if rule.id in applied})
        stage = RecordedStage(
            event.name, event.number, event.pipeline, event.modified, run.state.rows, *_about(event.edit), report
        )
        inner = run.inner
        if inner and tuple(inner[-1].rows) != tuple(stage.rows):
            inner.append(stage)
        run.steps[event.position] = inner or [stage]
        run.inner = []

    def _end(self, run: _Run, event: StageEvent) -> None:
        self._runs.pop()
        if run.start is None:
            if self._runs:
                self._runs[-1].inner += run.stages()
            return
        self._move(run.method, self._put(_Point(event.program, run.state, run.start, run.stages(), run.reader)))


def _interface(program: ExportedProgram) -> tuple[tuple[str, ...], int]:
    """Return the names of the inputs of a program, and how many outputs it has."""
    signature = program.graph_signature
    return tuple(map(str, signature.user_inputs)), len(signature.user_outputs)


def _about(edit: Any) -> tuple[str, str | None]:
    """Return what a pass is for, and where it is defined if it does not come with exirkit."""
    if edit is None:
        return "A check; it changes nothing.", None
    kind = type(edit)
    doc = inspect.getdoc(edit if inspect.isroutine(edit) else kind) or ""
    place = code_of_pass(edit)
    own = kind.__module__.partition(".")[0] == "exirkit"
    where = None if own or place.file is None else f"{place.file}:{place.line}"
    return doc.partition("\n")[0], where


@dataclass(frozen=True)
class StageChanges:
    """How a stage differs from the one before.

    Attributes:
        added: Nodes that are new.
        removed: Nodes that are gone.
        changed: Nodes of which something else is different than their place.
        moved: Nodes that stand in another order.
    """

    added: int
    removed: int
    changed: int
    moved: int

    @property
    def any(self) -> bool:
        """Whether there is any difference."""
        return bool(self.added or self.removed or self.changed or self.moved)


def changes_between(entity_of: Sequence[int], before: Sequence[int], after: Sequence[int]) -> StageChanges:
    """Compare two stages.

    Args:
        entity_of: For each row by number, the node that it is of.
        before: Rows of the earlier stage.
        after: Rows of the later one.
    """
    if before is after:
        return StageChanges(0, 0, 0, 0)
    old = {entity_of[row]: (at, row) for at, row in enumerate(before)}
    common = [(old[entity_of[row]], row) for row in after if entity_of[row] in old]
    changed = sum(row != other for (_, other), row in common)
    stay = _longest_rise([at for (at, _), _ in common])
    return StageChanges(len(after) - len(common), len(before) - len(common), changed, len(common) - stay)


def _longest_rise(numbers: Sequence[int]) -> int:
    """Return the length of the longest rising subsequence of distinct numbers."""
    ends: list[int] = []
    for one in numbers:
        at = bisect_left(ends, one)
        ends[at : at + 1] = [one]
    return len(ends)

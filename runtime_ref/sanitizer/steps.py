"""Steps that look at the shadow: before an instruction runs, at what it reads; after, at what it has written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exirkit.runtime_ref.interpreter.steps import Step

from .effects import Effect
from .findings import bad_read, bad_write, displaced_view, stray_write
from .memory import Holder, ShadowMemory, Site
from .places import Place
from .tracks import Neighbour, Track, neighbours_of, overwritten, track_of


@dataclass
class Watch:
    """What the knowing steps of one method share.

    Attributes:
        method: Its name.
        memory: The arenas.
        values: The value table.
        tracks: By value, the track of its cell if that is, or may show what is, in an arena.
        labels: How each tensor is called in messages.
        places: Where the planned tensors of the method lie.
        moving: Values that may come to show other memory while the method runs.
        foreign: For each value the state of other methods that has bytes in common with it.
    """

    method: str
    memory: ShadowMemory
    values: list[Any]
    tracks: list[Track | None]
    labels: Mapping[int, str]
    places: Mapping[int, Place]
    moving: AbstractSet[int]
    foreign: dict[int, tuple[Holder, ...]] = field(default_factory=dict)

    def track(self, index: int) -> Track | None:
        """Return where a value is now, or None if it is in no arena."""
        return track_of(self.tracks, self.values[index])

    def check_read(self, index: int) -> None:
        """Raise a `StepFailure` (EK660 to EK662) unless all bytes of a tensor are its own."""
        track = track_of(self.tracks, self.values[index])
        if track is not None and not track.is_intact():
            raise bad_read(self.memory, track, self.labels[index])

    def check_write(self, index: int, endangered: Sequence[int], effect: Effect | None = None) -> None:
        """Raise a `StepFailure` (EK663, EK664) if a write to a tensor hits what is still to be read.

        Args:
            index: The value that is written to, at its present shape.
            endangered: Values that are still to be read and may have bytes in common with it.
            effect: The instruction that writes, if it is one.
        """
        foreign = self.foreign.get(index, ())
        if not endangered and not foreign:
            return
        writer = self.track(index)
        if writer is None or writer.holder is None:
            return
        writer.locate()
        for other in endangered:
            victim = self.track(other)
            if victim is None or victim.holder is None or victim.shadow is not writer.shadow:
                continue
            victim.locate()
            hit = overwritten(writer, victim.holder, max(writer.start, victim.start), min(writer.end, victim.end))
            if hit is not None:
                labels = self.labels[index], self.labels[other]
                same = effect is not None and (other in effect.reads or other in effect.writes)
                raise bad_write(self.memory, writer, victim.holder, labels, hit, same_instruction=same)
        for holder in foreign:
            hit = overwritten(writer, holder, max(writer.start, holder.place.start), min(writer.end, holder.place.end))
            if hit is not None:
                labels = self.labels[index], holder.label
                raise bad_write(self.memory, writer, holder, labels, hit, same_instruction=False)

    def paint(self, index: int, site: Site) -> None:
        """Note that all of a tensor, at its present shape, was written."""
        track = self.track(index)
        if track is not None and track.holder is not None:
            track.paint(track.holder, self.memory.record(track.holder, site))


class KnowingStep:
    """One instruction under watch.

    Attributes:
        watch: What all steps share.
        effect: What the instruction does.
    """

    def __init__(
        self,
        watch: Watch,
        effect: Effect,
        step: Step,
        endangered: Mapping[int, Sequence[int]],
        keeps: Callable[[int], bool],
    ) -> None:
        """Prepare what can be known before anything runs.

        Args:
            watch: What all steps share.
            effect: What the instruction does.
            step: Runs it.
            endangered: For each value that it writes to, those that are still to be read and may be hit.
            keeps: Whether a value is the same tensor with the same shape at every run.
        """
        self.watch = watch
        self.effect = effect
        self._step = step
        self._site = Site(watch.method, f"instruction {effect.number}, {effect.text}")
        self._endangered = endangered
        # Where shapes are known beforehand the plan is at fault before the kernel is: torch refuses some overlaps.
        self._first = [index for index in effect.writes if endangered[index] and keeps(index)]
        fixed = [index for index in effect.reads if index not in watch.moving]
        self._fixed_reads = [(track, index) for index in fixed if (track := watch.tracks[index]) is not None]
        self._other_reads = [index for index in effect.reads if index in watch.moving]
        self._has_fixed_writes = watch.moving.isdisjoint(effect.writes)
        self._writes = [watch.tracks[index] for index in effect.writes]
        self._neighbours = neighbours_of(self._writes)

    def __call__(self) -> int | None:
        """Run the instruction once.

        Raises:
            StepFailure: EK660 to EK665, or that of the instruction.
        """
        watch = self.watch
        self._check_arguments(watch)
        if not self._has_fixed_writes:
            self._writes = [watch.track(index) for index in self.effect.writes]
            self._neighbours = neighbours_of(self._writes)
        before = [neighbour.content.tobytes() for neighbour in self._neighbours]
        try:
            target = self._step()
        except Exception:
            # Torch refuses some overlaps of arguments and results; the plan is at fault, not the kernel.
            self._check_results()
            raise
        for neighbour, content in zip(self._neighbours, before, strict=True):
            # Comparing bytes is fast, comparing a memoryview is not.
            if neighbour.content.tobytes() != content:
                self._report_stray(neighbour, content)
        for index, written in zip(self.effect.writes, self._writes, strict=True):
            if self._endangered[index] or watch.foreign:
                watch.check_write(index, self._endangered[index], self.effect)
            if written is not None and written.holder is not None:
                self._paint(written, written.holder)
        return target

    def _check_results(self) -> None:
        for index in self.effect.writes:
            self.watch.check_write(index, self._endangered[index], self.effect)

    def _check_arguments(self, watch: Watch) -> None:
        for track, index in self._fixed_reads:
            if not track.is_intact():
                raise bad_read(watch.memory, track, watch.labels[index])
        for index in self._other_reads:
            watch.check_read(index)
        for index in self._first:
            watch.check_write(index, self._endangered[index], self.effect)

    def _paint(self, track: Track, holder: Holder) -> None:
        track.paint(holder, self.watch.memory.record(holder, self._site))

    def _report_stray(self, neighbour: Neighbour, before: bytes) -> None:
        """Raise a `StepFailure` (EK665) for bytes that the instruction has changed beside what it writes to."""
        changed = np.flatnonzero(np.frombuffer(neighbour.content, np.uint8) != np.frombuffer(before, np.uint8))
        first, last = int(changed[0]) + neighbour.start, int(changed[-1]) + neighbour.start
        near = [track for track in self._writes if track is not None and track.shadow is neighbour.shadow]
        # It is put down to the tensor that ends or starts nearest to the first byte.
        track = min(near, key=lambda one: _distance(one, first))
        raise stray_write(self.watch.memory, track, self.watch.labels[track.cell.index], (first, last + 1))


def _distance(track: Track, at: int) -> int:
    assert track.holder is not None
    return min(abs(at - track.holder.place.end), abs(at - track.holder.place.start))


class RowStep(KnowingStep):
    """One copy of a row into a tensor whose rows come one by one.

    Attributes:
        row: The value that says which row.
    """

    row: int = -1

    def _paint(self, track: Track, holder: Holder) -> None:
        current = track.cell.current
        at = self.watch.values[self.row]
        if current is None or holder.record == 0 or (at == 0 and not track.cell.is_static):
            holder.record = self.watch.memory.record(holder, self._site)
        holder.pattern = None
        track.locate()
        if current is not None and current.is_contiguous():
            nbytes = len(track.writer) // max(1, current.shape[0])
            track.writer[at * nbytes : (at + 1) * nbytes] = holder.record
        else:
            track.writer[:] = holder.record


@dataclass
class ViewStep:
    """One instruction that makes a value show the memory of another.

    Attributes:
        watch: What all steps share.
        step: Runs it.
        source: The value whose memory is shown.
        target: The value that shows it.
    """

    watch: Watch
    step: Step
    source: int
    target: int

    def __call__(self) -> None:
        """Run the instruction once; raise a `StepFailure` (EK666) if the view is planned elsewhere."""
        self.step()
        watch = self.watch
        base, view = watch.track(self.source), watch.track(self.target)
        if view is None:
            return
        if base is None or base.holder is None:
            view.show(None, None)
            return
        base.locate()
        place = watch.places.get(view.cell.index)
        if place is not None and (place.start, place.arena) != (base.start, base.holder.place.arena):
            raise displaced_view(view, base, watch.labels[self.target], place.start)
        view.show(base.holder, base.shadow)

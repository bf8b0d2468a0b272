"""Steps that look at the shadow: before an instruction runs, at what it reads; after, at what it has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .shadow_effects import Effect
from .shadow_findings import bad_read, bad_write, displaced_view, stray_write
from .shadow_memory import GUARD_NBYTES, Holder, ShadowMemory, Site
from .shadow_places import Place
from .shadow_tracks import Track, overwritten, track_of
from .steps import Step


@dataclass
class Watch:
    """What the knowing steps of one method share.

    Attributes:
        memory: The arenas.
        values: The value table.
        tracks: By value, the track of its cell if that is, or may show what is, in an arena.
        labels: How each tensor is called in messages.
        places: Where the planned tensors of the method lie.
        foreign: For each value the state of other methods that has bytes in common with it.
    """

    memory: ShadowMemory
    values: list[Any]
    tracks: list[Track | None]
    labels: Mapping[int, str]
    places: Mapping[int, Place]
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
            track.locate()
            track.writer.fill(self.memory.record(track.holder, site))


@dataclass
class KnowingStep:
    """One instruction under watch.

    Attributes:
        watch: What all steps share.
        effect: What the instruction does.
        step: Runs it.
        site: What its writes are put down to.
        endangered: For each value that it writes to, those that are still to be read and may be hit.
        first: The values that it writes to whose shapes are known before it runs.
    """

    watch: Watch
    effect: Effect
    step: Step
    site: Site
    endangered: Mapping[int, Sequence[int]]
    first: Sequence[int]

    def __call__(self) -> int | None:
        """Run the instruction once."""
        watch = self.watch
        effect = self.effect
        for index in effect.reads:
            watch.check_read(index)
        for index in self.first:
            watch.check_write(index, self.endangered[index], effect)
        before = self._neighbours()
        target = self.step()
        for track, *around in before:
            if [one.tobytes() for one in track.around] != around:
                self._report_stray(track, around)
        for index in effect.writes:
            watch.check_write(index, self.endangered[index], effect)
            self._paint(index)
        return target

    def _neighbours(self) -> list[Any]:
        """Return what lies around the places of all that will be written to."""
        found: list[Any] = []
        for index in self.effect.writes:
            track = self.watch.track(index)
            if track is not None and track.around:
                found.append((track, track.around[0].tobytes(), track.around[1].tobytes()))
        return found

    def _paint(self, index: int) -> None:
        self.watch.paint(index, self.site)

    def _report_stray(self, track: Track, around: Sequence[bytes]) -> None:
        """Raise a `StepFailure` (EK665) unless only what the instruction writes to besides has changed."""
        assert track.holder is not None
        others = [self.watch.track(index) for index in self.effect.writes]
        places = [one.holder.place for one in others if one is not None and one.holder is not None]
        starts = (track.holder.place.start - GUARD_NBYTES, track.holder.place.end)
        for start, now, old in zip(starts, track.around, around, strict=True):
            changed = np.flatnonzero(now != np.frombuffer(old, dtype=np.uint8)) + start
            for place in places:
                changed = changed[(changed < place.start) | (changed >= place.end)]
            if len(changed):
                label = self.watch.labels[track.cell.index]
                raise stray_write(self.watch.memory, track, label, (int(changed[0]), int(changed[-1]) + 1))


@dataclass
class RowStep(KnowingStep):
    """One copy of a row into a tensor whose rows come one by one.

    Attributes:
        row: The value that says which row.
    """

    row: int = -1

    def _paint(self, index: int) -> None:
        track = self.watch.track(index)
        if track is None or track.holder is None or track.cell.current is None:
            return
        track.locate()
        current = track.cell.current
        at = self.watch.values[self.row]
        nbytes = (track.end - track.start) // max(1, current.shape[0])
        is_new = track.holder.record == 0 or (at == 0 and not track.cell.is_static)
        record = self.watch.memory.record(track.holder, self.site) if is_new else track.holder.record
        if current.is_contiguous():
            track.writer[at * nbytes : (at + 1) * nbytes] = record
        else:
            track.writer[:] = record


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

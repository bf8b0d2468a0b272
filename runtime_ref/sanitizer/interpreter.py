"""The memory sanitizer: an interpreter that checks every access of a method to the bytes of its arenas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exirkit.emit import ExecutionPlan, KernelCall, PteFile, Tensor
from exirkit.ir import TensorShapeDynamism
from exirkit.runtime_ref.checks.calls import PlanFacts, tensors_in
from exirkit.runtime_ref.interpreter.interpreter import Interpreter, Step
from exirkit.runtime_ref.interpreter.values import StepFailure, TensorCell
from exirkit.runtime_ref.limits import Limits

from .allocations import Allocation, has_contents, map_allocations
from .effects import COPY_ROW, VIEW, Effect, effects_of
from .findings import bad_read, bad_write, changed_guard, displaced_view, label_of, stray_write
from .lifetimes import Conflicts, Liveness, bits
from .memory import Neighbour, Owner, Pointer, ShadowMemory, Site, neighbours_of, overwritten, pointer_of


@dataclass
class Sanitizer:
    """What the sanitized steps of one method share.

    Attributes:
        method: Its name.
        memory: The arenas.
        values: The value table.
        pointers: By value, the pointer of its cell if that is, or may show what is, in an arena.
        labels: How each tensor is called in messages.
        places: Where the planned tensors of the method lie.
        moving: Values that may come to show other memory while the method runs.
        foreign: For each value the state of other methods that has bytes in common with it.
    """

    method: str
    memory: ShadowMemory
    values: list[Any]
    pointers: list[Pointer | None]
    labels: Mapping[int, str]
    places: Mapping[int, Allocation]
    moving: AbstractSet[int]
    foreign: dict[int, tuple[Owner, ...]] = field(default_factory=dict)

    def pointer(self, index: int) -> Pointer | None:
        """Return where a value is now, or None if it is in no arena."""
        return pointer_of(self.pointers, self.values[index])

    def check_read(self, index: int) -> None:
        """Raise a `StepFailure` (EK660 to EK662) unless all bytes of a tensor are its own."""
        pointer = pointer_of(self.pointers, self.values[index])
        if pointer is not None and not pointer.is_intact():
            raise bad_read(self.memory, pointer, self.labels[index])

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
        writer = self.pointer(index)
        if writer is None or writer.owner is None:
            return
        writer.locate()
        for other in endangered:
            victim = self.pointer(other)
            if victim is None or victim.owner is None or victim.shadow is not writer.shadow:
                continue
            victim.locate()
            hit = overwritten(writer, victim.owner, max(writer.start, victim.start), min(writer.end, victim.end))
            if hit is not None:
                labels = self.labels[index], self.labels[other]
                same = effect is not None and (other in effect.reads or other in effect.writes)
                raise bad_write(self.memory, writer, victim.owner, labels, hit, same_instruction=same)
        for owner in foreign:
            hit = overwritten(writer, owner, max(writer.start, owner.place.start), min(writer.end, owner.place.end))
            if hit is not None:
                labels = self.labels[index], owner.label
                raise bad_write(self.memory, writer, owner, labels, hit, same_instruction=False)

    def mark(self, index: int, site: Site) -> None:
        """Note that all of a tensor, at its present shape, was written."""
        pointer = self.pointer(index)
        if pointer is not None and pointer.owner is not None:
            pointer.mark(pointer.owner, self.memory.record(pointer.owner, site))


class SanitizedStep:
    """One instruction under sanitizer.

    Attributes:
        sanitizer: What all steps share.
        effect: What the instruction does.
    """

    def __init__(
        self,
        sanitizer: Sanitizer,
        effect: Effect,
        step: Step,
        endangered: Mapping[int, Sequence[int]],
        keeps: Callable[[int], bool],
    ) -> None:
        """Prepare what can be known before anything runs.

        Args:
            sanitizer: What all steps share.
            effect: What the instruction does.
            step: Runs it.
            endangered: For each value that it writes to, those that are still to be read and may be hit.
            keeps: Whether a value is the same tensor with the same shape at every run.
        """
        self.sanitizer = sanitizer
        self.effect = effect
        self._step = step
        self._site = Site(sanitizer.method, f"instruction {effect.number}, {effect.text}")
        self._endangered = endangered
        # Where shapes are known beforehand the plan is at fault before the kernel is: torch rejects some overlaps.
        self._first = [index for index in effect.writes if endangered[index] and keeps(index)]
        fixed = [index for index in effect.reads if index not in sanitizer.moving]
        self._fixed_reads = [(pointer, index) for index in fixed if (pointer := sanitizer.pointers[index]) is not None]
        self._other_reads = [index for index in effect.reads if index in sanitizer.moving]
        self._has_fixed_writes = sanitizer.moving.isdisjoint(effect.writes)
        self._writes = [sanitizer.pointers[index] for index in effect.writes]
        self._neighbours = neighbours_of(self._writes)

    def __call__(self) -> int | None:
        """Run the instruction once.

        Raises:
            StepFailure: EK660 to EK665, or that of the instruction.
        """
        sanitizer = self.sanitizer
        self._check_arguments(sanitizer)
        if not self._has_fixed_writes:
            self._writes = [sanitizer.pointer(index) for index in self.effect.writes]
            self._neighbours = neighbours_of(self._writes)
        before = [neighbour.content.tobytes() for neighbour in self._neighbours]
        try:
            target = self._step()
        except Exception:
            # Torch rejects some overlaps of arguments and results; the plan is at fault, not the kernel.
            self._check_results()
            raise
        for neighbour, content in zip(self._neighbours, before, strict=True):
            # Comparing bytes is fast, comparing a memoryview is not.
            if neighbour.content.tobytes() != content:
                self._report_stray(neighbour, content)
        for index, written in zip(self.effect.writes, self._writes, strict=True):
            if self._endangered[index] or sanitizer.foreign:
                sanitizer.check_write(index, self._endangered[index], self.effect)
            if written is not None and written.owner is not None:
                self._mark(written, written.owner)
        return target

    def _check_results(self) -> None:
        for index in self.effect.writes:
            self.sanitizer.check_write(index, self._endangered[index], self.effect)

    def _check_arguments(self, sanitizer: Sanitizer) -> None:
        for pointer, index in self._fixed_reads:
            if not pointer.is_intact():
                raise bad_read(sanitizer.memory, pointer, sanitizer.labels[index])
        for index in self._other_reads:
            sanitizer.check_read(index)
        for index in self._first:
            sanitizer.check_write(index, self._endangered[index], self.effect)

    def _mark(self, pointer: Pointer, owner: Owner) -> None:
        pointer.mark(owner, self.sanitizer.memory.record(owner, self._site))

    def _report_stray(self, neighbour: Neighbour, before: bytes) -> None:
        """Raise a `StepFailure` (EK665) for bytes that the instruction has changed beside what it writes to."""
        changed = np.flatnonzero(np.frombuffer(neighbour.content, np.uint8) != np.frombuffer(before, np.uint8))
        first, last = int(changed[0]) + neighbour.start, int(changed[-1]) + neighbour.start
        near = [pointer for pointer in self._writes if pointer is not None and pointer.shadow is neighbour.shadow]
        # It is put down to the tensor that ends or starts nearest to the first byte.
        pointer = min(near, key=lambda one: _distance(one, first))
        raise stray_write(self.sanitizer.memory, pointer, self.sanitizer.labels[pointer.cell.index], (first, last + 1))


def _distance(pointer: Pointer, at: int) -> int:
    assert pointer.owner is not None
    return min(abs(at - pointer.owner.place.end), abs(at - pointer.owner.place.start))


class RowStep(SanitizedStep):
    """One copy of a row into a tensor whose rows come one by one.

    Attributes:
        row: The value that says which row.
    """

    row: int = -1

    def _mark(self, pointer: Pointer, owner: Owner) -> None:
        current = pointer.cell.current
        at = self.sanitizer.values[self.row]
        if current is None or owner.record == 0 or (at == 0 and not pointer.cell.is_static):
            owner.record = self.sanitizer.memory.record(owner, self._site)
        owner.pattern = None
        pointer.locate()
        if current is not None and current.is_contiguous():
            nbytes = len(pointer.writer) // max(1, current.shape[0])
            pointer.writer[at * nbytes : (at + 1) * nbytes] = owner.record
        else:
            pointer.writer[:] = owner.record


@dataclass
class ViewStep:
    """One instruction that makes a value show the memory of another.

    Attributes:
        sanitizer: What all steps share.
        step: Runs it.
        source: The value whose memory is shown.
        target: The value that shows it.
    """

    sanitizer: Sanitizer
    step: Step
    source: int
    target: int

    def __call__(self) -> None:
        """Run the instruction once; raise a `StepFailure` (EK666) if the view is planned elsewhere."""
        self.step()
        sanitizer = self.sanitizer
        base, view = sanitizer.pointer(self.source), sanitizer.pointer(self.target)
        if view is None:
            return
        if base is None or base.owner is None:
            view.show(None, None)
            return
        base.locate()
        place = sanitizer.places.get(view.cell.index)
        if place is not None and (place.start, place.arena) != (base.start, base.owner.place.arena):
            raise displaced_view(view, base, sanitizer.labels[self.target], place.start)
        view.show(base.owner, base.shadow)


class SanitizedInterpreter(Interpreter):
    """One method that fails as soon as it reads or writes a byte that it should not, whatever the numbers are.

    Requires: as `Interpreter`.
    """

    def __init__(
        self,
        file: PteFile,
        plan: ExecutionPlan,
        facts: PlanFacts,
        memory: ShadowMemory,
        limits: Limits,
        *,
        views: Mapping[int, int] | None = None,
        in_place: bool = False,
    ) -> None:
        self._in_place = in_place
        self._memory = memory
        effects = effects_of(plan, facts)
        self._places = map_allocations(plan, facts, effects, views=views)
        self._own: dict[int, Owner] = {}
        for index in sorted(self._places.of):
            if self._places.owner(index) == index:
                self._own[index] = self._owner(plan, index)
        fresh = self._clear_new_state(plan)
        super().__init__(file, plan, facts, memory.arenas, limits)
        labels = {
            index: label_of(plan, index) for index, each in enumerate(plan.values) if isinstance(each.val, Tensor)
        }
        moving = facts.rebound | {target for _, target in facts.handles}
        self._sanitizer = Sanitizer(
            plan.name, memory, self._values, self._pointers(effects), labels, self._places.of, moving
        )
        ends = [tensor for index in plan.outputs for tensor in tensors_in(plan, index)]
        liveness = Liveness(effects, self._places, [*ends, *self._places.state])
        conflicts = Conflicts(self._places, facts, len(plan.values))
        self._read_at_start = {index: conflicts.of(index, liveness.before[0]) for index in plan.inputs}
        self._written = sorted({index for effect in effects for index in effect.writes} | set(plan.inputs))
        self._wrap_steps(effects, liveness, conflicts)
        self._known_states = 0
        for index in fresh:
            self._sanitizer.mark(index, Site(plan.name, "its initial contents"))

    def _owner(self, plan: ExecutionPlan, index: int) -> Owner:
        place = self._places.of[index]
        tensor = plan.values[index].val
        assert isinstance(tensor, Tensor)
        key = None
        if index in self._places.state:
            extra = tensor.extra_tensor_info
            key = (extra.fully_qualified_name if extra is not None else None, place, tensor.scalar_type)
        owner = Owner(plan.name, index, place, label_of(plan, index), key=key)
        return owner if key is None else self._memory.state(owner)

    def _clear_new_state(self, plan: ExecutionPlan) -> list[int]:
        """Make zeros of the state that starts so, where nothing else is; return all state that starts now.

        State with contents comes last, as the value table is filled later.
        """
        zero, stored = [], []
        for index in sorted(self._places.state):
            owner = self._own[index]
            at = slice(owner.place.start, owner.place.end)
            shadow = self._memory.shadows[owner.place.arena]
            if has_contents(plan, index):
                stored.append(index)
            elif owner.record == 0 and not shadow.writer[at].any():
                shadow.inside[at] = 0
                zero.append(index)
        return zero + stored

    def _pointers(self, effects: Sequence[Effect]) -> list[Pointer | None]:
        shown = {target for effect in effects for _, target in effect.handles}
        pointers: list[Pointer | None] = []
        for index, entry in enumerate(self._values):
            pointer = None
            if isinstance(entry, TensorCell) and index in self._places.of:
                owner = self._own[self._places.owner(index)]
                pointer = Pointer(entry, owner, self._memory.shadows[owner.place.arena])
            elif isinstance(entry, TensorCell) and index in shown:
                pointer = Pointer(entry, None, None)
            pointers.append(pointer)
        return pointers

    def _wrap_steps(self, effects: Sequence[Effect], liveness: Liveness, conflicts: Conflicts) -> None:
        number = 0
        for place, chain in enumerate(self._chains):
            wrapped: list[Step] = []
            for step in chain:
                instruction = self.plan.chains[place].instructions[len(wrapped)].instr_args
                args = instruction.args if isinstance(instruction, KernelCall) else []
                wrapped.append(self._wrapped(effects[number], step, args, liveness, conflicts))
                number += 1
            self._chains[place] = wrapped

    def _wrapped(
        self, effect: Effect, step: Step, args: Sequence[int], liveness: Liveness, conflicts: Conflicts
    ) -> Step:
        if effect.text == VIEW:
            return ViewStep(self._sanitizer, step, args[0], args[2])
        if not effect.reads and not effect.writes:
            return step
        later = liveness.after(effect.number) | bits(effect.reads) | bits(effect.writes)
        spent = self._spent_arguments(effect, liveness.after(effect.number)) if self._in_place else ()
        endangered = {
            index: tuple(one for one in conflicts.of(index, later) if (index, one) not in spent)
            for index in effect.writes
        }
        keeps = self._environment.keeps
        if effect.text == COPY_ROW:
            rows = RowStep(self._sanitizer, effect, step, endangered, keeps)
            rows.row = args[2]
            return rows
        return SanitizedStep(self._sanitizer, effect, step, endangered, keeps)

    def _spent_arguments(self, effect: Effect, later: int) -> set[tuple[int, int]]:
        """Return pairs (result, argument): the result lies exactly over an argument that nothing reads any more.

        Only what the kernel is declared to overwrite, laid out alike in every run, and not what is visible through
        values that may come to show other memory.
        """
        found = set()
        for result, argument in effect.overwrites:
            fixed = self._sanitizer.moving.isdisjoint((result, argument))
            if fixed and not later >> argument & 1 and self._lie_alike(result, argument):
                found.add((result, argument))
        return found

    def _lie_alike(self, result: int, argument: int) -> bool:
        one, other = self.plan.values[result].val, self.plan.values[argument].val
        assert isinstance(one, Tensor)
        assert isinstance(other, Tensor)
        form = [(each.scalar_type, each.sizes, each.dim_order, each.shape_dynamism) for each in (one, other)]
        is_static = one.shape_dynamism == TensorShapeDynamism.STATIC
        return is_static and form[0] == form[1] and self._places.of.get(result) == self._places.of.get(argument)

    def _start(self, inputs: Sequence[Any]) -> None:
        self._memory.start_run(self._own.values())
        self._find_foreign_state()
        super()._start(inputs)
        for position, index in enumerate(self.plan.inputs):
            if index not in self._sanitizer.labels:
                continue
            try:
                self._sanitizer.check_write(index, self._read_at_start[index])
            except StepFailure as failure:
                raise self._failed(failure, f"input {position}") from None
            self._sanitizer.mark(index, Site(self.plan.name, f"input {position}"))

    def _output(self, position: int, index: int) -> Any:
        try:
            for tensor in tensors_in(self.plan, index):
                self._sanitizer.check_read(tensor)
        except StepFailure as failure:
            raise self._failed(failure, f"output {position}") from None
        return super()._output(position, index)

    def _end(self) -> None:
        for shadow in self._memory.shadows.values():
            changed = shadow.guards_changed()
            if changed is not None:
                raise self._failed(changed_guard(shadow, changed), None)

    def _find_foreign_state(self) -> None:
        """Look again at the state of other methods if some were loaded since."""
        if self._known_states == len(self._memory.states):
            return
        self._known_states = len(self._memory.states)
        own = set(self._own.values())
        foreign = [state for state in self._memory.states if state not in own]
        self._sanitizer.foreign = {
            index: tuple(state for state in foreign if state.place.overlaps(self._places.of[index]))
            for index in self._written
            if index in self._places.of
        }

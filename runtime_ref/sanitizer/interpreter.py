"""The memory sanitizer: an interpreter that checks every access of a method to the bytes of its arenas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exirkit.emit import ExecutionPlan, KernelCall, PteFile, Tensor
from exirkit.ir import TensorShapeDynamism
from exirkit.runtime_ref.checks.plan_facts import PlanFacts, tensors_in
from exirkit.runtime_ref.interpreter.cells import StepFailure, TensorCell
from exirkit.runtime_ref.interpreter.interpreter import Interpreter
from exirkit.runtime_ref.interpreter.steps import Step
from exirkit.runtime_ref.limits import Limits

from .allocations import has_contents, map_allocations
from .effects import COPY_ROW, VIEW, Effect, effects_of
from .findings import changed_guard, label_of
from .liveness import Conflicts, Liveness, bits
from .memory import Owner, ShadowMemory, Site
from .pointers import Pointer
from .steps import RowStep, SanitizedStep, Sanitizer, ViewStep


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

"""Lifetimes of planned tensors, from the instructions of a method: what is still to be read after each of them.

Values are what counts, not memory: a move makes a value another tensor, and what the value is read for later keeps
that tensor alive from then on. Sets of values are bits of one integer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import or_
from typing import Final, Literal

from exirkit.emit import DelegateCall, ExecutionPlan, KernelCall, MoveCall, PteFile
from exirkit.ir import Diagnostic, Location, ModelError
from exirkit.runtime_ref.checks.calls import PlanFacts, tensors_in
from exirkit.runtime_ref.checks.program import check_program
from exirkit.runtime_ref.kernels.registry import default_registry
from exirkit.runtime_ref.limits import Limits

from .allocations import Allocation, AllocationMap, has_contents, map_allocations
from .effects import VIEW, Effect, effects_of


class Liveness:
    """What is still to be read, before and after every instruction of one method.

    Attributes:
        before: For each instruction the values that it or a later one reads; the last entry is the end.
    """

    def __init__(self, effects: Sequence[Effect], places: AllocationMap, ends: Iterable[int]) -> None:
        """Walk backwards until nothing changes.

        Args:
            effects: All instructions.
            places: Which values are views of which.
            ends: What is read when the method has ended: outputs, and state.
        """
        self._effects = effects
        self._views: dict[int, int] = {}
        for view, base in places.base.items():
            self._views[base] = self._views.get(base, 0) | 1 << view
        self.before: list[int] = [0] * len(effects) + [bits(ends)]
        kills = [self._killed(effect.kills) for effect in effects]
        reads = [bits(effect.reads) for effect in effects]
        changed = True
        while changed:
            changed = False
            for number in range(len(effects) - 1, -1, -1):
                live = self.after(number)
                found = (live & ~kills[number]) | reads[number]
                for source, target in effects[number].handles:
                    found |= (live >> target & 1) << source
                if found != self.before[number]:
                    self.before[number] = found
                    changed = True

    def after(self, number: int) -> int:
        """Return the values that are read after an instruction."""
        live = 0
        for following in self._effects[number].following:
            live |= self.before[following]
        return live

    def _killed(self, kills: Iterable[int]) -> int:
        killed = 0
        for index in kills:
            killed |= 1 << index | self._views.get(index, 0)
        return killed


class Conflicts:
    """Which values may lie, at some time, where another one may write."""

    def __init__(self, places: AllocationMap, facts: PlanFacts, count: int) -> None:
        self._places = places
        # A value may show the memory of everything that it may become.
        held: dict[int, list[Allocation]] = {}
        becoming = {target for _, target in facts.handles}
        for index in range(count):
            tensors = facts.may_have_been([index]) if index in becoming else (index,)
            found = [places.of[one] for one in sorted(tensors) if one in places.of]
            if found:
                held[index] = found
        self._held = held
        entries = [(place, index) for index, all_places in held.items() for place in all_places]
        self._arenas = {
            arena: _Overlaps([(place, index) for place, index in entries if place.arena == arena])
            for arena in {place.arena for place, _ in entries}
        }

    def of(self, index: int, candidates: int) -> tuple[int, ...]:
        """Return those of the `candidates` (bits) that share bytes with value `index` and are not views of it."""
        found = 0
        for place in self._held.get(index, ()):
            found |= self._arenas[place.arena].with_place(place)
        return tuple(
            one
            for one in members(found & candidates & ~(1 << index))
            if self._places.owner(one) != self._places.owner(index)
        )


class _Overlaps:
    """AllocationMap of one arena, by their starts and by their ends."""

    def __init__(self, entries: Sequence[tuple[Allocation, int]]) -> None:
        by_start = sorted((place.start, index) for place, index in entries)
        by_end = sorted(((place.end, index) for place, index in entries), reverse=True)
        self._starts = [start for start, _ in by_start]
        self._ends = [-end for end, _ in by_end]
        self._started: list[int] = [0, *accumulate((1 << index for _, index in by_start), or_)]
        self._unended: list[int] = [0, *accumulate((1 << index for _, index in by_end), or_)]

    def with_place(self, place: Allocation) -> int:
        """Return the values that may share bytes with a place; those with several places may not really do."""
        started: int = self._started[bisect_left(self._starts, place.end)]
        return started & self._unended[bisect_right(self._ends, -place.start - 1)]


def bits(indices: Iterable[int]) -> int:
    """Return a set of values as the bits of a number."""
    found = 0
    for index in indices:
        found |= 1 << index
    return found


def members(found: int) -> Iterator[int]:
    """Yield the values of a set, in rising order."""
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest


LifetimeKind = Literal["input", "output", "state", "activation"]

# Bits that liveness may hold and touch; an honest program of 20,000 instructions needs a thousandth of it.
_MAX_LIVENESS_BITS: Final = 1 << 32
# Steps from one name of a tensor to another.
_MAX_RENAMES: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class PlannedLifetime:
    """When a planned tensor needs its memory.

    Attributes:
        value: Its number in the table of values.
        arena: Number of its arena.
        start: First byte.
        end: Byte behind the last one.
        kind: What it is to the method; a tensor that is input and output is an input.
        spans: First and last instruction of each time that it is needed, both inclusive, in rising order.
        producer: The first instruction that writes to it, if any does.
        readers: The instructions that read it, also through views and under other names.
    """

    value: int
    arena: int
    start: int
    end: int
    kind: LifetimeKind
    spans: tuple[tuple[int, int], ...]
    producer: int | None
    readers: tuple[int, ...]


def lifetimes_of_program(
    file: PteFile, *, views: Mapping[str, Mapping[int, int]] | None = None
) -> dict[str, list[PlannedLifetime]]:
    """Return the lives of the planned tensors of every method, by value.

    They follow from what instructions read and write, along all their jumps. Inputs that are read are there from the
    first instruction, those that are not read are left out; state is there all the time. Of a
    delegate or operator that is not known here, arguments that nothing has written before are taken for results, and
    all others for read.

    Args:
        file: A program; it is checked first.
        views: By method, the value whose memory each view without instruction shows; guessed from places if absent.

    Raises:
        ProgramVerifyError: EK601 to EK626, the program is wrong.
        ModelError: EK667, a method has too many values, instructions and jumps.
    """
    facts = check_program(file, default_registry(), Limits())
    return {
        plan.name: _Lifetimes(plan, facts[plan.name], (views or {}).get(plan.name)).found()
        for plan in file.program.execution_plan
    }


def effects_of_program(file: PteFile) -> dict[str, list[Effect]]:
    """Return by method what each instruction reads and writes, calls of unknown operators and of delegates included.

    Args:
        file: A program; it is checked first.

    Raises:
        ProgramVerifyError: EK601 to EK626, the program is wrong.
    """
    facts = check_program(file, default_registry(), Limits())
    return {plan.name: _all_effects(plan, facts[plan.name]) for plan in file.program.execution_plan}


def _all_effects(plan: ExecutionPlan, facts: PlanFacts) -> list[Effect]:
    first_use = _first_uses(plan)

    def foreign(number: int, args: Sequence[int]) -> Effect:
        tensors = list(dict.fromkeys(tensor for index in args for tensor in tensors_in(plan, index)))
        last = set(tensors_in(plan, args[-1])) if args else set()
        outs = tuple(
            one for one in tensors if (one in last or first_use[one] == number) and not has_contents(plan, one)
        )
        reads = tuple(one for one in tensors if one not in outs)
        return Effect(number, "unknown", reads, outs, outs, outs, following=(number + 1,))

    return effects_of(plan, facts, unknown=foreign)


class _Lifetimes:
    """The lives of one method."""

    def __init__(self, plan: ExecutionPlan, facts: PlanFacts, views: Mapping[int, int] | None) -> None:
        self._plan = plan
        self._facts = facts
        self._effects = _all_effects(plan, facts)
        self._names = {target for _, target in facts.handles}
        _reject_giants(plan, self._effects, len(self._names) * len(facts.handles))
        self._places = map_allocations(plan, facts, self._effects, views=views)
        self._owners_of: dict[int, tuple[int, ...]] = {}
        self._inputs = {tensor for index in plan.inputs for tensor in tensors_in(plan, index)}
        self._outputs = {tensor for index in plan.outputs for tensor in tensors_in(plan, index)}
        self._written = {index for effect in self._effects for index in effect.writes}
        self._show_views()

    def found(self) -> list[PlannedLifetime]:
        """Return the life of every tensor that has bytes of its own, in the order of values."""
        producers, readers = self._producers(), self._readers()
        becomes_output = self._facts.may_have_been(self._outputs)
        lives = []
        for index, spans in sorted(self._spans().items()):
            place = self._places.of[index]
            if index in self._places.state:
                kind: LifetimeKind = "state"
            else:
                kind = "input" if index in self._inputs else "output" if index in becomes_output else "activation"
            read = tuple(sorted(readers.get(index, ())))
            lives.append(
                PlannedLifetime(
                    index, place.arena, place.start, place.end, kind, tuple(spans), producers.get(index), read
                )
            )
        return lives

    def _show_views(self) -> None:
        """Let views that an instruction makes be views of their source, if they lie in it."""
        of = self._places.of
        for effect in self._effects:
            for source, target in effect.handles if effect.text == VIEW else ():
                if source in of and target in of and _lies_in(of[target], of[source]):
                    self._places.base.setdefault(target, source)

    def _owner(self, index: int) -> int:
        """Return the tensor at the end of a chain of views."""
        for _ in range(len(self._places.base)):
            if index not in self._places.base:
                break
            index = self._places.base[index]
        return index

    def _owners(self, index: int) -> tuple[int, ...]:
        """Return the tensors whose memory a value may show, as far as it is planned."""
        if index not in self._owners_of:
            tensors = self._facts.may_have_been([index]) if index in self._names else (index,)
            shown = {self._owner(one) for one in tensors}
            held = sorted(one for one in shown if one in self._places.of and not self._is_a_name(one))
            self._owners_of[index] = tuple(held)
        return self._owners_of[index]

    def _is_a_name(self, index: int) -> bool:
        """Return whether a value only ever stands for other tensors, so that nothing is in its own memory."""
        if index not in self._facts.rebound or index in self._written:
            return False
        return index not in self._inputs and index not in self._places.state

    def _spans(self) -> dict[int, list[tuple[int, int]]]:
        """Return when each owner is needed, from the changes between one instruction and the next."""
        count = max(len(self._effects), 1)
        later = Liveness(self._effects, self._places, self._outputs | self._places.state).before
        # What is read later has no contents yet where no way leads past a write to it.
        needed = [live & held for live, held in zip(later, self._held(), strict=True)]
        uses: Counter[int] = Counter()
        since: dict[int, int] = {}
        spans: dict[int, list[tuple[int, int]]] = {}
        before = 0
        for number in range(count + 1):
            now = self._needed_at(number, needed) if number < count else 0
            changed = set()
            for index in members(now ^ before):
                for owner in self._owners(index):
                    uses[owner] += 1 if now >> index & 1 else -1
                    changed.add(owner)
            for owner in changed:
                if uses[owner] and owner not in since:
                    since[owner] = number
                elif not uses[owner] and owner in since:
                    spans.setdefault(owner, []).append((since.pop(owner), number - 1))
            before = now
        spans.update({owner: [(0, count - 1)] for owner in self._places.state})
        return spans

    def _held(self) -> list[int]:
        """Return for each instruction, and for the end, the values that may hold something before it, as bits."""
        shown: dict[int, int] = {}
        for view, base in self._places.base.items():
            shown[base] = shown.get(base, 0) | 1 << view
        made = [bits((*effect.writes, *(target for _, target in effect.handles))) for effect in self._effects]
        made = [found | _union(shown.get(index, 0) for index in members(found)) for found in made]
        first = bits(self._inputs | self._places.state)
        held = [0] * (len(self._effects) + 1)
        held[0] = first | _union(shown.get(index, 0) for index in members(first))
        changed = True
        while changed:
            changed = False
            for number, effect in enumerate(self._effects):
                after = held[number] | made[number]
                for following in effect.following:
                    if after & ~held[following]:
                        held[following] |= after
                        # What follows in order is still to be visited in this round.
                        changed = changed or following <= number
        return held

    def _needed_at(self, number: int, needed: Sequence[int]) -> int:
        """Return the values that have to have their memory while an instruction runs, as bits."""
        found = needed[number]
        if number < len(self._effects):
            found |= bits(self._effects[number].writes)
        return found

    def _producers(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for effect in self._effects:
            for index in effect.writes:
                for owner in self._owners(index):
                    found.setdefault(owner, effect.number)
        return found

    def _readers(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for effect in self._effects:
            for index in effect.reads:
                for owner in self._owners(index):
                    found.setdefault(owner, set()).add(effect.number)
        return found


def _first_uses(plan: ExecutionPlan) -> dict[int, int]:
    """Return the first instruction that takes each tensor; -1 for inputs."""
    found = {tensor: -1 for index in plan.inputs for tensor in tensors_in(plan, index)}
    instructions = (instruction.instr_args for chain in plan.chains for instruction in chain.instructions)
    for number, step in enumerate(instructions):
        if isinstance(step, KernelCall | DelegateCall):
            for index in step.args:
                for tensor in tensors_in(plan, index):
                    found.setdefault(tensor, number)
        elif isinstance(step, MoveCall):
            for index in (step.move_from, step.move_to):
                found.setdefault(index, number)
    return found


def _reject_giants(plan: ExecutionPlan, effects: Sequence[Effect], renames: int) -> None:
    """Raise ModelError EK667 if liveness would take minutes or gigabytes."""
    jumps_back = sum(1 for effect in effects if any(one <= effect.number for one in effect.following))
    nbits = len(plan.values) * len(effects) * (jumps_back + 1)
    if nbits > _MAX_LIVENESS_BITS or renames > _MAX_RENAMES:
        raise ModelError(
            Diagnostic.of(
                "EK667",
                f"method {plan.name!r} is too large to tell when its tensors are needed",
                location=Location(method=plan.name),
                notes=(f"values: {len(plan.values)}", f"instructions: {len(effects)}", f"jumps back: {jumps_back}"),
                expected=f"a product of at most {_MAX_LIVENESS_BITS}, and at most {_MAX_RENAMES} renames",
            )
        )


def _union(sets: Iterable[int]) -> int:
    """Return the union of sets of values, as bits."""
    found = 0
    for one in sets:
        found |= one
    return found


def _lies_in(inner: Allocation, outer: Allocation) -> bool:
    return inner.arena == outer.arena and outer.start <= inner.start and inner.end <= outer.end

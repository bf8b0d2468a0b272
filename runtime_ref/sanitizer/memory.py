"""Memory under the sanitizer: the allocation map, which write put each byte, where each tensor's pointer is now.

A view with static shape that lies in planned memory needs no instruction: it is a value like any other that nothing
ever writes to. Which value it shows is not in the file, so it is found from the places.

Every write to a tensor gets a number, and the shadow of an arena holds for each byte the number of the last write
to it. What number a tensor's bytes must have is known to its `Owner`; views of one tensor share a owner. Number 0
is not a write: poison.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

import numpy as np
import torch

from exirkit.emit import (
    Bool,
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    Int,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Tensor,
)
from exirkit.ir import overwritable_arguments
from exirkit.runtime_ref.backends import results_of_delegate
from exirkit.runtime_ref.checks.calls import PlanFacts, extent_nbytes, is_external, operator_name, tensors_in
from exirkit.runtime_ref.interpreter.values import ALIGNMENT_NBYTES, Arenas, TensorCell
from exirkit.runtime_ref.kernels.kernel import Kernel, KernelKind


@dataclass(frozen=True, slots=True)
class Allocation:
    """Bytes of an arena: `start` and `end` (exclusive) bound all that a tensor may ever use."""

    arena: int
    start: int
    end: int

    def overlaps(self, other: Allocation) -> bool:
        """Return whether two places have a byte in common."""
        return self.arena == other.arena and self.start < other.end and other.start < self.end


@dataclass
class AllocationMap:
    """Where the tensors of one method lie.

    Attributes:
        of: Place of every planned tensor that has any bytes, by value.
        state: Values that keep their contents from run to run.
        base: For each view without instruction the value whose memory it shows.
    """

    of: dict[int, Allocation] = field(default_factory=dict)
    state: set[int] = field(default_factory=set)
    base: dict[int, int] = field(default_factory=dict)

    def owner(self, index: int) -> int:
        """Return the value whose writes are visible through this one."""
        return self.base.get(index, index)


def map_allocations(
    plan: ExecutionPlan, facts: PlanFacts, effects: Sequence[Effect], *, views: Mapping[int, int] | None = None
) -> AllocationMap:
    """Return where the tensors of a checked plan lie.

    Args:
        plan: The method.
        facts: What its instructions do to values.
        effects: What they do to memory.
        views: The value that each view without instruction shows, where the caller knows; otherwise it is guessed:
            the latest value before the view that was written to the same place.
    """
    places = AllocationMap(
        {index: place for index in range(len(plan.values)) if (place := _place(plan, index)) is not None}
    )
    outs = {index for effect in effects for index in effect.out_writes}
    changed = {index for effect in effects for index in effect.writes}
    inputs = set(plan.inputs)
    places.state = {index for index in places.of if has_contents(plan, index)}
    # A buffer of zeros has no contents in the file. Nothing computes into a buffer without a name, it is written back.
    places.state |= {index for index in changed - outs - inputs - facts.rebound if index in places.of}
    # One that is set to itself is never written to, and one may be computed at its place; names show what they are.
    places.state |= {index for index in set(places.of) - inputs - facts.rebound if _is_named(plan, index)}
    if views is not None:
        places.base = _followed(views, places)
    else:
        places.base = _guess_views(plan, facts, effects, places)
    return places


def _tensor(plan: ExecutionPlan, index: int) -> Tensor:
    value = plan.values[index].val
    assert isinstance(value, Tensor)
    return value


def _place(plan: ExecutionPlan, index: int) -> Allocation | None:
    tensor = plan.values[index].val
    if not isinstance(tensor, Tensor) or tensor.allocation_info is None:
        return None
    reach = extent_nbytes(tensor)
    if reach == 0:
        return None
    at = tensor.allocation_info
    offset = tensor.storage_offset * tensor.scalar_type.itemsize
    return Allocation(at.memory_id, at.memory_offset + offset, at.memory_offset + reach)


def has_contents(plan: ExecutionPlan, index: int) -> bool:
    """Return whether the file has the contents of a tensor."""
    tensor = _tensor(plan, index)
    return tensor.data_buffer_idx > 0 or is_external(tensor)


def _is_named(plan: ExecutionPlan, index: int) -> bool:
    extra = _tensor(plan, index).extra_tensor_info
    return extra is not None and bool(extra.fully_qualified_name)


def _followed(views: Mapping[int, int], places: AllocationMap) -> dict[int, int]:
    """Return the views of planned tensors, each with the tensor at the end of its chain of views."""
    found = {}
    for index, base in views.items():
        for _ in views:
            base = views.get(base, base)
        if index in places.of and base in places.of:
            found[index] = base
    return found


def _first_uses(plan: ExecutionPlan, effects: Sequence[Effect]) -> dict[int, int]:
    first: dict[int, int] = {}
    for effect in effects:
        for index in (*effect.reads, *(source for source, _ in effect.handles)):
            first.setdefault(index, effect.number)
    for index in _outputs(plan):
        first.setdefault(index, len(effects))
    return first


def _outputs(plan: ExecutionPlan) -> Iterable[int]:
    return (tensor for index in plan.outputs for tensor in tensors_in(plan, index))


def _guess_views(
    plan: ExecutionPlan, facts: PlanFacts, effects: Sequence[Effect], places: AllocationMap
) -> dict[int, int]:
    used = _first_uses(plan, effects)
    written = dict.fromkeys([*plan.inputs, *places.state], -1)
    for effect in effects:
        for index in effect.writes:
            written.setdefault(index, effect.number)
    shown = {target for _, target in facts.handles}
    sole = {effect.out_writes[0] for effect in effects if len(effect.out_writes) == 1} - places.state
    by_offset: dict[tuple[int, int], list[int]] = {}
    for index in sorted(index for index in written if index in places.of):
        by_offset.setdefault(_allocation(plan, index), []).append(index)
    found: dict[int, int] = {}
    for index in sorted(places.of):
        if index in written or index in shown or index not in used:
            continue
        near = by_offset.get(_allocation(plan, index), ())
        fitting = [one for one in near if _may_show(plan, places, index, one) and written[one] < used[index]]
        base = _choose(index, fitting, sole - used.keys())
        if base is not None:
            found[index] = base
            used[base] = min(used.get(base, used[index]), used[index])
    return found


def _allocation(plan: ExecutionPlan, index: int) -> tuple[int, int]:
    at = _tensor(plan, index).allocation_info
    assert at is not None
    return at.memory_id, at.memory_offset


def _may_show(plan: ExecutionPlan, places: AllocationMap, index: int, base: int) -> bool:
    view, shown = places.of[index], places.of[base]
    is_part = _tensor(plan, index).storage_offset > 0 and shown.start <= view.start and view.end <= shown.end
    return _tensor(plan, index).scalar_type == _tensor(plan, base).scalar_type and (view == shown or is_part)


def _choose(index: int, fitting: Sequence[int], useless: set[int]) -> int | None:
    """Return the base of a view: the last value before it, but rather one that would otherwise be of no use.

    Exporters remove what computes only an unused tensor, so such a tensor is what some view shows.
    """
    before = [one for one in fitting if one < index]
    return max([one for one in before if one in useless] or before or fitting[:1], default=None)


GUARD_NBYTES: Final = 1024
_GUARD_BYTE: Final = 0xA5
# Two of these are a NaN in every floating-point type, and far below zero in every signed integer.
_POISON: Final = 0xFFF5
# Records are kept for messages; past so many those of earlier runs are let go.
_MAX_RECORDS: Final = 1 << 18


@dataclass(slots=True, eq=False)
class Owner:
    """One tensor with memory, whatever views there are of it.

    Attributes:
        method: Name of its method.
        index: Its value in that method.
        place: The bytes that it may use.
        key: What makes it the same state in another method, or None.
        label: How it is called in messages.
        record: Number of the last write of the whole tensor; 0 before it is written.
        pattern: The shadow of what was written then, if it is short.
    """

    method: str
    index: int
    place: Allocation
    label: str
    key: Any = field(default=None, kw_only=True)
    record: int = field(default=0, init=False)
    pattern: bytes | None = field(default=None, init=False)


@dataclass(frozen=True, slots=True)
class Site:
    """What wrote: an instruction, the caller, or the loader.

    Attributes:
        method: Name of the method.
        text: `instruction 4, aten::add.out`, `input 0`, `its initial contents`.
    """

    method: str
    text: str


Record = tuple[Owner | None, Site | None, int]


class ShadowArena:
    """One arena between guards.

    Attributes:
        number: Number of the arena.
        nbytes: Its size.
        raw: All bytes, those of the guards included.
        inside: The bytes of the arena.
        writer: For each byte of the arena the number of the last write to it.
    """

    def __init__(self, number: int, memory: torch.Tensor, nbytes: int) -> None:
        self.number = number
        self.nbytes = nbytes
        self.raw: np.ndarray[Any, np.dtype[np.uint8]] = memory.numpy()
        self.writer = np.zeros(nbytes, dtype=np.int32)
        self.inside = self.raw[GUARD_NBYTES : GUARD_NBYTES + nbytes]
        end = GUARD_NBYTES + nbytes
        self._guards = (self.raw[:GUARD_NBYTES], self.raw[end:])
        for guard in self._guards:
            guard[:] = _GUARD_BYTE
        self._untouched = tuple(guard.tobytes() for guard in self._guards)

    def memory(self) -> torch.Tensor:
        """Return the bytes of the arena, rounded up so that they can be seen as elements of any dtype."""
        rounded = -(-self.nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
        # Through NumPy, so that offsets in the storage of the tensor are offsets in the arena.
        return torch.from_numpy(self.raw[GUARD_NBYTES : GUARD_NBYTES + rounded])

    def guards_changed(self) -> tuple[int, int] | None:
        """Return between which bytes outside of the arena some were changed, or None; they are put right."""
        for guard, untouched, offset in zip(self._guards, self._untouched, (-GUARD_NBYTES, self.nbytes), strict=True):
            if guard.tobytes() != untouched:
                changed = np.flatnonzero(guard != _GUARD_BYTE)
                guard[:] = _GUARD_BYTE
                return int(changed[0]) + offset, int(changed[-1]) + offset + 1
        return None

    def poison(self, kept: Sequence[Allocation]) -> None:
        """Fill all but the `kept` places with what is wrong in every dtype."""
        at = 0
        for place in sorted(kept, key=lambda place: place.start):
            self._poison(at, place.start)
            at = max(at, place.end)
        self._poison(at, self.nbytes)

    def _poison(self, start: int, end: int) -> None:
        if start >= end:
            return
        first, last = -(-start // 2), end // 2
        self.inside[2 * first : 2 * last].view(np.uint16)[:] = _POISON
        self.inside[start : 2 * first] = _POISON >> 8
        self.inside[2 * last : end] = _POISON >> 8


class ShadowMemory:
    """The arenas of one method, or of several that share them, with what is known about every byte.

    Attributes:
        arenas: What the value table is made over.
        shadows: The arenas by their number; there is none for number 0.
        records: Of each write what was written, by what, and in which run; entry 0 is poison.
        states: The owners that keep their contents from run to run.
    """

    def __init__(self, sizes: Sequence[int], *, method: str) -> None:
        guarded = [nbytes + 2 * GUARD_NBYTES if number else 0 for number, nbytes in enumerate(sizes)]
        memory = Arenas.allocate(guarded, method=method).bytes_of
        self.shadows = {number: ShadowArena(number, memory[number], sizes[number]) for number in range(1, len(sizes))}
        self.arenas = Arenas([memory[0], *(shadow.memory() for shadow in self.shadows.values())])
        self.records: list[Record] = [(None, None, 0)]
        self.states: list[Owner] = []
        self.run = 0

    def state(self, owner: Owner) -> Owner:
        """Return the owner of that state, which another method may have brought along already."""
        name, *rest = owner.key
        for known in self.states:
            other, *same = known.key
            if same == rest and (name == other or name is None or other is None):
                return known
        self.states.append(owner)
        return owner

    def record(self, owner: Owner, site: Site) -> int:
        """Note a write of a whole tensor; return its number."""
        self.records.append((owner, site, self.run))
        return len(self.records) - 1

    def start_run(self, owners: Iterable[Owner]) -> None:
        """Forget the tensors of a method, and make garbage of all memory that is not state."""
        self.run += 1
        if len(self.records) > _MAX_RECORDS:
            self._forget_old_records()
        for owner in owners:
            if owner.key is None:
                owner.record = 0
                owner.pattern = None
        for number, shadow in self.shadows.items():
            shadow.poison([state.place for state in self.states if state.place.arena == number])

    def _forget_old_records(self) -> None:
        kept: list[Record] = [self.records[0]]
        masks = []
        for state in self.states:
            at = state.place
            masks.append(self.shadows[at.arena].writer[at.start : at.end] == state.record)
            kept.append(self.records[state.record])
        for shadow in self.shadows.values():
            shadow.writer[:] = 0
        for number, (state, mask) in enumerate(zip(self.states, masks, strict=True), start=1):
            at = state.place
            self.shadows[at.arena].writer[at.start : at.end][mask] = number
            state.record = number
            state.pattern = None
        self.records = kept


_SMALL_NBYTES = 4096


class Pointer:
    """The memory of one cell.

    Attributes:
        cell: The cell.
        owner: Whose bytes it shows, or None if they are in no arena.
        shadow: The arena that they are in.
        start: First byte of what it shows at present.
        end: Byte after the last one.
        writer: The shadow of these bytes.
    """

    __slots__ = ("_bytes", "_seen", "cell", "end", "owner", "shadow", "start", "writer")

    def __init__(self, cell: TensorCell, owner: Owner | None, shadow: ShadowArena | None) -> None:
        self.cell = cell
        self._seen: torch.Tensor | None = None
        self.start = self.end = 0
        self.writer = np.zeros(0, dtype=np.int32)
        self._bytes = memoryview(b"")
        self.owner: Owner | None = None
        self.shadow: ShadowArena | None = None
        self.show(owner, shadow)

    def show(self, owner: Owner | None, shadow: ShadowArena | None) -> None:
        """Show the memory of a owner, or none that is in an arena."""
        self._seen = None
        self.owner, self.shadow = owner, shadow

    def locate(self) -> None:
        """Determine where the tensor is that the cell shows now."""
        current = self.cell.current
        if current is self._seen:
            return
        self._seen = current
        if self.shadow is None or current is None:
            return
        itemsize = current.element_size()
        self.start = int(current.storage_offset()) * itemsize
        self.end = self.start + current.numel() * itemsize
        self.writer = self.shadow.writer[self.start : self.end]
        # An empty array has no bytes to cast; what stands for them must take an empty write all the same.
        self._bytes = self.writer.data.cast("B") if len(self.writer) else memoryview(bytearray())

    def mark(self, owner: Owner, number: int) -> None:
        """Note that all bytes that the cell shows are from that write to their owner."""
        self.locate()
        owner.record = number
        if len(self.writer) <= _SMALL_NBYTES:
            # Bytes of Python are compared faster than arrays of NumPy as long as there are few of them.
            owner.pattern = number.to_bytes(4, sys.byteorder) * len(self.writer)
            self._bytes[:] = owner.pattern
        else:
            owner.pattern = None
            self.writer.fill(number)

    def is_intact(self) -> bool:
        """Return whether all bytes that the cell shows are from the last write to its tensor."""
        owner = self.owner
        if owner is None:
            return True
        if self.cell.current is not self._seen:
            self.locate()
        pattern = owner.pattern
        if pattern is not None and len(pattern) == len(self._bytes) and self._bytes.tobytes() == pattern:
            return True
        return owner.record > 0 and b"\x01" not in (self.writer != owner.record).tobytes()


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Bytes next to the places of what an instruction writes to, which it must leave as they are.

    Attributes:
        shadow: The arena, guards included.
        start: First byte, below 0 in the guard in front.
        content: The bytes.
    """

    shadow: ShadowArena
    start: int
    content: memoryview


def neighbours_of(pointers: Sequence[Pointer | None]) -> list[Neighbour]:
    """Return what lies up to `GUARD_NBYTES` around the places of the owners of these pointers, and is none of them."""
    written: dict[ShadowArena, set[tuple[int, int]]] = {}
    for pointer in pointers:
        if pointer is not None and pointer.owner is not None and pointer.shadow is not None:
            place = pointer.owner.place
            written.setdefault(pointer.shadow, set()).add((place.start, place.end))
    found: list[Neighbour] = []
    for shadow, unsorted_places in written.items():
        places = sorted(unsorted_places)
        gaps: list[tuple[int, int]] = []
        behind = places[0][0] - GUARD_NBYTES
        for start, end in [*places, (places[-1][1] + GUARD_NBYTES,) * 2]:
            # Far from both neighbours nothing is checked.
            near = [(behind, behind + GUARD_NBYTES), (start - GUARD_NBYTES, start)]
            gaps += [(behind, start)] if start - behind <= 2 * GUARD_NBYTES else near
            behind = max(behind, end)
        for start, end in gaps:
            if start < end:
                content = shadow.raw.data[start + GUARD_NBYTES : end + GUARD_NBYTES]
                found.append(Neighbour(shadow, start, content))
    return found


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that hold something else than they should.

    Attributes:
        start: First such byte, in the arena.
        end: Byte after the last one of the same kind.
        record: Number of the write that they are from.
    """

    start: int
    end: int
    record: int


def find_damage(pointer: Pointer) -> Damage | None:
    """Return the first run of bytes of a tensor that are not from the last write to it."""
    pointer.locate()
    assert pointer.owner is not None
    wrong = (
        np.flatnonzero(pointer.writer != pointer.owner.record)
        if pointer.owner.record
        else np.arange(len(pointer.writer))
    )
    if len(wrong) == 0:
        return None
    first = int(wrong[0])
    record = int(pointer.writer[first])
    following = np.flatnonzero(pointer.writer[first:] != record)
    length = int(following[0]) if len(following) else len(pointer.writer) - first
    return Damage(pointer.start + first, pointer.start + first + length, record)


def pointer_of(pointers: Sequence[Pointer | None], entry: Any) -> Pointer | None:
    """Return the pointer of an entry of the value table, or None if it is nothing in an arena."""
    return pointers[entry.index] if isinstance(entry, TensorCell) else None


def overwritten(writer: Pointer, victim: Owner, start: int, end: int) -> tuple[int, int] | None:
    """Return which bytes from `start` to `end` hold what was last written to `victim`, if `writer` is another."""
    if victim is writer.owner or victim.record == 0 or start >= end:
        return None
    assert writer.shadow is not None
    hit = np.flatnonzero(writer.shadow.writer[start:end] == victim.record)
    return (start + int(hit[0]), start + int(hit[-1]) + 1) if len(hit) else None


VIEW: Final = "executorch_prim::et_view.default"
COPY_ROW: Final = "executorch_prim::et_copy_index.tensor"
# Operators that change their first argument without reading it.
_OVERWRITING: Final = frozenset(
    f"aten::{name}"
    for name in (
        "bernoulli_.Tensor",
        "bernoulli_.float",
        "cauchy_",
        "copy_",
        "exponential_",
        "fill_.Scalar",
        "fill_.Tensor",
        "geometric_",
        "log_normal_",
        "normal_",
        "random_",
        "random_.from",
        "random_.to",
        "uniform_",
        "zero_",
    )
)
# Operators that take a tensor for its shape only, by the name before the overload.
_SHAPE_ONLY: Final = frozenset(
    f"aten::{name}"
    for name in (
        "empty_like",
        "full_like",
        "new_empty",
        "new_empty_strided",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones_like",
        "rand_like",
        "randint_like",
        "randn_like",
        "sym_numel",
        "sym_size",
        "sym_stride",
        "zeros_like",
    )
)


@dataclass(frozen=True, slots=True)
class Effect:
    """One instruction.

    Attributes:
        number: Its number within the plan.
        text: Its operator, or what else it is.
        reads: Tensors whose elements it reads.
        writes: Tensors to which it writes.
        out_writes: Those of `writes` that are out arguments or results.
        kills: Values whose contents before it do not matter to whatever comes after it.
        handles: Pairs (source, target): the target becomes the tensor, or shows the memory, of the source.
        overwrites: Pairs (result, argument): the kernel may write the result over the argument, if laid out alike.
        following: Numbers of the instructions that may come next; the number of all instructions is the end.
    """

    number: int
    text: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    out_writes: tuple[int, ...] = ()
    kills: tuple[int, ...] = ()
    handles: tuple[tuple[int, int], ...] = ()
    following: tuple[int, ...] = ()
    overwrites: tuple[tuple[int, int], ...] = ()


def effects_of(
    plan: ExecutionPlan, facts: PlanFacts, *, unknown: Callable[[int, Sequence[int]], Effect] | None = None
) -> list[Effect]:
    """Return the effect of every instruction of a checked plan.

    Args:
        plan: The method.
        facts: What its instructions do to values.
        unknown: The effect of a call that no kernel is known for, or of a delegate, from its number and arguments;
            without it there is no such call.
    """
    effects: list[Effect] = []
    rows = _rows(plan, facts)
    for chain in plan.chains:
        start = len(effects)
        for instruction in chain.instructions:
            args = None if unknown is None else _foreign_arguments(facts, instruction)
            if unknown is None or args is None:
                effects.append(_effect(plan, facts, instruction, len(effects), start))
            else:
                effects.append(unknown(len(effects), args))
        for number in range(start, len(effects) - 2):
            if _enters_a_loop(plan, facts, [one.instr_args for one in chain.instructions[number - start :][:3]]):
                # The test in front of the first round is known to succeed, so nothing behind the loop comes next.
                effects[number] = replace(effects[number], following=(number + 3,))
        for number, instruction in enumerate(chain.instructions, start):
            begun = rows.get(getattr(instruction.instr_args, "move_to", -1), ())
            if begun:
                # A loop that has a varying number of rounds may have none, and reads no old rows for all that.
                effects[number] = replace(effects[number], kills=(*effects[number].kills, *begun))
    return effects


def _rows(plan: ExecutionPlan, facts: PlanFacts) -> dict[int, tuple[int, ...]]:
    """Return the tensors that loops fill row by row, by the numbers that count the rows."""
    found: dict[int, tuple[int, ...]] = {}
    for chain in plan.chains:
        for step in (one.instr_args for one in chain.instructions):
            if not isinstance(step, KernelCall):
                continue
            kernel = facts.kernels[step.op_index]
            if kernel is not None and kernel.name == COPY_ROW:
                target, _, counter = step.args[:3]
                found[counter] = (*found.get(counter, ()), target)
    return found


def _enters_a_loop(plan: ExecutionPlan, facts: PlanFacts, steps: Sequence[Any]) -> bool:
    """Return whether instructions start a counter, test that it is below a number that it is below, and jump if not."""
    begin, test, jump = steps
    if not (isinstance(begin, MoveCall) and isinstance(test, KernelCall) and isinstance(jump, JumpFalseCall)):
        return False
    if operator_name(plan, test.op_index) != "executorch_prim::lt.Scalar" or len(test.args) != 3:
        return False
    counter, end, answer = test.args
    ends = begin.move_from, end
    numbers = [plan.values[index].val for index in ends]
    if (begin.move_to, answer) != (counter, jump.cond_value_index) or not (facts.rebound | facts.numbers).isdisjoint(
        ends
    ):
        return False
    first, last = numbers
    return isinstance(first, Int) and isinstance(last, Int) and first.int_val < last.int_val


def _foreign_arguments(facts: PlanFacts, instruction: Instruction) -> Sequence[int] | None:
    """Return the arguments of a call of something that is not known here; None for any other instruction."""
    step = instruction.instr_args
    if isinstance(step, DelegateCall) or (isinstance(step, KernelCall) and facts.kernels[step.op_index] is None):
        return step.args
    return None


def _effect(plan: ExecutionPlan, facts: PlanFacts, instruction: Instruction, number: int, start: int) -> Effect:
    step = instruction.instr_args
    following: tuple[int, ...] = (number + 1,)
    if isinstance(step, KernelCall):
        kernel = facts.kernels[step.op_index]
        assert kernel is not None, "load_method reports unknown kernels first"
        return _call_effect(plan, kernel, step.args, number, operator_name(plan, step.op_index))
    if isinstance(step, MoveCall):
        handles = ((step.move_from, step.move_to),) if isinstance(plan.values[step.move_from].val, Tensor) else ()
        return Effect(number, "move", kills=(step.move_to,), handles=handles, following=following)
    if isinstance(step, JumpFalseCall):
        reads = tuple(tensors_in(plan, step.cond_value_index))
        following = _following(plan, facts, step, number, start)
        return Effect(number, "jump_false", reads=reads, following=following)
    if isinstance(step, FreeCall):
        return Effect(number, "free", kills=(step.value_index,), following=following)
    if isinstance(step, DelegateCall):
        return _delegate_effect(plan, facts, step, number)
    raise TypeError(f"no instruction is a {type(step).__name__}")


def _delegate_effect(plan: ExecutionPlan, facts: PlanFacts, step: DelegateCall, number: int) -> Effect:
    results = results_of_delegate(plan, facts.delegates[step.delegate_index], step.args)
    inputs = step.args[: len(step.args) - len(results)]
    reads = tuple(tensor for index in inputs for tensor in tensors_in(plan, index))
    text = f"delegate {plan.delegates[step.delegate_index].id}"
    written = tuple(results)
    return Effect(number, text, reads, written, written, kills=written, following=(number + 1,))


def _following(plan: ExecutionPlan, facts: PlanFacts, step: JumpFalseCall, number: int, start: int) -> tuple[int, ...]:
    """Return where a jump may lead; the exporter writes unconditional jumps as those on the constant False."""
    condition = plan.values[step.cond_value_index].val
    destination = start + step.destination_instruction
    if isinstance(condition, Bool) and step.cond_value_index not in facts.rebound:
        return (number + 1,) if condition.bool_val else (destination,)
    return tuple(dict.fromkeys((number + 1, destination)))


def _call_effect(plan: ExecutionPlan, kernel: Kernel, args: Sequence[int], number: int, name: str) -> Effect:
    results = args[len(kernel.slots) :]
    following = (number + 1,)
    if kernel.name == VIEW:
        return Effect(number, name, kills=(args[2],), handles=((args[0], args[2]),), following=following)
    if kernel.name == COPY_ROW:
        # Rows written earlier are told from foreign bytes when they are read, so nothing has to be live until then.
        return Effect(number, name, (args[1],), (args[0],), (args[0],), (args[0],), following=following)
    reads: list[int] = []
    changed: list[int] = []
    outs: list[int] = []
    shape_only = kernel.name.partition(".")[0] in _SHAPE_ONLY
    for slot, index in zip(kernel.slots, args, strict=False):
        tensors = list(tensors_in(plan, index))
        if slot.is_out:
            outs += tensors
        elif slot.is_written:
            changed += tensors
            reads += [] if kernel.name in _OVERWRITING else tensors
        elif not shape_only:
            reads += tensors
    handles: tuple[tuple[int, int], ...] = ()
    if kernel.kind is KernelKind.VALUE:
        outs += [tensor for index in results for tensor in tensors_in(plan, index)]
    elif kernel.kind is KernelKind.IN_PLACE:
        handles = tuple((args[0], result) for result in results if result != args[0])
    kept = set(reads)
    written = tuple(dict.fromkeys((*changed, *outs)))
    kills = tuple(index for index in written if index not in kept) + tuple(target for _, target in handles)
    over = tuple(_overwrites(plan, kernel, args))
    return Effect(number, name, tuple(dict.fromkeys(reads)), written, tuple(outs), kills, handles, following, over)


def _overwrites(plan: ExecutionPlan, kernel: Kernel, args: Sequence[int]) -> Iterator[tuple[int, int]]:
    table = overwritable_arguments(kernel.name)
    if table:
        at = {slot.name: index for slot, index in zip(kernel.slots, args, strict=False)}
        for result, names in table.items():
            for name in names:
                yield from product(tensors_in(plan, at[result]), tensors_in(plan, at[name]))

"""Where the tensors of a plan lie, and which of them show the memory of others.

A view with static shape that lies in planned memory needs no instruction: it is a value like any other that nothing
ever writes to. Which value it shows is not in the file, so it is found from the places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exirkit.emit import ExecutionPlan, Tensor
from exirkit.runtime_ref.checks.calls import PlanFacts, extent_nbytes, is_external, tensors_in

from .effects import Effect


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
        # What is written through a view of a result is that result.
        places.state -= places.base.keys()
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

"""A pool that does not hold what must lie in it: what filled it, and what would fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch.fx import Node

from exirkit.ir import Diagnostic, Location, TensorSpec, locate
from exirkit.passes.memory.packing.fitting import Claim, Load, choose_claims
from exirkit.passes.memory.problem import PlannedValue, Pool

# So many values are named.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class PoolMember:
    """What messages say about a value in a pool.

    Attributes:
        node: The node that holds it; None for the memory of called graphs.
        spec: Its spec.
        rule: Why it is in the pool.
    """

    node: Node | None
    spec: TensorSpec
    rule: str

    def described(self, nbytes: int) -> str:
        """Return what the value is, how large, and why it is there."""
        if self.node is None:
            return f"{nbytes} bytes of the graphs of a branch or loop"
        where = locate(self.node).source
        return f"%{self.node.name}: {nbytes} bytes, {self.rule}{f', {where}' if where else ''}"


def overflow(
    name: str, pool: Pool, needed: int, members: Sequence[PoolMember], values: Sequence[PlannedValue]
) -> Diagnostic:
    """Return EK484 for a pool.

    Args:
        name: Its name.
        pool: Its limit and alignment.
        needed: Bytes that the plan takes.
        members: What lies in it.
        values: Sizes and steps of these.
    """
    limit = pool.limit or 0
    step, live = _fullest_step(values)
    largest = sorted(live, key=lambda place: (-values[place].nbytes, place))[:_NAMED]
    total = sum(values[place].nbytes for place in live)
    notes = [f"{total} bytes are live at step {step}, the fullest one, in {len(live)} values that cannot move on:"]
    notes += [members[place].described(values[place].nbytes) for place in largest]
    if len(live) > _NAMED:
        notes.append(f"and {len(live) - _NAMED} smaller ones")
    outside = _what_has_to_leave(pool, values)
    left = [members[place].described(values[place].nbytes) for place in outside[:_NAMED]]
    if outside:
        more = f"; and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
        notes.append(f"everything else would fit without {'; '.join(left)}{more}")
        hint = "let these spill (`spill: true` and a pool after this one in `spill`), or send them to another pool"
    else:
        hint = "what is live at once would fit: `planner: exact` may find a way to place it"
    node = next((members[place].node for place in [*outside, *largest] if members[place].node is not None), None)
    return Diagnostic(
        code="EK484",
        message=f"the pool {name!r} needs {needed} bytes, {needed - limit} more than the {limit} there are",
        location=Location() if node is None else locate(node),
        notes=tuple(notes),
        hint=hint,
    )


def _fullest_step(values: Sequence[PlannedValue]) -> tuple[int, list[int]]:
    steps = sorted({value.first for value in values})
    load = Load([(value.first, value.last) for value in values])
    for value in values:
        load.add(value.first, value.last, value.nbytes)
    step = max(steps, key=lambda one: (load.most(one, one), -one))
    return step, [place for place, value in enumerate(values) if value.first <= step <= value.last]


def _what_has_to_leave(pool: Pool, values: Sequence[PlannedValue]) -> list[int]:
    """Return the values without which the rest would fit at every step, few bytes of them; the largest first."""
    claims = [
        Claim(size := value.nbytes + -value.nbytes % pool.alignment, value.first, value.last, size)
        for value in values
        if value.nbytes
    ]
    listed = [place for place, value in enumerate(values) if value.nbytes]
    choice = choose_claims(claims, pool.limit or 0)
    kept = set() if choice is None else {listed[place] for place in choice.chosen}
    left = [place for place in listed if place not in kept]
    return sorted(left, key=lambda place: (-values[place].nbytes, place))

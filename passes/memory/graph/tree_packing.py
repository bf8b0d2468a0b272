"""Places for the values of a program with branches and loops, all graphs of it together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from exirkit.ir import TensorSpec

# Orders that are tried beside the simple ones; fewer if many values are needed together: some fifth of a second in all.
_TRIALS = 200
_TRIED_PAIRS = 300_000


def pack_tree(
    start: Mapping[TensorSpec, int],
    conflicts: Mapping[TensorSpec, set[TensorSpec]],
    nbytes: Callable[[TensorSpec], int],
    enough: int,
) -> tuple[dict[TensorSpec, int], int]:
    """Return an offset for each value of one arena, and the bytes that the arena needs.

    The values are placed one after another, each at the lowest offset at which nothing lies that is needed together
    with it, in several orders.

    Args:
        start: Offsets of a plan that holds; it gives the first order.
        conflicts: What must not share bytes with each of the values; of other arenas as well.
        nbytes: Bytes of a value, a multiple of the alignment.
        enough: Bytes with which the search may end.
    """
    values = list(start)
    best, height = dict(start), max((start[spec] + nbytes(spec) for spec in values), default=0)
    for order in _orders(values, start, conflicts, nbytes):
        if height <= enough:
            break
        offsets = _placed(order, conflicts, nbytes)
        end = max(offsets[spec] + nbytes(spec) for spec in values)
        if end < height:
            best, height = offsets, end
    return best, height


def _orders(
    values: Sequence[TensorSpec],
    start: Mapping[TensorSpec, int],
    conflicts: Mapping[TensorSpec, set[TensorSpec]],
    nbytes: Callable[[TensorSpec], int],
) -> Iterator[list[TensorSpec]]:
    place = {spec: number for number, spec in enumerate(values)}

    def around(spec: TensorSpec) -> int:
        return sum(nbytes(other) for other in conflicts[spec] if other in place)

    weight = {spec: around(spec) for spec in values}
    yield sorted(values, key=lambda spec: (start[spec], place[spec]))
    yield sorted(values, key=lambda spec: (-nbytes(spec), -weight[spec], place[spec]))
    by_weight = sorted(values, key=lambda spec: (-weight[spec] - nbytes(spec), -nbytes(spec), place[spec]))
    yield by_weight
    draw = random.Random(0)
    pairs = len(values) + sum(len(conflicts[spec]) for spec in values)
    for _ in range(min(_TRIALS, _TRIED_PAIRS // (pairs + 1))):
        order = list(by_weight)
        for _ in range(1 + draw.randrange(3)):
            order.insert(draw.randrange(len(order)), order.pop(draw.randrange(len(order))))
        yield order


def _placed(
    order: Sequence[TensorSpec],
    conflicts: Mapping[TensorSpec, set[TensorSpec]],
    nbytes: Callable[[TensorSpec], int],
) -> dict[TensorSpec, int]:
    offsets: dict[TensorSpec, int] = {}
    for spec in order:
        taken = sorted(
            (offsets[other], offsets[other] + nbytes(other)) for other in conflicts[spec] if other in offsets
        )
        floor = 0
        for begin, end in taken:
            if begin - floor >= nbytes(spec):
                break
            floor = max(floor, end)
        offsets[spec] = floor
    return offsets

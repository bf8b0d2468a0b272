"""Damage to files: seeded, small, and biased towards what readers trust too easily."""

from __future__ import annotations

import random
from collections.abc import Iterator
from struct import pack_into

_WORDS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)


def mutations(data: bytes, count: int, seed: int, *, header_nbytes: int) -> Iterator[bytearray]:
    """Yield damaged copies of `data`; the damage is mostly in the first `header_nbytes` bytes, before the weights."""
    rng = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            damaged = _damage(damaged, rng, header_nbytes)
        yield damaged


def _damage(data: bytearray, rng: random.Random, header_nbytes: int) -> bytearray:
    end = min(header_nbytes if rng.random() < 0.95 else len(data), len(data))
    if end < 8:
        return data
    kind = rng.randrange(10)
    at = rng.randrange(end)
    if kind < 3:
        data[at] = rng.randrange(256)
    elif kind < 5:
        data[at] ^= 1 << rng.randrange(8)
    elif kind < 8:
        # Offsets, lengths and indices stand on multiples of four.
        pack_into("<I", data, min(at, end - 4) & ~3, rng.choice(_WORDS))
    elif kind == 8:
        source = rng.randrange(end)
        length = min(rng.randrange(1, 64), end - at, end - source)
        data[at : at + length] = data[source : source + length]
    else:
        del data[rng.randrange(len(data)) :]
    return data

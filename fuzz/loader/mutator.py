"""Damage to the bytes of a file, mostly where its fields are."""

from __future__ import annotations

import random
from bisect import bisect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import pack_into, unpack_from
from typing import Final

from .editing import edit_program
from .sites import Role, Site, Sites, find_sites

# Files whose fields are remembered; libFuzzer comes back to the same ones.
_REMEMBERED: Final = 1200
_BITS: Final = {"b": 8, "B": 8, "H": 16, "i": 32, "I": 32, "q": 64, "Q": 64, "d": 64}
_UNSIGNED: Final = {8: "<B", 16: "<H", 32: "<I", 64: "<Q"}
_STEPS: Final = (1, -1, 1, -1, 2, -2, 4, -4, 8, -8, 16, -16, 64, -64)
_DOUBLES: Final = (0, 1 << 63, 0x7FF0 << 48, 0xFFF0 << 48, 0x7FF8 << 48, 1, 0x7FEF << 48, 0x3FF0 << 48)
# How often fields of each role are chosen.
_WEIGHTS: Final = {
    Role.HEADER: 3,
    Role.OFFSET: 12,
    Role.VTABLE: 4,
    Role.SLOT: 8,
    Role.LENGTH: 12,
    Role.NUMBER: 40,
    Role.CHOICE: 8,
    Role.TAG: 7,
    Role.BYTES: 6,
}
_ROLES: Final = tuple(role for role, weight in _WEIGHTS.items() for _ in range(weight))
_WORDS: Final[dict[int, Sequence[int]]] = {
    bits: sorted(
        {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 64, 127, 128, 255}
        | {number & (1 << bits) - 1 for k in (8, 15, 16, 31, 32, 63) for number in (1 << k, (1 << k) - 1)}
        | {(1 << bits) - distance for distance in (1, 2, 4, 8)}
    )
    for bits in (8, 16, 32, 64)
}


class Mutator:
    """Makes damaged files of files.

    Args:
        seed: Decides all damage, given the same calls.
        others: Files from which parts are taken.
        whole: Files that are read to the end, of which half of all copies are made, most of them of small ones:
            those that are rejected hide what comes behind the place where they are.
        mutate_bytes: Another mutator that knows bytes only, such as libFuzzer's own.
    """

    def __init__(
        self,
        seed: int,
        others: Sequence[bytes],
        whole: Sequence[bytes],
        mutate_bytes: Callable[[bytes, int], bytes] | None = None,
    ) -> None:
        self._rng = random.Random(seed)
        self._others = others
        self._whole = whole
        self._shares = list(accumulate(len(each) ** -2 for each in whole))
        self._mutate_bytes = mutate_bytes
        self._known: OrderedDict[bytes, Sites] = OrderedDict()

    def __call__(self, data: bytes, max_nbytes: int) -> bytes:
        """Return a damaged copy of `data` of at most `max_nbytes` bytes."""
        rng = self._rng
        chance = rng.random()
        if len(data) < 16 or rng.random() < 0.5:
            data = self._whole[bisect(self._shares, rng.random() * self._shares[-1]) % len(self._whole)]
        if chance < 0.015:
            edited = edit_program(data, rng.choice(self._others), rng)
            if edited is not None:
                return edited[:max_nbytes]
        if 0.03 <= chance < 0.06 and self._mutate_bytes is not None:
            return self._mutate_bytes(data, max_nbytes)
        damaged = bytearray(data)
        sites = self._sites(bytes(data))
        for _ in range(1 if chance < 0.7 else rng.randrange(2, 5)):
            if rng.random() < 0.93:
                self._damage_field(damaged, sites)
            else:
                self._damage_bytes(damaged)
        return bytes(damaged[:max_nbytes])

    def _sites(self, data: bytes) -> Sites:
        known = self._known.get(data)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.popitem(last=False)
            known = self._known[data] = find_sites(data)
        return known

    def _damage_field(self, data: bytearray, sites: Sites) -> None:
        listed = sites.by_role[self._rng.choice(_ROLES)]
        if not listed:
            return
        site = self._rng.choice(listed)
        # Damage before this one may have cut the file.
        if site.at + _BITS[site.letter] // 8 <= len(data):
            self._damage_site(data, sites, site)

    def _damage_site(self, data: bytearray, sites: Sites, site: Site) -> None:
        rng, bits = self._rng, _BITS[site.letter]
        pattern = _UNSIGNED[bits]
        if site.role is Role.BYTES:
            at = site.at + rng.randrange(site.nbytes)
            if at < len(data):
                data[at] = rng.choice((0, 0x20, 0x80, 0xFF, rng.randrange(256)))
            return
        if site.role is Role.TAG:
            new = rng.choice((0, site.nbytes, site.nbytes + 1, 255, rng.randrange(site.nbytes + 1)))
        elif site.role is Role.CHOICE:
            new = rng.randrange(48) if rng.random() < 0.8 else rng.randrange(256)
        elif site.role is Role.OFFSET and sites.places and rng.random() < 0.6:
            new = rng.choice(sites.places) + rng.choice((0, 0, 0, 4, -4, 1)) - site.at
        elif site.letter == "d":
            new = rng.choice(_DOUBLES) if rng.random() < 0.7 else rng.getrandbits(64)
        else:
            new = self._number(unpack_from(pattern, data, site.at)[0], bits, sites)
        pack_into(pattern, data, site.at, new & (1 << bits) - 1)

    def _number(self, old: int, bits: int, sites: Sites) -> int:
        rng = self._rng
        chance = rng.random()
        if chance < 0.3:
            return rng.choice(_WORDS[bits])
        if chance < 0.6:
            return old + rng.choice(_STEPS)
        if chance < 0.9 and sites.numbers:
            return rng.choice(sites.numbers) + rng.choice((0, 0, 0, 1, -1))
        return rng.getrandbits(bits) >> rng.randrange(bits)

    def _damage_bytes(self, data: bytearray) -> None:
        if len(data) < 16:
            return
        rng, end = self._rng, len(data)
        at, kind = rng.randrange(end), rng.randrange(6)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            source, length = rng.randrange(end), rng.randrange(1, 64)
            data[at : at + length] = data[source : source + length]
        elif kind == 3:
            data[at:at] = bytes(rng.choice((1, 4, 8, 16)))
        elif kind == 4:
            del data[at : at + rng.choice((1, 4, 8, 16))]
        else:
            del data[at:]

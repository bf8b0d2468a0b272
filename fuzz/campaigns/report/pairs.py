"""Whether features of programs meet each other, and the passes of the default chain, as often as they should."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations, product
from typing import Literal

from pydantic import BaseModel, ConfigDict

from exirkit.fuzz.campaigns.default_passes import default_passes
from exirkit.fuzz.campaigns.store import Store
from exirkit.fuzz.campaigns.tested_parts import PREFIXES, WORKED
from exirkit.ir import Diagnostic

from .summary import OPERATOR

LEAST_MET = 0.95
"""Of the pairs that chance alone would bring together often enough: a campaign with fewer has blind spots."""

_EXPECTED = 12.0
_THIN = 0.25
_SHOWN = 8


class PairCount(BaseModel):
    """Two features, or a pass and a feature, in how many programs both are, and in how many by chance."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: str
    second: str
    programs: int
    expected: float


class PairCoverage(BaseModel):
    """Pairs of one kind.

    Attributes:
        kind: Of two features, or of a pass that changed the program and a feature.
        pairs: How many pairs there are ...
        seen: ... and how many of them some program has.
        expected: Pairs that at least a dozen programs would have if features met by chance.
        thin: Those of them that less than a quarter as many programs have, the rarest first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["features", "pass and feature"]
    pairs: int
    seen: int
    expected: int
    thin: tuple[PairCount, ...]

    @property
    def met(self) -> float:
        """The share of the expected pairs that programs have often enough."""
        return 1 - len(self.thin) / self.expected if self.expected else 1.0


def pair_coverage(store: Store, campaign: str) -> tuple[PairCoverage, PairCoverage]:
    """Return how features meet each other, and passes of the default chain, in the programs of a campaign."""
    places: defaultdict[str, int] = defaultdict(int)
    rows = store.connection.execute("SELECT features FROM result WHERE campaign = ? ORDER BY seed", (campaign,))
    programs = 0
    for programs, (text,) in enumerate(rows, 1):
        # One bit for each program, so that two features meet in the bits of both.
        for name in json.loads(text):
            places[name] |= 1 << programs
    others = (OPERATOR, WORKED, *PREFIXES)
    features = sorted(name for name in places if not name.startswith(others))
    passes = [f"{WORKED}{name}" for name in default_passes() if f"{WORKED}{name}" in places]
    return (
        _coverage("features", combinations(features, 2), places, programs),
        _coverage("pass and feature", product(passes, features), places, programs),
    )


def thin_pairs(coverages: Iterable[PairCoverage]) -> list[Diagnostic]:
    """Return a finding for each kind of pairs of which too many are hardly there."""
    return [
        Diagnostic.of(
            "EK846",
            f"{len(one.thin):,} of {one.expected:,} pairs ({one.kind}) meet in hardly any program",
            notes=tuple(
                f"{each.first} with {each.second}: {each.programs:,} programs, by chance {each.expected:.0f}"
                for each in one.thin[:_SHOWN]
            ),
        )
        for one in coverages
        if one.met < LEAST_MET
    ]


def _coverage(
    kind: Literal["features", "pass and feature"],
    pairs: Iterable[tuple[str, str]],
    places: Mapping[str, int],
    programs: int,
) -> PairCoverage:
    number = seen = expected = 0
    thin: list[PairCount] = []
    for first, second in pairs:
        both = (places[first] & places[second]).bit_count()
        chance = places[first].bit_count() * places[second].bit_count() / max(programs, 1)
        number, seen, expected = number + 1, seen + bool(both), expected + (chance >= _EXPECTED)
        if chance >= _EXPECTED and both < _THIN * chance:
            thin.append(PairCount(first=first, second=second, programs=both, expected=chance))
    thin.sort(key=lambda one: (one.programs / one.expected, -one.expected, one.first, one.second))
    return PairCoverage(kind=kind, pairs=number, seen=seen, expected=expected, thin=tuple(thin))

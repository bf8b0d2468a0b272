"""Two campaigns over the same seeds: what the later one does worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from exirkit.fuzz.campaigns.store import Store
from exirkit.ir import Diagnostic, Location, ModelError

_WORSE = (
    "SELECT seed, verdict, (SELECT symptom FROM failure WHERE failure.campaign = result.campaign "
    "AND failure.seed = result.seed ORDER BY number LIMIT 1), program FROM result WHERE campaign = ? ORDER BY seed"
)


@dataclass(frozen=True)
class Regression:
    """A program that a compiler took, and another one or a later one does not.

    Attributes:
        seed: Of the program.
        verdict: Now; it was `passed`.
        symptom: Of the first failure; for `unsupported` the code of the diagnostic.
    """

    seed: int
    verdict: str
    symptom: str


@dataclass(frozen=True)
class Regressions:
    """What a campaign does worse than its baseline.

    Attributes:
        compared: Seeds with the same program in both.
        found: Those that passed and do not pass any more, by seed.
        other_programs: Seeds whose programs differ: the generator is another one.
    """

    compared: int
    found: Sequence[Regression]
    other_programs: int

    @property
    def symptoms(self) -> Counter[str]:
        """How many programs have each verdict and symptom."""
        return Counter(f"{one.verdict} {one.symptom}" for one in self.found)


def regressions(store: Store, campaign: str, baseline: Store, baseline_campaign: str) -> Regressions:
    """Compare a campaign with an earlier one.

    Args:
        store: The database of the campaign.
        campaign: Its id.
        baseline: The database of the earlier campaign.
        baseline_campaign: The id of that one.

    Raises:
        ModelError: EK877, no program is in both.
    """
    before = {
        seed: (verdict, program)
        for seed, verdict, program in baseline.connection.execute(
            "SELECT seed, verdict, program FROM result WHERE campaign = ?", (baseline_campaign,)
        )
    }
    compared = other = 0
    found: list[Regression] = []
    for seed, verdict, symptom, program in store.connection.execute(_WORSE, (campaign,)):
        if seed not in before:
            continue
        if before[seed][1] != program:
            other += 1
            continue
        compared += 1
        if before[seed][0] == "passed" and verdict != "passed":
            found.append(Regression(seed, verdict, symptom or ""))
    if not compared:
        raise ModelError(
            Diagnostic(
                code="EK877",
                message="no program is in this campaign and in its baseline",
                location=Location(file=str(baseline.path)),
                notes=(f"{other:,} seeds have other programs there",) if other else (),
                hint="run both with the same --seeds and --policy, and the same generator of programs",
            )
        )
    return Regressions(compared, found, other)

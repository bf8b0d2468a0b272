"""One program of a campaign, with everything that is known of it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from exirkit.fuzz.campaigns.results import Analysis, Found
from exirkit.fuzz.campaigns.store import Store
from exirkit.ir import Diagnostic, Location, ModelError

from .summary import find_campaign


class Shown(BaseModel):
    """A program of a campaign.

    Attributes:
        campaign: Id of the campaign.
        seed: Of the program.
        verdict: In one word.
        level: Level of optimisation.
        program: Text of the program; empty if there is none.
        failures: What the oracles say.
        analyses: What was found out about failures.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    campaign: str
    seed: int
    verdict: str
    level: int
    program: str
    failures: tuple[Found, ...]
    analyses: tuple[Analysis, ...]


def show(store: Store, which: str, campaign: str | None = None) -> Shown:
    """Return a program of a campaign.

    Args:
        store: The database.
        which: A seed, or a bucket: then its first program, one that was reduced if there is one.
        campaign: Id, or its beginning; by default the campaign that was worked on last.

    Raises:
        ModelError: EK867, there is no such program; EK868, there is no such campaign.
    """
    chosen = find_campaign(store, campaign)
    seed = int(which) if which.isdecimal() else _seed_of_bucket(store, chosen, which)
    row = store.connection.execute(
        "SELECT verdict, level, coalesce(text, '') FROM result LEFT JOIN program ON digest = program "
        "WHERE campaign = ? AND seed = ?",
        (chosen, min(seed, 2**63 - 1) if seed is not None else -1),
    ).fetchone()
    if row is None or seed is None:
        raise ModelError(
            Diagnostic(
                code="EK867",
                message=f"campaign {chosen} has no program {which!r}",
                location=Location(file=str(store.path)),
                expected="a seed, or the name of a bucket",
                hint="`exirkit fuzz report FILE` lists the buckets and their first seeds",
            )
        )
    verdict, level, program = row
    return Shown(
        campaign=chosen,
        seed=seed,
        verdict=verdict,
        level=level,
        program=program,
        failures=tuple(_failures(store, chosen, seed)),
        analyses=tuple(_analyses(store, chosen, seed)),
    )


def _seed_of_bucket(store: Store, campaign: str, bucket: str) -> int | None:
    row = store.connection.execute(
        "SELECT failure.seed FROM failure LEFT JOIN analysis USING (campaign, seed, number) "
        "WHERE campaign = ? AND ? IN (failure.bucket, analysis.bucket) ORDER BY reduced IS NULL, seed LIMIT 1",
        (campaign, bucket),
    ).fetchone()
    return None if row is None else int(row[0])


def _failures(store: Store, campaign: str, seed: int) -> list[Found]:
    names = ("oracle", "symptom", "message", "stage", "node", "bucket")
    rows = store.connection.execute(
        f"SELECT {', '.join(names)} FROM failure WHERE campaign = ? AND seed = ? ORDER BY number", (campaign, seed)
    )
    return [Found(**dict(zip(names, row, strict=True))) for row in rows]


def _analyses(store: Store, campaign: str, seed: int) -> list[Analysis]:
    names = ("seed", "number", "bucket", "culprit", "rule", "application", "reduced", "repro", "note", "seconds")
    rows = store.connection.execute(
        f"SELECT {', '.join(names)} FROM analysis WHERE campaign = ? AND seed = ? ORDER BY number", (campaign, seed)
    )
    return [Analysis(**dict(zip(names, row, strict=True))) for row in rows]

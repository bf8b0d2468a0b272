"""What a database says of a campaign, in numbers and in a few texts."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from exirkit.fuzz.campaigns.results import BAD_VERDICTS
from exirkit.fuzz.campaigns.store import Store
from exirkit.fuzz.campaigns.tested_parts import SEED_CORPUS, WORKED
from exirkit.ir import Diagnostic, Location, ModelError

_POINTS = 60
# Features that say which operators are called begin so.
OPERATOR = "op:"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OracleTime(_Part):
    """Time of one oracle: how many programs it saw, and milliseconds of each."""

    oracle: str
    programs: int
    mean: float
    median: float
    p95: float
    share: float


class FeatureCount(_Part):
    """How many programs have a feature, and what share of them should; with a quota, of those that were generated."""

    feature: str
    programs: int
    share: float
    failed: int
    quota: float | None = None


class Bucket(_Part):
    """Failures that should have one cause.

    Attributes:
        bucket: As the oracles name it.
        causes: Buckets of those that were blamed and reduced.
        failures: How many there are.
        seeds: The first ones.
        message: Of the first one.
        culprit: Pass, rule or part, of those that were blamed.
        reduced: The smallest of the reduced programs.
        repro: Its script.
        program: The first program, as generated.
    """

    bucket: str
    causes: tuple[str, ...] = ()
    failures: int
    seeds: tuple[int, ...]
    oracle: str
    message: str
    culprit: tuple[str, ...] = ()
    reduced: str | None = None
    repro: str | None = None
    program: str | None = None
    notes: tuple[str, ...] = ()


class CampaignSummary(_Part):
    """A campaign as a whole.

    Attributes:
        campaign: Its id.
        engine: What was tested, and with which torch.
        config: As it was begun.
        seeds: The first seed with a result, and the last.
        programs: How many seeds have a result.
        distinct: How many different programs these are.
        steps: Median number of operators in a program.
        verdicts: Seeds by verdict.
        unsupported: Why programs are not taken, by how many.
        not_run: Oracles that could not be asked, with the reason, by how many programs.
        compared: Values that were compared with what they should be.
        bitwise: The share of them that was compared bit for bit; None if nothing was compared.
        seconds: Time of all sessions together.
        per_second: Programs per second, of all workers together ...
        per_core: ... and of one.
        rate: For the last session: seconds since its beginning, programs per second.
        oracles: By the time that they take.
        features: By how often they occur; first those that have a quota.
        operators: Likewise.
        passes: Of the default chain, by how many programs each changed.
        buckets: By how often they occur.
    """

    campaign: str
    engine: str
    config: dict[str, Any]
    seeds: tuple[int, int] | None
    programs: int
    distinct: int
    steps: float
    verdicts: dict[str, int]
    unsupported: dict[str, int]
    not_run: dict[str, int]
    compared: int
    bitwise: float | None
    seconds: float
    per_second: float
    per_core: float
    rate: tuple[tuple[float, float], ...]
    oracles: tuple[OracleTime, ...]
    features: tuple[FeatureCount, ...]
    operators: tuple[FeatureCount, ...]
    passes: tuple[FeatureCount, ...]
    buckets: tuple[Bucket, ...]

    @property
    def failed(self) -> int:
        """How many seeds have a verdict that is a finding."""
        return sum(self.verdicts.get(verdict, 0) for verdict in BAD_VERDICTS)


def summarise(store: Store, campaign: str | None = None, quotas: Mapping[str, float] | None = None) -> CampaignSummary:
    """Return what a database says of one of its campaigns.

    Args:
        store: The database.
        campaign: Id, or its beginning; by default the campaign that was worked on last.
        quotas: Share of programs that shall have a feature at least, by feature.

    Raises:
        ModelError: EK868, there is no such campaign.
    """
    chosen = find_campaign(store, campaign)
    query = store.connection.execute
    engine, config = query("SELECT engine, config FROM campaign WHERE id = ?", (chosen,)).fetchone()
    programs, first, last, distinct, compared, bitwise = query(
        "SELECT count(*), min(seed), max(seed), count(DISTINCT program), total(compared), total(bitwise) "
        "FROM result WHERE campaign = ?",
        (chosen,),
    ).fetchone()
    steps = [
        row[0]
        for row in query("SELECT steps FROM result JOIN program ON digest = program WHERE campaign = ?", (chosen,))
    ]
    verdicts = dict(query("SELECT verdict, count(*) FROM result WHERE campaign = ? GROUP BY verdict", (chosen,)))
    unsupported = dict(
        query(
            "SELECT symptom, count(DISTINCT seed) AS many FROM failure JOIN result USING (campaign, seed) "
            "WHERE campaign = ? AND verdict = 'unsupported' GROUP BY symptom ORDER BY many DESC, symptom",
            (chosen,),
        )
    )
    seconds, core_seconds, timed = _time(store, chosen)
    return CampaignSummary(
        campaign=chosen,
        engine=engine,
        config=json.loads(config),
        seeds=(first, last) if programs else None,
        programs=programs,
        distinct=distinct,
        steps=statistics.median(steps) if steps else 0,
        verdicts=verdicts,
        unsupported=unsupported,
        not_run=_not_run(store, chosen),
        compared=int(compared),
        bitwise=bitwise / compared if compared else None,
        seconds=seconds,
        per_second=timed / seconds if seconds else 0.0,
        per_core=timed / core_seconds if core_seconds else 0.0,
        rate=_rate(store, chosen),
        oracles=_oracles(store, chosen),
        features=_features(store, chosen, programs, quotas or {}),
        operators=_with_prefix(OPERATOR, store, chosen, programs),
        passes=_with_prefix(WORKED, store, chosen, programs),
        buckets=_buckets(store, chosen),
    )


def find_campaign(store: Store, beginning: str | None = None) -> str:
    """Return the id of the campaign that begins like this, or of the one that was worked on last.

    Raises:
        ModelError: EK868, there is none, or there are several.
    """
    known = store.campaigns()
    fitting = [name for name in known if name.startswith(beginning or "")]
    if not fitting or (beginning and len(fitting) > 1):
        raise ModelError(
            Diagnostic(
                code="EK868",
                message=f"{len(fitting)} campaigns have an id that begins with {beginning!r}"
                if beginning
                else "there is no campaign in this file",
                location=Location(file=str(store.path)),
                notes=(f"campaigns: {', '.join(known)}",) if known else (),
                hint="`exirkit fuzz --db FILE` adds one" if not known else None,
            )
        )
    return fitting[-1]


def _time(store: Store, campaign: str) -> tuple[float, float, int]:
    """Return the seconds of all sessions, those times the number of workers, and the programs of that time."""
    rows = store.connection.execute(
        "SELECT workers, max(at), sum(programs) FROM session JOIN batch USING (campaign, began, host, process) "
        "WHERE campaign = ? GROUP BY began, host, process",
        (campaign,),
    ).fetchall()
    return (
        sum(seconds for _, seconds, _ in rows),
        sum(workers * seconds for workers, seconds, _ in rows),
        sum(programs for _, _, programs in rows),
    )


def _rate(store: Store, campaign: str) -> tuple[tuple[float, float], ...]:
    """Return programs per second over the time of the last session, in equal pieces of time."""
    rows = store.connection.execute(
        "SELECT at, programs FROM batch WHERE campaign = :campaign AND (began, host, process) = "
        "(SELECT began, host, process FROM batch WHERE campaign = :campaign ORDER BY began DESC LIMIT 1) ORDER BY at",
        {"campaign": campaign},
    ).fetchall()
    if not rows:
        return ()
    pieces = max(1, min(_POINTS, len(rows) // 3))
    width = max(rows[-1][0] / pieces, 1e-9)
    counts = Counter[int]()
    for at, programs in rows:
        counts[min(int(at / width), pieces - 1)] += programs
    return tuple(((piece + 0.5) * width, counts[piece] / width) for piece in range(pieces))


def _not_run(store: Store, campaign: str) -> dict[str, int]:
    rows = store.connection.execute(
        "SELECT key || ': ' || value AS reason, count(*) FROM result, json_each(not_run) "
        "WHERE campaign = ? GROUP BY reason ORDER BY count(*) DESC, reason LIMIT 20",
        (campaign,),
    )
    return dict(rows.fetchall())


def _oracles(store: Store, campaign: str) -> tuple[OracleTime, ...]:
    taken: defaultdict[str, list[float]] = defaultdict(list)
    for (text,) in store.connection.execute("SELECT seconds FROM result WHERE campaign = ?", (campaign,)):
        for oracle, seconds in json.loads(text).items():
            taken[oracle].append(1000 * seconds)
    total = sum(map(sum, taken.values())) or 1.0
    made = [
        OracleTime(
            oracle=oracle,
            programs=len(values),
            mean=statistics.fmean(values),
            median=statistics.median(values),
            p95=sorted(values)[int(0.95 * (len(values) - 1))],
            share=sum(values) / total,
        )
        for oracle, values in taken.items()
    ]
    return tuple(sorted(made, key=lambda one: (-one.share, one.oracle)))


def _features(store: Store, campaign: str, programs: int, quotas: Mapping[str, float]) -> tuple[FeatureCount, ...]:
    found = {name: counts for name, *counts in _counts(store, campaign) if not name.startswith((OPERATOR, WORKED))}
    # A quota is one of programs that the generator made.
    generated = programs - found.get(SEED_CORPUS, [0])[0]
    if generated < programs:
        made_to_have = {name: counts for name, *counts in _counts(store, campaign, without=SEED_CORPUS)}
        found |= {name: made_to_have.get(name, [0, 0]) for name in quotas}
    made = [
        FeatureCount(
            feature=name,
            programs=many,
            share=many / max(generated if name in quotas else programs, 1),
            failed=failed,
            quota=quotas.get(name) if generated else None,
        )
        for name, (many, failed) in (dict.fromkeys(quotas, (0, 0)) | found).items()
    ]
    return tuple(sorted(made, key=lambda one: (one.quota is None, -one.programs, one.feature)))


def _with_prefix(prefix: str, store: Store, campaign: str, programs: int) -> tuple[FeatureCount, ...]:
    return tuple(
        FeatureCount(feature=name.removeprefix(prefix), programs=many, share=many / programs, failed=failed)
        for name, many, failed in _counts(store, campaign)
        if name.startswith(prefix)
    )


def _counts(store: Store, campaign: str, without: str = "") -> list[tuple[str, int, int]]:
    """Return features, how many programs have each, and how many of these failed; of programs without one feature."""
    return store.connection.execute(
        "SELECT value, count(*) AS many, sum(verdict = 'failed') FROM result, json_each(features) WHERE campaign = ? "
        "AND NOT EXISTS (SELECT 1 FROM json_each(result.features) AS other WHERE other.value = ?) "
        "GROUP BY value ORDER BY many DESC, value",
        (campaign, without),
    ).fetchall()


def _buckets(store: Store, campaign: str) -> tuple[Bucket, ...]:
    rows = store.connection.execute(
        "SELECT bucket, count(*) AS many, min(seed) FROM failure JOIN result USING (campaign, seed) "
        "WHERE campaign = ? AND verdict != 'unsupported' GROUP BY bucket ORDER BY many DESC, bucket",
        (campaign,),
    ).fetchall()
    return tuple(_bucket(store, campaign, name, many) for name, many, _ in rows)


def _bucket(store: Store, campaign: str, name: str, many: int) -> Bucket:
    query = store.connection.execute
    examples = query(
        "SELECT seed, oracle, message, text FROM failure JOIN result USING (campaign, seed) "
        "LEFT JOIN program ON digest = program WHERE campaign = ? AND bucket = ? ORDER BY seed, number LIMIT 5",
        (campaign, name),
    ).fetchall()
    analyses = query(
        "SELECT analysis.bucket, culprit, rule, application, reduced, repro, note FROM analysis "
        "JOIN failure USING (campaign, seed, number) WHERE campaign = ? AND failure.bucket = ? ORDER BY seed, number",
        (campaign, name),
    ).fetchall()
    reduced = sorted((one for one in analyses if one[4]), key=lambda one: len(one[4]))
    _, oracle, message, text = examples[0]
    return Bucket(
        bucket=name,
        causes=tuple(sorted({one[0] for one in analyses if one[0]})),
        failures=many,
        seeds=tuple(dict.fromkeys(seed for seed, *_ in examples)),
        oracle=oracle,
        message=message,
        culprit=tuple(sorted({_culprit_text(*one[1:4]) for one in analyses if one[1]})),
        reduced=reduced[0][4] if reduced else None,
        repro=reduced[0][5] if reduced else None,
        program=text,
        notes=tuple(dict.fromkeys(one[6] for one in analyses if one[6])),
    )


def _culprit_text(culprit: str, rule: str | None, application: int | None) -> str:
    text = culprit
    if rule is not None:
        text += f", rule {rule}"
    if application is not None:
        text += f", application {application}"
    return text

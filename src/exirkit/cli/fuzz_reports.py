"""The documents that `exirkit fuzz`, `report`, `show`, `merge` and `mutants` print with `--json`."""

from __future__ import annotations

from typing import Any

from .reports import Finding, Report


class FuzzBucket(Report):
    """Failures that should have one cause.

    Attributes:
        bucket: Its name; `exirkit fuzz show FILE NAME` shows a program of it.
        failures: How many there are.
        first_seed: The first program with one.
    """

    bucket: str
    failures: int
    first_seed: int


class FuzzTested(Report):
    """A rule, a pipeline or a stage of one that was under test.

    Attributes:
        kind: `rule`, `pipeline` or `stage`.
        name: Id of the rule, or name of the pipeline.
        changed: In how many programs the rule fired, or how many of them the pipeline changed.
        with_pattern: How many programs have the pattern of the rule.
        near: How many programs have something that is nearly the pattern.
    """

    kind: str
    name: str
    changed: int
    with_pattern: int
    near: int


class FuzzReport(Report):
    """What a campaign has found.

    Attributes:
        ok: No seed has a verdict that is bad for somebody, and all that was under test did something.
        campaign: Its id in the database.
        database: The file.
        first_seed: Of those that were asked for.
        seeds: How many seeds were asked for; none if as many as there was time for.
        done: How many of them have a result.
        new: How many of these are from this session.
        seconds: Wall time of this session.
        workers: How many processes did the work.
        verdicts: Seeds by verdict.
        buckets: The largest ones first.
        tested: What was under test, and how much of it was tested.
        diagnostics: Rules that fired in no program, and pipelines that changed none.
        notes: What went wrong with workers.
    """

    ok: bool
    campaign: str
    database: str
    first_seed: int
    seeds: int | None
    done: int
    new: int
    seconds: float
    workers: int
    verdicts: dict[str, int]
    buckets: list[FuzzBucket]
    tested: list[FuzzTested]
    diagnostics: list[Finding]
    notes: list[str]


class FuzzSummaryReport(Report):
    """What a database says of a campaign.

    Attributes:
        ok: No seed has a verdict that is bad for somebody.
        database: The file.
        html: The page that was written.
        summary: Everything; see `exirkit.fuzz.CampaignSummary`.
    """

    ok: bool
    database: str
    html: str | None
    summary: dict[str, Any]


class FuzzShowReport(Report):
    """A program of a campaign.

    Attributes:
        ok: Nothing is wrong with it.
        database: The file.
        shown: The program and what is known of it; see `exirkit.fuzz.Shown`.
    """

    ok: bool
    database: str
    shown: dict[str, Any]


class FuzzMergeReport(Report):
    """What was taken over from other files.

    Attributes:
        database: The file that has everything now.
        shards: The other files.
        added: How many results were not there before.
    """

    ok: bool = True
    database: str
    shards: list[str]
    added: int


class FuzzMutantsReport(Report):
    """How many mutants are found.

    Attributes:
        ok: All of them.
        killed: How many.
        blamed_right: For how many of these the right culprit was found.
        mutants: Each with `id`, `part`, `is_reached`, `is_infected`, `killed_by`, `symptom`, `seed`, `programs`,
            `seconds`, `blamed`, `is_blame_right`, `witness_killed_by` and `note`.
    """

    ok: bool
    killed: int
    blamed_right: int
    mutants: list[dict[str, Any]]

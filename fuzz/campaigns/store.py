"""The results of campaigns in one SQLite file: complete up to the last batch, whenever the process is killed."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from exirkit.ir import Diagnostic, Location, ModelError

from .config import CampaignConfig
from .results import Analysis, Result

# "EKFZ", so that no other database is taken for one of ours.
APPLICATION_ID = 0x454B465A
VERSION = 2
# What leads from a version to the next one.
_MIGRATIONS = {
    1: (
        "ALTER TABLE failure RENAME COLUMN rung TO oracle",
        "ALTER TABLE analysis RENAME COLUMN guilty TO culprit",
        "ALTER TABLE result ADD COLUMN counts TEXT NOT NULL DEFAULT '{}'",
    )
}

SCHEMA = """
CREATE TABLE campaign (
    id TEXT PRIMARY KEY, -- of the configuration and the engine
    engine TEXT NOT NULL,
    config TEXT NOT NULL -- JSON
) WITHOUT ROWID;
CREATE TABLE program (
    digest TEXT PRIMARY KEY, -- BLAKE2b of the text
    text TEXT NOT NULL,
    steps INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE result (
    campaign TEXT NOT NULL REFERENCES campaign,
    seed INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    program TEXT REFERENCES program,
    features TEXT NOT NULL, -- JSON, a sorted list
    level INTEGER NOT NULL,
    compared INTEGER NOT NULL,
    bitwise INTEGER NOT NULL,
    seconds TEXT NOT NULL, -- JSON, by oracle
    not_run TEXT NOT NULL, -- JSON, by oracle: why
    counts TEXT NOT NULL DEFAULT '{}', -- JSON
    PRIMARY KEY (campaign, seed)
) WITHOUT ROWID;
CREATE TABLE failure (
    campaign TEXT NOT NULL,
    seed INTEGER NOT NULL,
    number INTEGER NOT NULL,
    oracle TEXT NOT NULL,
    symptom TEXT NOT NULL,
    message TEXT NOT NULL,
    stage TEXT,
    node TEXT,
    bucket TEXT NOT NULL,
    PRIMARY KEY (campaign, seed, number),
    FOREIGN KEY (campaign, seed) REFERENCES result
) WITHOUT ROWID;
CREATE INDEX failure_bucket ON failure (campaign, bucket, seed);
CREATE TABLE analysis (
    campaign TEXT NOT NULL,
    seed INTEGER NOT NULL,
    number INTEGER NOT NULL,
    bucket TEXT NOT NULL,
    culprit TEXT,
    rule TEXT,
    application INTEGER,
    reduced TEXT,
    repro TEXT,
    note TEXT,
    seconds REAL NOT NULL,
    PRIMARY KEY (campaign, seed, number),
    FOREIGN KEY (campaign, seed, number) REFERENCES failure
) WITHOUT ROWID;
CREATE TABLE session ( -- when, where: all that a result does not depend on
    campaign TEXT NOT NULL REFERENCES campaign,
    began REAL NOT NULL, -- seconds since 1970
    host TEXT NOT NULL,
    process INTEGER NOT NULL,
    workers INTEGER NOT NULL,
    PRIMARY KEY (campaign, began, host, process)
) WITHOUT ROWID;
CREATE TABLE batch (
    campaign TEXT NOT NULL,
    began REAL NOT NULL,
    host TEXT NOT NULL,
    process INTEGER NOT NULL,
    at REAL NOT NULL, -- seconds since the beginning of the session
    seed INTEGER NOT NULL, -- the first one
    programs INTEGER NOT NULL,
    PRIMARY KEY (campaign, began, host, process, at, seed),
    FOREIGN KEY (campaign, began, host, process) REFERENCES session
) WITHOUT ROWID;
"""

TABLES = ("campaign", "program", "result", "failure", "analysis", "session", "batch")


class Store:
    """The database of campaigns.

    Args:
        path: Of the file.
        must_exist: Do not make a new file.
        patience: How many seconds to wait for another process that writes.

    Raises:
        ModelError: EK861, the file is something else, or is not there.
    """

    def __init__(self, path: str | os.PathLike[str], *, must_exist: bool = False, patience: float = 60.0) -> None:
        self.path = Path(path)
        if must_exist and not self.path.is_file():
            raise _wrong_file(self.path, "there is no such file")
        if not self.path.parent.is_dir():
            raise _wrong_file(self.path, "there is no such directory")
        try:
            self.connection = sqlite3.connect(self.path, timeout=patience, isolation_level=None)
        except sqlite3.DatabaseError as error:
            raise _wrong_file(self.path, str(error)) from error
        try:
            self._open()
        except BaseException as error:
            self.connection.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise _wrong_file(self.path, str(error)) from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def open_campaign(self, config: CampaignConfig, engine: str) -> str:
        """Return the id of the campaign with this configuration and engine; it is added if it is new."""
        name = config.identity(engine)
        with self.transaction():
            self.connection.execute(
                "INSERT INTO campaign VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (name, engine, config.model_dump_json())
            )
        return name

    def campaigns(self) -> list[str]:
        """Return the ids of all campaigns, the one that was worked on last at the end."""
        rows = self.connection.execute(
            "SELECT id FROM campaign LEFT JOIN session ON campaign = id "
            "GROUP BY id ORDER BY coalesce(max(began), 0), id"
        )
        return [name for (name,) in rows]

    def config(self, campaign: str) -> CampaignConfig:
        """Return the configuration that a campaign was begun with."""
        (text,) = self.connection.execute("SELECT config FROM campaign WHERE id = ?", (campaign,)).fetchone()
        return CampaignConfig.model_validate_json(text)

    def done(self, campaign: str, seeds: range) -> set[int]:
        """Return those of some seeds that have a result."""
        rows = self.connection.execute(
            "SELECT seed FROM result WHERE campaign = ? AND seed >= ? AND seed < ?", (campaign, seeds.start, seeds.stop)
        )
        return {seed for (seed,) in rows}

    def begin_session(self, campaign: str, began: float, host: str, process: int, workers: int) -> None:
        """Note that a session of a campaign begins."""
        with self.transaction():
            self.connection.execute(
                "INSERT INTO session VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (campaign, began, host, process, workers),
            )

    def add(
        self, campaign: str, results: Sequence[Result], session: tuple[float, str, int], at: float
    ) -> Sequence[Result]:
        """Add the results of a batch, all or none of them; returns those that were not there yet.

        Args:
            campaign: Its id.
            results: One for each seed.
            session: When the session began, on which host and in which process.
            at: Seconds since then.
        """
        with self.transaction():
            new = [result for result in results if self._add(campaign, result)]
            if new:
                self.connection.execute(
                    "INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (campaign, *session, at, new[0].seed, len(new)),
                )
        return new

    def add_analysis(self, campaign: str, made: Analysis) -> None:
        """Add what was found out about a failure."""
        with self.transaction():
            self.connection.execute(
                "INSERT INTO analysis VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    campaign, made.seed, made.number, made.bucket, made.culprit, made.rule, made.application,
                    made.reduced, made.repro, made.note, made.seconds,
                ),
            )  # fmt: skip

    def to_analyse(self, campaign: str, per_bucket: int, seeds: range) -> list[tuple[int, int]]:
        """Return seed and number of failures that were not analysed, the lowest seeds of each bucket."""
        rows = self.connection.execute(
            """
            SELECT first.seed, first.number FROM (
                SELECT seed, number, row_number() OVER (PARTITION BY bucket ORDER BY seed, number) AS place
                FROM failure JOIN result USING (campaign, seed) WHERE campaign = :campaign AND verdict = 'failed'
            ) AS first WHERE place <= :most AND seed >= :start AND seed < :stop AND NOT EXISTS (
                SELECT 1 FROM analysis AS known
                WHERE known.campaign = :campaign AND known.seed = first.seed AND known.number = first.number
            ) ORDER BY first.seed, first.number
            """,
            {"campaign": campaign, "most": per_bucket, "start": seeds.start, "stop": seeds.stop},
        )
        return [(seed, number) for seed, number in rows]

    def merge(self, shard: str | os.PathLike[str]) -> int:
        """Take over everything from another file that is not here yet; returns the number of new results.

        Raises:
            ModelError: EK861, the file is something else; EK865, the two have different verdicts for a seed.
        """
        with Store(shard, must_exist=True) as other:
            if other.path.samefile(self.path):
                return 0
        before = self._count()
        self.connection.execute("ATTACH ? AS shard", (os.fspath(shard),))
        try:
            self._check_agreement(shard)
            with self.transaction():
                for table in TABLES:
                    self.connection.execute(
                        f"INSERT INTO main.{table} SELECT * FROM shard.{table} WHERE true ON CONFLICT DO NOTHING"
                    )
        finally:
            self.connection.execute("DETACH shard")
        return self._count() - before

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do what the block does wholly or not at all.

        Raises:
            ModelError: EK869, the file cannot be written now.
        """
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            raise _cannot_write(self.path, error) from error

    def _open(self) -> None:
        (found,) = self.connection.execute("PRAGMA application_id").fetchone()
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        (tables,) = self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and (found != APPLICATION_ID or version not in (*_MIGRATIONS, VERSION)):
            raise _wrong_file(self.path, "this is another database, or one of another version of exirkit")
        self.connection.execute("PRAGMA journal_mode = WAL")
        # With WAL, nothing committed is lost when the process dies; when the machine does, the last batches are.
        self.connection.execute("PRAGMA synchronous = NORMAL")
        self.connection.execute("PRAGMA foreign_keys = ON")
        if tables and version != VERSION:
            self._migrate(version)
        if not tables:
            with self.transaction():
                (tables,) = self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                for statement in SCHEMA.split(";") if not tables else ():
                    self.connection.execute(statement)
                self.connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self.connection.execute(f"PRAGMA user_version = {VERSION}")

    def _migrate(self, version: int) -> None:
        with self.transaction():
            # Another process may have been faster.
            (version,) = self.connection.execute("PRAGMA user_version").fetchone()
            for number in range(version, VERSION):
                for statement in _MIGRATIONS[number]:
                    self.connection.execute(statement)
            self.connection.execute(f"PRAGMA user_version = {VERSION}")

    def _add(self, campaign: str, result: Result) -> bool:
        digest = hashlib.blake2b(result.program.encode(), digest_size=16).hexdigest() if result.program else None
        if digest is not None:
            self.connection.execute(
                "INSERT INTO program VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (digest, result.program, result.steps)
            )
        added = self.connection.execute(
            "INSERT INTO result VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (
                campaign, result.seed, result.verdict, digest, json.dumps(result.features), result.level,
                result.compared, result.bitwise, json.dumps(result.seconds, sort_keys=True),
                json.dumps(result.not_run, sort_keys=True), json.dumps(result.counts, sort_keys=True),
            ),
        )  # fmt: skip
        if not added.rowcount:
            return False
        self.connection.executemany(
            "INSERT INTO failure VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            _failure_rows(campaign, result),
        )
        return True

    def _check_agreement(self, shard: str | os.PathLike[str]) -> None:
        found = self.connection.execute(
            """
            SELECT here.seed, here.verdict, there.verdict
            FROM main.result AS here JOIN shard.result AS there USING (campaign, seed)
            WHERE here.verdict != there.verdict OR here.program IS NOT there.program ORDER BY here.seed LIMIT 1
            """
        ).fetchone()
        if found:
            seed, ours, theirs = found
            raise ModelError(
                Diagnostic(
                    code="EK865",
                    message=f"{os.fspath(shard)} has another result for seed {seed} of the same campaign",
                    notes=(f"{ours} here, {theirs} there",),
                    hint="a verdict that depends on the machine, such as timed_out, is a reason; run the seed again",
                )
            )

    def _count(self) -> int:
        (number,) = self.connection.execute("SELECT count(*) FROM result").fetchone()
        return int(number)


def _failure_rows(campaign: str, result: Result) -> Iterable[tuple[object, ...]]:
    for number, found in enumerate(result.failures):
        yield (
            campaign, result.seed, number, found.oracle, found.symptom, found.message, found.stage, found.node,
            found.bucket,
        )  # fmt: skip


def _wrong_file(path: Path, what: str) -> ModelError:
    return ModelError(
        Diagnostic(
            code="EK861",
            message=f"not a file with the results of campaigns: {what}",
            location=Location(file=os.fspath(path)),
            hint="name a file that `exirkit fuzz --db FILE` has written, or a new one",
        )
    )


def _cannot_write(path: Path, error: sqlite3.OperationalError) -> ModelError:
    return ModelError(
        Diagnostic(
            code="EK869",
            message=f"the results cannot be written: {error}",
            location=Location(file=os.fspath(path)),
            hint="everything up to the last batch is kept; is the disk full, or busy with another campaign?",
        )
    )

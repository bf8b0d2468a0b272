"""Many seeds on many workers: what is done is kept at once, what dies is tried again alone."""

from __future__ import annotations

import itertools
import json
import os
import socket
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from exirkit.ir import Diagnostic, DiagnosticError, InternalError

from .config import CampaignConfig
from .engine import engine_text
from .execution.isolation import run_isolated
from .execution.pool import ProcessPool
from .execution.scale_out import ClusterLostError
from .execution.work import RESULTS, analyse_failure, run_batch
from .results import BAD_VERDICTS, Analysis, Result
from .store import Store
from .tested_parts import Uses

# A unit of work: long enough that handing it out costs nothing, short enough that little is lost with it.
_BATCH_SECONDS = 1.0
_FIRST_BATCH = 4
_LARGEST_BATCH = 256
# Tasks for each worker: the one it works on, and the next.
_AHEAD = 2
_MOST_ATTEMPTS = 3
_TICK_SECONDS = 0.5


@dataclass
class Progress:
    """Where a campaign is.

    Attributes:
        campaign: Its id in the database.
        database: The file.
        total: How many seeds are asked for; None if as many as there is time for.
        done: How many of them have a result ...
        new: ... and of these, how many from this session.
        seconds: Since the beginning of this session.
        verdicts: Seeds by verdict.
        buckets: Failures by bucket; those of the seeds that are asked for.
        first_seeds: The first seed of each bucket so far.
        analyses: How many failures are to be blamed and reduced, and how many have been.
        uses: What the programs have of the parts under test.
        counts: Sums of the numbers that the bench counts.
        oracle_seconds: Sums of the time of each oracle, of this session.
        notes: What went wrong with workers.
        is_over: Nothing more is to be done.
    """

    campaign: str
    database: Path
    total: int | None = None
    done: int = 0
    new: int = 0
    seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    buckets: Counter[str] = field(default_factory=Counter)
    first_seeds: dict[str, int] = field(default_factory=dict)
    analyses: tuple[int, int] = (0, 0)
    uses: Uses = field(default_factory=Uses)
    counts: Counter[str] = field(default_factory=Counter)
    oracle_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    notes: list[str] = field(default_factory=list)
    is_over: bool = False

    @property
    def failed(self) -> int:
        """How many seeds have a verdict that is a finding."""
        return sum(self.verdicts[verdict] for verdict in BAD_VERDICTS)


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class _Task:
    seeds: tuple[int, ...]
    attempt: int = 0


class Campaign:
    """A range of seeds, and where their results are kept.

    Running it again goes on where the last session has stopped, however that ended: a seed that has a result is not
    run again, and one without is.

    Args:
        config: What to do.
        database: SQLite file; made if it is not there. One file can hold many campaigns.
    """

    def __init__(self, config: CampaignConfig, database: str | os.PathLike[str]) -> None:
        self.config = config
        self.database = Path(database)

    def run(
        self,
        executor: Executor,
        *,
        workers: int = 1,
        minutes: float | None = None,
        watch: Watch | None = None,
        in_children: bool = False,
    ) -> Progress:
        """Check all seeds that have no result yet, then look into the failures.

        Args:
            executor: Does the work: `ProcessPool`, or any other one, such as that of a Dask client.
            workers: How many tasks it can do at a time.
            minutes: Begin no batch after that time.
            in_children: Workers have child processes that die instead of them; for executors whose workers take long to
                be started again, such as those of Dask.
            watch: Called after every batch, at least twice a second.

        Raises:
            DiagnosticError: The configuration is wrong, or the database cannot be used. What is in the database is
                right after any exception, KeyboardInterrupt among them.
        """
        with Store(self.database) as store:
            session = _Session(self.config, store, executor, workers, watch, in_children)
            session.check(time.monotonic() + 60 * minutes if minutes is not None else None)
            session.analyse()
            session.progress.is_over = True
            session.tell()
        return session.progress


def run_here(config: CampaignConfig, *, workers: int = 1, watch: Watch | None = None) -> Progress:
    """Run a campaign on this machine without keeping its results.

    Args:
        config: What to do.
        workers: Processes; with one, this process does the work.
        watch: Called after every batch.
    """
    executor: Executor = ProcessPool(workers) if workers > 1 else ThreadPoolExecutor(1)
    with tempfile.TemporaryDirectory() as folder, executor:
        return Campaign(config, Path(folder, "campaign.db")).run(executor, workers=workers, watch=watch)


class _Session:
    """One run of a campaign."""

    def __init__(
        self,
        config: CampaignConfig,
        store: Store,
        executor: Executor,
        workers: int,
        watch: Watch | None,
        in_children: bool,
    ) -> None:
        self._config, self._store, self._executor, self._workers, self._watch = config, store, executor, workers, watch
        self._in_children = in_children
        self._text = config.model_dump_json()
        self._campaign = store.open_campaign(config, engine_text())
        self._began, self._since = time.time(), time.monotonic()
        self._key = (self._began, socket.gethostname(), os.getpid())
        store.begin_session(self._campaign, *self._key, workers)
        self._done = store.done(self._campaign, config.seed_range())
        self._pending: dict[Future[str], _Task] = {}
        self._seed_seconds: float | None = None
        self._is_pool_broken = False
        self.progress = Progress(self._campaign, store.path, config.seeds, done=len(self._done))
        self._count_earlier()

    def check(self, deadline: float | None) -> None:
        """Run all seeds without a result, until there is no time left."""
        seeds = (seed for seed in self._config.seed_range() if seed not in self._done)
        try:
            with ExitStack() as stack:
                while self._fill(seeds, deadline, stack) or self._pending:
                    finished, _ = wait(self._pending, timeout=_TICK_SECONDS, return_when=FIRST_COMPLETED)
                    for future in finished:
                        self._collect(future, self._pending.pop(future), stack)
                    self.tell()
        finally:
            self._keep_finished()

    def analyse(self) -> None:
        """Blame and reduce the first failures of every bucket."""
        chosen = self._store.to_analyse(self._campaign, self._config.analyses, self._config.seed_range())
        self.progress.analyses = (0, len(chosen))
        left = iter(chosen)
        pending: dict[Future[str], tuple[int, int]] = {}
        # After the end of a pool there is none to do this; the next session has one.
        while not self._is_pool_broken:
            for seed, number in itertools.islice(left, _AHEAD * self._workers - len(pending)):
                try:
                    pending[self._executor.submit(analyse_failure, self._text, seed, number)] = (seed, number)
                except RuntimeError as error:
                    self._is_pool_broken = True
                    self._note(f"the pool of workers is broken: {error}")
                    break
            if not pending:
                return
            finished, _ = wait(pending, timeout=_TICK_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                failure = pending.pop(future)
                if isinstance(future.exception(), ClusterLostError):
                    # The next session does it.
                    continue
                self._store.add_analysis(self._campaign, _analysis(future, *failure))
                self.progress.analyses = (self.progress.analyses[0] + 1, len(chosen))
            self.tell()

    def tell(self) -> None:
        """Let the watcher know where we are."""
        self.progress.seconds = time.monotonic() - self._since
        if self._watch is not None:
            self._watch(self.progress)

    def _fill(self, seeds: Iterator[int], deadline: float | None, stack: ExitStack) -> bool:
        """Hand out work until every worker has some and some to come; returns whether there was any."""
        is_filled = False
        while len(self._pending) < _AHEAD * self._workers and (deadline is None or time.monotonic() < deadline):
            batch = tuple(itertools.islice(seeds, self._batch_size()))
            if not batch:
                break
            self._submit(_Task(batch), stack)
            is_filled = True
        return is_filled

    def _batch_size(self) -> int:
        if self._config.batch is not None:
            return self._config.batch
        if self._seed_seconds is None:
            return _FIRST_BATCH
        return max(1, min(int(_BATCH_SECONDS / max(self._seed_seconds, 1e-6)), _LARGEST_BATCH))

    def _submit(self, task: _Task, stack: ExitStack) -> None:
        is_alone = task.attempt > 0 or self._is_pool_broken or self._in_children
        try:
            future = self._executor.submit(run_isolated if is_alone else run_batch, self._text, task.seeds)
        except RuntimeError as error:
            if self._is_pool_broken:
                raise
            # Some pools do not survive the death of one process; children of threads of our own are slow, but do.
            self._is_pool_broken = True
            self._note(f"the pool of workers is broken, going on without it: {error}")
            # The workers may have been those of a cluster; now they are processes of this machine.
            self._workers = min(self._workers, os.cpu_count() or 1)
            self._executor = stack.enter_context(ThreadPoolExecutor(self._workers))
            self._submit(task, stack)
            return
        self._pending[future] = task

    def _collect(self, future: Future[str], task: _Task, stack: ExitStack) -> None:
        try:
            text = future.result()
        except DiagnosticError:
            raise
        except ClusterLostError as error:
            # Not a fault of these seeds, so that it is not one of their attempts.
            self._note(f"seeds {_span(task.seeds)}: {error}")
            self._submit(task, stack)
            return
        # Whatever it is: with every executor, the death of a worker has another name.
        except Exception as error:
            self._note(f"seeds {_span(task.seeds)}: {type(error).__name__}: {error}")
            if task.attempt + 1 >= _MOST_ATTEMPTS:
                raise _cannot_be_done(task, error) from error
            self._submit(_Task(task.seeds, task.attempt + 1), stack)
            return
        self._add(RESULTS.validate_json(text))

    def _add(self, results: list[Result]) -> None:
        new = self._store.add(self._campaign, results, self._key, time.monotonic() - self._since)
        for result in new:
            self.progress.done += 1
            self.progress.new += 1
            self.progress.verdicts[result.verdict] += 1
            self.progress.uses.add(result.features)
            self.progress.counts.update(result.counts)
            for oracle, seconds in result.seconds.items():
                self.progress.oracle_seconds[oracle] += seconds
            for found in result.failures if result.verdict in BAD_VERDICTS else ():
                self.progress.buckets[found.bucket] += 1
                first = self.progress.first_seeds.get(found.bucket, result.seed)
                self.progress.first_seeds[found.bucket] = min(first, result.seed)
        spent = sum(sum(result.seconds.values()) for result in results) / max(len(results), 1)
        self._seed_seconds = spent if self._seed_seconds is None else 0.7 * self._seed_seconds + 0.3 * spent

    def _keep_finished(self) -> None:
        """After an interrupt: what is finished is kept, the rest is cancelled."""
        for future in self._pending:
            if not future.cancel() and future.done() and future.exception() is None:
                self._add(RESULTS.validate_json(future.result()))
        self._pending.clear()

    def _note(self, text: str) -> None:
        self.progress.notes.append(text.splitlines()[0])

    def _count_earlier(self) -> None:
        seeds = self._config.seed_range()
        where = "campaign = ? AND seed >= ? AND seed < ?"
        asked = (self._campaign, seeds.start, seeds.stop)
        connection = self._store.connection
        for verdict, count in connection.execute(
            f"SELECT verdict, count(*) FROM result WHERE {where} GROUP BY verdict", asked
        ):
            self.progress.verdicts[verdict] = count
        for features, counts in connection.execute(f"SELECT features, counts FROM result WHERE {where}", asked):
            self.progress.uses.add(json.loads(features))
            self.progress.counts.update(json.loads(counts))
        for bucket, count, first in connection.execute(
            f"SELECT bucket, count(*), min(seed) FROM failure JOIN result USING (campaign, seed) "
            f"WHERE {where} AND verdict != 'unsupported' GROUP BY bucket",
            asked,
        ):
            self.progress.buckets[bucket] = count
            self.progress.first_seeds[bucket] = first


def _analysis(future: Future[str], seed: int, number: int) -> Analysis:
    try:
        return Analysis.model_validate_json(future.result())
    except Exception as error:
        note = f"the analysis did not come to its end: {type(error).__name__}: {error}"
        return Analysis(seed=seed, number=number, bucket="", note=note)


def _span(seeds: tuple[int, ...]) -> str:
    return f"{seeds[0]}:{seeds[-1] + 1}"


def _cannot_be_done(task: _Task, error: Exception) -> InternalError:
    return InternalError(
        Diagnostic(
            code="EK864",
            message=f"seeds {_span(task.seeds)} were tried {_MOST_ATTEMPTS} times, and every time their worker died",
            notes=(f"{type(error).__name__}: {error}",),
            hint="everything else is kept; run the campaign again when the reason is gone, such as a lack of memory",
        )
    )

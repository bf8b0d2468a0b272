"""A campaign runs every seed once, whatever happens to its workers and whenever it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.campaigns.stand_in import HERE, config

from exirkit.fuzz.campaigns import Campaign, CampaignConfig, ProcessPool, Progress, Result, Store, summarise
from exirkit.ir import ModelError


class Here(Executor):
    """Does everything in this thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def results(path: Path) -> list[tuple[Any, ...]]:
    """All that a seed determines, for every seed of a file."""
    with Store(path) as store:
        return store.connection.execute(
            "SELECT campaign, seed, verdict, program, features, level, bucket FROM result "
            "LEFT JOIN failure USING (campaign, seed) ORDER BY campaign, seed, number"
        ).fetchall()


def verdicts(path: Path) -> dict[int, str]:
    return {row[1]: row[2] for row in results(path)}


def test_results_do_not_depend_on_executor_and_batches(tmp_path: Path) -> None:
    policy = {"fail": [3, 8, 9], "raise": [20], "raise_in_make": [21], "unsupported": [22]}
    one = Campaign(config(policy=policy), tmp_path / "one.db").run(Here())
    with ThreadPoolExecutor(3) as pool:
        Campaign(config(policy=policy, batch=None), tmp_path / "two.db").run(pool, workers=3)
    assert results(tmp_path / "one.db") == results(tmp_path / "two.db")
    assert one.verdicts == Counter(passed=34, failed=3, broken=2, unsupported=1)
    assert one.failed == 5
    assert one.buckets["O3/values"] == 3
    assert one.first_seeds["O3/values"] == 3


def test_levels_follow_from_seeds(tmp_path: Path) -> None:
    Campaign(config(optimization_levels=(0, 2), seeds=6), tmp_path / "c.db").run(Here())
    assert [row[5] for row in results(tmp_path / "c.db")] == [0, 2, 0, 2, 0, 2]


def test_a_second_run_does_what_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    policy = {"log": str(log)}
    path = tmp_path / "c.db"
    Campaign(config(policy=policy, seeds=7), path).run(Here())
    progress = Campaign(config(policy=policy, seeds=12, batch=3), path).run(Here())
    assert (progress.done, progress.new) == (12, 5)
    assert [int(line.split()[0]) for line in log.read_text().splitlines()] == list(range(12))


def test_another_configuration_is_another_campaign(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    first = Campaign(config(seeds=3), path).run(Here())
    second = Campaign(config(seeds=3, optimization_levels=(2,)), path).run(Here())
    assert first.campaign != second.campaign
    assert second.new == 3
    with Store(path) as store:
        assert store.campaigns() == [first.campaign, second.campaign]


def test_time_ends_a_campaign_without_end(tmp_path: Path) -> None:
    progress = Campaign(config(seeds=None, policy={"sleep": 0.02}), tmp_path / "c.db").run(Here(), minutes=0.003)
    assert 0 < progress.done < 40
    assert progress.total is None


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.done >= 15:
            raise KeyboardInterrupt

    path = tmp_path / "c.db"
    with pytest.raises(KeyboardInterrupt):
        Campaign(config(), path).run(Here(), watch=interrupt)
    kept = verdicts(path)
    assert 15 <= len(kept) < 40
    progress = Campaign(config(), path).run(Here())
    assert progress.done == 40
    assert progress.new == 40 - len(kept)


def test_failures_are_analysed_once_for_each_bucket(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    policy = {"fail": [3, 8, 9, 11]}
    progress = Campaign(config(policy=policy), path).run(Here())
    assert progress.analyses == (2, 2)
    assert Campaign(config(policy=policy), path).run(Here()).analyses == (0, 0)
    assert Campaign(config(policy=policy, analyses=3), path).run(Here()).analyses == (1, 1)
    with Store(path) as store:
        (bucket,) = summarise(store).buckets
    assert bucket.failures == 4
    assert bucket.culprit == ("MergeEqualNodes",)
    assert bucket.repro == "assert 1 == 2"


def test_a_wrong_configuration_ends_the_campaign(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="EK863"):
        Campaign(config(bench="no.such.module:Bench"), tmp_path / "c.db").run(Here())


def test_the_configuration_survives_json() -> None:
    made = config(policy={"fail": [1]}, oracles=("eager-run",))
    assert CampaignConfig.model_validate_json(made.model_dump_json()) == made


class Breaking(ThreadPoolExecutor):
    """A pool that is of no use after its third task, as that of the standard library after the death of a process."""

    def __init__(self) -> None:
        super().__init__(1)
        self.tasks = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks += 1
        if self.tasks > 3:
            raise BrokenProcessPool("a process ended")
        return super().submit(fn, *args, **kwargs)


def test_a_broken_pool_is_gone_without(tmp_path: Path) -> None:
    with Breaking() as pool:
        progress = Campaign(config(seeds=20), tmp_path / "c.db").run(pool)
    assert progress.verdicts == Counter(passed=20)
    assert "going on without it" in progress.notes[0]


def test_seeds_that_kill_or_hang_are_named(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    policy = {"die": [12, 13, 30], "hang": [17]}
    with ProcessPool(2) as pool:
        progress = Campaign(config(policy=policy, seed_seconds=1.5), path).run(pool, workers=2)
    assert {seed: verdict for seed, verdict in verdicts(path).items() if verdict != "passed"} == {
        12: "crashed",
        13: "crashed",
        17: "timed_out",
        30: "crashed",
    }
    assert progress.buckets == Counter({"process/SIGKILL": 3, "process/timeout": 1})
    with Store(path) as store:
        programs = dict(store.connection.execute("SELECT seed, text FROM result JOIN program ON digest = program"))
    assert programs[13] == "program(1)  # 13"


def test_a_worker_that_is_killed_from_outside_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    killed: list[int] = []
    with ProcessPool(2) as pool:

        def kill(progress: Progress) -> None:
            if progress.done >= 10 * (len(killed) + 1) and len(killed) < 2 and (ids := pool.process_ids()):
                killed.append(ids[0])
                os.kill(ids[0], signal.SIGKILL)

        made = config(policy={"sleep": 0.02}, batch=3)
        progress = Campaign(made, path).run(pool, workers=2, watch=kill)
    assert len(killed) == 2
    assert progress.verdicts == Counter(passed=40)


def test_a_failing_analysis_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with ProcessPool(1) as pool:
        Campaign(config(seeds=5, policy={"fail": [2], "die_in_analysis": [2]}), path).run(pool)
    with Store(path) as store:
        (bucket,) = summarise(store).buckets
    assert "did not come to its end" in bucket.notes[0]


SCRIPT = """
import sys
from pathlib import Path
from exirkit.fuzz.campaigns import Campaign, CampaignConfig, ProcessPool

if __name__ == "__main__":
    config = CampaignConfig.model_validate_json(Path(sys.argv[1]).read_text())
    with ProcessPool(2) as pool:
        Campaign(config, sys.argv[2]).run(pool, workers=2)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return path


def test_a_campaign_that_is_killed_goes_on(tmp_path: Path, script: Path) -> None:
    log, path, settings = tmp_path / "log", tmp_path / "c.db", tmp_path / "config.json"
    made = config(policy={"log": str(log), "sleep": 0.03}, batch=4, seeds=120)
    settings.write_text(made.model_dump_json())
    process = subprocess.Popen([sys.executable, str(script), str(settings), str(path)])
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (not log.is_file() or len(log.read_text().splitlines()) < 30):
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    kept = verdicts(path)
    assert 0 < len(kept) < 120
    # Workers see that nothing listens any more, and end.
    ids = {int(line.split()[1]) for line in log.read_text().splitlines()}
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(Path(f"/proc/{one}").exists() for one in ids):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{one}").exists() for one in ids)
    log.unlink()
    progress = Campaign(made, path).run(Here())
    assert progress.done == 120
    again = {int(line.split()[0]) for line in log.read_text().splitlines()}
    assert again == set(range(120)) - set(kept)


def test_the_stand_in_is_a_file_that_workers_can_import() -> None:
    assert HERE.endswith("stand_in.py")
    assert Result(seed=1, verdict="passed").model_dump_json()

"""A campaign on a Dask cluster of two processes, one of which is killed, loses nothing."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.campaigns.stand_in import config

from exirkit.fuzz.campaigns import Campaign, Progress, Store, dask_executor
from exirkit.ir import ModelError

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'exirkit[dask]'")

pytestmark = [
    # Loops and sockets of Dask are closed when they are collected.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A scheduler and two processes on this machine."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as made:
        yield made


def test_a_killed_worker_costs_nothing(tmp_path: Path, cluster: Any) -> None:
    log, path = tmp_path / "log", tmp_path / "c.db"
    made = config(policy={"log": str(log), "sleep": 0.03, "fail": [3, 50], "die": [31]}, batch=4, seeds=80)
    killed: list[int] = []

    def kill(progress: Progress) -> None:
        if progress.done >= 12 and not killed:
            killed.append(next(iter(hosts.values())))
            os.kill(killed[0], signal.SIGKILL)

    with distributed.Client(cluster, set_as_default=False) as client:
        hosts = client.run(os.getpid)
    with dask_executor(cluster.scheduler_address) as (executor, workers):
        assert workers == 2
        progress = Campaign(made, path).run(executor, workers=workers, watch=kill, in_children=True)
    assert len(killed) == 1
    assert killed[0] != os.getpid()
    assert progress.verdicts == Counter(passed=77, failed=2, crashed=1)
    with Store(path) as store:
        assert len(store.done(progress.campaign, range(80))) == 80
        rows = store.connection.execute("SELECT count(*), count(DISTINCT seed) FROM result").fetchone()
        assert rows == (80, 80)
        assert store.connection.execute("SELECT seed FROM result WHERE verdict = 'crashed'").fetchall() == [(31,)]
    # Children of both have worked, one that came for the one that had died, and that of the worker that was killed.
    assert len({line.split()[1] for line in log.read_text().splitlines()}) >= 3


def test_a_cluster_without_workers_is_rejected() -> None:
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as empty,
        pytest.raises(ModelError, match="has no workers"),
        dask_executor(empty.scheduler_address),
    ):
        pass

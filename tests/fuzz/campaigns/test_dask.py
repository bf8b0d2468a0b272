"""Campaigns on a Dask cluster lose nothing when one of its workers is killed, or its scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.campaigns.stand_in import config

from exirkit.fuzz.campaigns import Campaign, ProcessPool, Progress, Store, dask_executor
from exirkit.fuzz.campaigns.execution import scale_out
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
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
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


ALONE = """
import sys
from distributed import LocalCluster
options = {"processes": False, "protocol": "tcp://", "dashboard_address": ":0"}
with LocalCluster(n_workers=1, threads_per_worker=1, **options) as made:
    print(made.scheduler_address, flush=True)
    sys.stdin.read()
"""


def test_a_killed_scheduler_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_out, "_PATIENCE_SECONDS", 1)
    log, path = tmp_path / "log", tmp_path / "c.db"
    made = config(policy={"log": str(log), "sleep": 0.02, "fail": [3, 20]}, batch=4, seeds=24, analyses=1)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", ALONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as alone:
        assert alone.stdout is not None
        address = alone.stdout.readline().strip()

        def kill(progress: Progress) -> None:
            if progress.done >= 8:
                alone.kill()

        with dask_executor(address) as (executor, workers):
            progress = Campaign(made, path).run(executor, workers=workers, watch=kill, in_children=True)
    assert progress.verdicts == Counter(passed=22, failed=2)
    assert any("the scheduler has gone" in note for note in progress.notes)
    with Store(path) as store:
        assert store.connection.execute("SELECT count(*), count(DISTINCT seed) FROM result").fetchone() == (24, 24)
    # The failures are looked into by the next session, whose workers are those of this machine.
    with ProcessPool(1) as pool:
        again = Campaign(made, path).run(pool)
    assert (again.new, again.analyses) == (0, (1, 1))


def test_a_cluster_without_workers_is_rejected() -> None:
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as empty,
        pytest.raises(ModelError, match="has no workers"),
        dask_executor(empty.scheduler_address),
    ):
        pass

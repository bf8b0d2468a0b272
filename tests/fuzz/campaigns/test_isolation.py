"""Seeds in a child process that is kept between batches."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.fuzz.campaigns.stand_in import config

from exirkit.fuzz.campaigns.execution import isolation
from exirkit.fuzz.campaigns.execution.isolation import run_isolated
from exirkit.ir import InternalError


@pytest.fixture(autouse=True)
def no_child_is_kept() -> None:
    isolation._kept.child = None


def seeds_of(results: str) -> list[tuple[int, str]]:
    return [(one["seed"], one["verdict"]) for one in json.loads(results)]


def test_a_child_that_died_between_batches_is_replaced() -> None:
    made = config().model_dump_json()
    first = seeds_of(run_isolated(made, [1]))
    kept = isolation._kept.child
    assert kept is not None
    os.kill(kept.process.pid, signal.SIGKILL)
    kept.process.wait()
    second = seeds_of(run_isolated(made, [2, 3]))
    assert [seed for seed, _ in first + second] == [1, 2, 3]
    assert {verdict for _, verdict in first + second} == {first[0][1]}
    assert isolation._kept.child is not kept


def test_a_child_that_does_not_begin_is_told_from_one_that_died(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sleeping = tmp_path / "sleeping"
    sleeping.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeping.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(sleeping))
    monkeypatch.setattr(isolation, "_START_SECONDS", 0.5)
    with pytest.raises(InternalError, match="EK862") as caught:
        run_isolated(config().model_dump_json(), [1])
    assert caught.value.diagnostics[0].notes[0] == "it did not begin within 0.5 s"
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(isolation, "_START_SECONDS", 60.0)
    with pytest.raises(InternalError, match="EK862") as caught:
        run_isolated(config().model_dump_json(), [1])
    assert caught.value.diagnostics[0].notes[0] == "exit code 1"


def test_a_child_that_is_given_little_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # It imports torch, which takes longer, and longer still on a busy machine.
    monkeypatch.setattr(isolation, "_START_SECONDS", 0.25)
    monkeypatch.setattr(isolation, "_MOST_STARTS", 1000)
    kept = isolation._kept.child
    if kept is not None:
        kept.close()
        isolation._kept.child = None
    assert [seed for seed, _ in seeds_of(run_isolated(config().model_dump_json(), [1]))] == [1]

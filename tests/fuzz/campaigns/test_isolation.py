"""Seeds in a child process that is kept between batches."""

from __future__ import annotations

import json
import os
import signal
import sys

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


def test_a_child_that_does_not_begin_is_told_from_one_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_START_SECONDS", 0.01)
    with pytest.raises(InternalError, match="EK862") as caught:
        run_isolated(config().model_dump_json(), [1])
    assert caught.value.diagnostics[0].notes[0] == "it said nothing for 0.01 s"
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(isolation, "_START_SECONDS", 60.0)
    with pytest.raises(InternalError, match="EK862") as caught:
        run_isolated(config().model_dump_json(), [1])
    assert caught.value.diagnostics[0].notes[0] == "exit code 1"

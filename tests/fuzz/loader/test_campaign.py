"""Short campaigns: nothing is found in the loader, bugs are, and counts survive."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from exirkit.fuzz.loader import LoaderFuzzing, State

pytestmark = [
    pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed: no loader fuzzing"),
]


@pytest.fixture(autouse=True)
def bugs_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let children import what is beside this file; pytest itself imports tests by their paths."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[3]), *sys.path])


def main(arguments: list[str]) -> int:
    """Run the command in a process of its own: it limits the memory of its process."""
    return subprocess.run([sys.executable, "-m", "exirkit.fuzz.loader", *arguments], check=False).returncode


def fuzzing(tmp_path: Path, patch: str | None = None, **options: object) -> LoaderFuzzing:
    where = f"tests.fuzz.loader.reader_bugs:{patch}" if patch else None
    usual: dict[str, object] = {"batch": 4000, "instrumented_every": 0, "patch": where}
    return LoaderFuzzing(tmp_path / "state.json", **(usual | options))  # type: ignore[arg-type]


def errors(campaign: LoaderFuzzing) -> list[str]:
    return [each.error for each in campaign.findings().values()]


def test_nothing_is_found_and_counts_go_on(tmp_path: Path) -> None:
    campaign = fuzzing(tmp_path, batch=1500, instrumented_every=2, instrumented_batch=300)
    first = campaign.run(1000)
    assert errors(campaign) == []
    assert first.executions == 1000
    assert (first.instrumented.executions, first.guided.executions) == (300, 700)
    assert first.crashes == 0
    second = fuzzing(tmp_path).run(500)
    assert second.executions == 1500
    assert State.model_validate_json(campaign.file.read_text()) == second
    assert sum(count for name, count in second.guided.outcomes.items() if name != "printed") == 1200
    # The damage gets through to the checks behind the reader, and not all files are rejected.
    assert sum(count for name, count in second.guided.outcomes.items() if name.startswith("EK6")) > 100
    assert second.guided.outcomes["loaded"] > 10
    assert len(list(campaign.directory("corpus").iterdir())) > 30
    assert not list(campaign.directory("ledgers").glob("*.ledger"))


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        ("trusts_an_input", "IndexError"),
        ("hangs", "TooLongError"),
        ("allocates", "TooMuchMemoryError: an execution took"),
        ("asks_for_too_much", "MemoryError"),
    ],
)
def test_bugs_are_found(tmp_path: Path, patch: str, error: str) -> None:
    campaign = fuzzing(tmp_path, patch, seconds=0.2)
    state = campaign.run(2000)
    assert any(each.startswith(error) for each in errors(campaign))
    assert state.guided.outcomes["broken"] > 0
    assert state.executions == 2000
    # Each finding comes with a file, which the real reader takes.
    assert main(["--replay", *map(str, campaign.findings())]) == 0


@pytest.mark.parametrize("patch", ["dies", "sleeps"])
def test_what_a_child_died_of_is_kept(tmp_path: Path, patch: str) -> None:
    campaign = fuzzing(tmp_path, patch, patience_s=20.0)
    state = campaign.prepare()
    campaign._round(state, 2000, 1)
    campaign.keep(state)
    assert state.crashes == 1
    assert 0 < state.executions < 2000
    assert errors(campaign) == [
        "ChildDiedError: the child ended with 11"
        if patch == "dies"
        else "ChildDiedError: the child does nothing any more"
    ]
    (file,) = campaign.findings()
    assert file.stat().st_size > 100


def test_a_process_that_grows_is_told(tmp_path: Path) -> None:
    campaign = fuzzing(tmp_path, "keeps", warm=2000, batch=8000)
    state = campaign.run(8000)
    assert any(each.startswith("TooMuchMemoryError: the process has grown") for each in errors(campaign))
    assert state.guided.growth_nbytes > 64 << 20


def test_what_a_killed_parent_left_is_counted(tmp_path: Path) -> None:
    campaign = fuzzing(tmp_path)
    command = [sys.executable, "-m", "exirkit.fuzz.loader", "--executions", "1000000", "--state", str(campaign.file)]
    command += ["--instrumented-every", "0"]
    import os
    import time

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as parent:
        deadline = time.monotonic() + 120
        while not _counted(campaign) and time.monotonic() < deadline:
            time.sleep(0.2)
        parent.kill()
    time.sleep(0.5)
    state = campaign.prepare()
    assert state.executions > 0
    assert json.loads(campaign.file.read_text())["guided"]["executions"] == state.executions


def _counted(campaign: LoaderFuzzing) -> int:
    from exirkit.fuzz.loader.ledger import Ledger

    for path in campaign.directory("ledgers").glob("*.ledger"):
        if path.stat().st_size:
            with Ledger(path) as ledger:
                return ledger.executions
    return 0

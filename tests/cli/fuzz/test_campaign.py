"""`exirkit fuzz`, `report`, `show` and `merge`, with a bench that knows in advance what becomes of a seed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import Invoke, Spawn
from tests.fuzz.campaigns.stand_in import BENCH
from tests.fuzz.campaigns.test_baseline import AFTER, BEFORE
from tests.fuzz.campaigns.test_campaign import Here
from tests.fuzz.campaigns.test_store import filled

import exirkit.fuzz


class HereForPool(Here):
    """Stands for processes."""

    def __init__(self, workers: int) -> None:
        self.workers = workers


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy with failures; the work is done in this process."""
    monkeypatch.setattr(exirkit.fuzz, "ProcessPool", HereForPool)
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump({"fail": [3, 8], "unsupported": [5], "raise": [12]}))
    return path


def arguments(policy: Path, *more: str) -> list[str]:
    return ["fuzz", "--bench", BENCH, "--policy", str(policy), *more]


def test_failures_are_found_and_kept(invoke: Invoke, policy: Path, tmp_path: Path) -> None:
    first = invoke(*arguments(policy, "--seeds", "10"))
    assert first.exit_code == 1, first.stderr
    assert "seeds 0:10: 10 programs, 10 of them now" in first.stdout
    assert "failed 2, passed 7, unsupported 1" in first.stdout
    assert "O3/values" in first.stdout
    assert "exirkit fuzz show fuzz.db 3" in first.stdout
    assert "new bucket O3/values, seed 3" in first.stderr
    again = json.loads(invoke(*arguments(policy, "--seeds", "20", "--json")).stdout)
    assert (again["done"], again["new"], again["ok"]) == (20, 10, False)
    assert again["buckets"][0] == {
        "bucket": "O3/values",
        "failures": 2,
        "first_seed": 3,
        "verdict": None,
        "because": None,
    }
    assert (tmp_path / "fuzz.db").is_file()


def test_nothing_wrong_is_exit_code_0(invoke: Invoke, policy: Path) -> None:
    result = invoke(*arguments(policy, "--seeds", "20:23", "--json", "-O", "0", "-O", "2"))
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["first_seed"], report["seeds"], report["verdicts"]) == (20, 3, {"passed": 3})


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--seeds", "x"], 2, "EK860"),
        (["--target", "?"], 2, "EK711"),
        (["--against", "passes:Mine", "--bench", "no.such:Bench"], 2, "--against and --bench exclude each other"),
        (["--model", "models:make"], 2, "--model needs --against"),
        (["--dask", "tcp://x", "--workers", "2"], 2, "EK711"),
        (["--bench", "no.such:Bench"], 1, "EK863"),
        (["--db", "nowhere/fuzz.db"], 1, "EK861"),
        (["--policy", "missing.yaml"], 1, "EK712"),
    ],
)
def test_wrong_usage(invoke: Invoke, policy: Path, options: list[str], code: int, told: str) -> None:
    result = invoke(*arguments(policy, "--seeds", "1", *options))
    assert result.exit_code == code
    assert told in result.stderr


class Page(HTMLParser):
    """What a browser would have to fetch, and whether tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_report_as_text_page_and_json(invoke: Invoke, policy: Path, tmp_path: Path) -> None:
    invoke(*arguments(policy, "--seeds", "20"))
    result = invoke("fuzz", "report", "fuzz.db", "--html", "page.html")
    assert result.exit_code == 0
    for fact in (
        "EK432 1",
        "culprit: MergeEqualNodes",
        "mod0",
        "seeds 3, 8",
        "bit for bit",
        "official-runtime: no runtime",
        "90.0%  NOT MET",
        "aten.add.Tensor in 20",
        "never",
    ):
        assert fact in result.stdout
    text = (tmp_path / "page.html").read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.fetched == []
    assert page.tags.count("svg") == 6
    assert "http" not in text
    assert "script" not in page.tags
    assert "ValueError: the oracle is wrong" in text
    report = json.loads(invoke("fuzz", "report", "fuzz.db", "--json").stdout)
    assert report["summary"]["programs"] == 20
    assert invoke("fuzz", "report", "policy.yaml").exit_code == 1
    assert invoke("fuzz", "report", "fuzz.db", "--html", "page.txt").exit_code == 2


def test_a_program_and_its_script(invoke: Invoke, policy: Path) -> None:
    invoke(*arguments(policy, "--seeds", "20"))
    shown = invoke("fuzz", "show", "fuzz.db", "3").stdout
    for part in (
        "program(1)  # 3",
        "dialect-agreement O3/values",
        "1 is not 2",
        "culprit: MergeEqualNodes",
        "assert 1 == 2",
    ):
        assert part in shown
    assert invoke("fuzz", "show", "fuzz.db", "O3/values", "--repro").stdout == "assert 1 == 2\n"
    assert json.loads(invoke("fuzz", "show", "fuzz.db", "4", "--json").stdout)["ok"]
    assert "EK724" in invoke("fuzz", "show", "fuzz.db", "12", "--repro").stderr
    assert "EK867" in invoke("fuzz", "show", "fuzz.db", "77").stderr


def test_files_merge(invoke: Invoke, policy: Path) -> None:
    invoke(*arguments(policy, "--seeds", "0:5", "--db", "one.db"))
    invoke(*arguments(policy, "--seeds", "3:9", "--db", "two.db"))
    assert "6 results from 2 files" not in invoke("fuzz", "merge", "all.db", "one.db", "two.db").stderr
    result: dict[str, Any] = json.loads(invoke("fuzz", "report", "all.db", "--json").stdout)
    assert result["summary"]["programs"] == 9
    assert json.loads(invoke("fuzz", "merge", "all.db", "two.db", "--json").stdout)["added"] == 0


def results_in(path: Path) -> int:
    """How many results there are in a file that another process is writing, or is about to make."""
    if not path.is_file():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM result").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(spawn: Spawn, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump({"sleep": 0.05}))
    words = arguments(policy, "--seeds", "100", "--workers", "2", "--batch", "2")
    # What runs the tests in the background of a shell has interrupts ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "exirkit", *words],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and results_in(tmp_path / "fuzz.db") < 4:
        time.sleep(0.1)
    # As a terminal does it: to the whole group of processes.
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    kept = re.search(r"interrupted: (\d+) results are in fuzz.db; the same command continues from there", told)
    assert kept is not None, told
    assert "Traceback" not in told
    report = json.loads(spawn(*words, "--json").stdout)
    assert report["done"] == 100
    assert report["new"] == 100 - int(kept[1])


def test_report_with_a_baseline(invoke: Invoke, tmp_path: Path) -> None:
    filled(tmp_path / "old.db", *BEFORE)
    filled(tmp_path / "new.db", *AFTER)
    worse = invoke("fuzz", "report", "new.db", "--baseline", "old.db")
    assert worse.exit_code == 1
    assert "Passed in the baseline and not here: 2 of 5 programs" in worse.stdout
    assert "unsupported EK428" in worse.stdout
    report = json.loads(invoke("fuzz", "report", "new.db", "--baseline", "old.db", "--json").stdout)
    assert [one["seed"] for one in report["baseline"]["found"]] == [2, 8]
    assert not report["ok"]
    assert invoke("fuzz", "report", "old.db", "--baseline", "old.db").exit_code == 0
    filled(tmp_path / "others.db", AFTER[-2])
    none = invoke("fuzz", "report", "old.db", "--baseline", "others.db")
    assert none.exit_code != 0
    assert "EK877" in none.stderr

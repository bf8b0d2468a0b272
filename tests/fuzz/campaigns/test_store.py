from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from tests.fuzz.campaigns.stand_in import config

from exirkit.fuzz.campaigns import Found, Result, Store, show, summarise
from exirkit.ir import ModelError

SESSION = (1.0, "here", 7)
FAILED = Result(
    seed=5,
    verdict="failed",
    program="program(5)",
    steps=3,
    features=("a", "b"),
    failures=(Found(oracle="dialect-agreement", symptom="values", message="wrong", bucket="O3/values"),),
    seconds={"dialect-agreement": 0.5},
    compared=3,
    bitwise=2,
)
PASSED = Result(seed=6, verdict="passed", program="program(6)", steps=1, features=("a",), compared=1, bitwise=1)


def filled(path: Path, *results: Result, began: float = 1.0) -> str:
    """Write results of one campaign to a file; returns its id."""
    with Store(path) as store:
        campaign = store.open_campaign(config(), "engine")
        store.begin_session(campaign, began, "here", 7, 1)
        store.add(campaign, results, (began, "here", 7), 2.0)
    return campaign


def test_what_is_added_twice_is_there_once(tmp_path: Path) -> None:
    campaign = filled(tmp_path / "c.db", FAILED)
    with Store(tmp_path / "c.db") as store:
        assert store.add(campaign, [FAILED, PASSED], SESSION, 3.0) == [PASSED]
        assert store.done(campaign, range(100)) == {5, 6}
        assert store.done(campaign, range(6, 100)) == {6}
        assert store.connection.execute("SELECT count(*) FROM failure").fetchone() == (1,)


def test_a_batch_is_added_wholly_or_not_at_all(tmp_path: Path) -> None:
    campaign = filled(tmp_path / "c.db")
    wrong = PASSED.model_copy(update={"verdict": None})
    with Store(tmp_path / "c.db") as store:
        with pytest.raises(sqlite3.IntegrityError):
            store.add(campaign, [FAILED, wrong], SESSION, 1.0)
        assert store.done(campaign, range(100)) == set()
        assert store.add(campaign, [FAILED], SESSION, 1.0) == [FAILED]


def test_shards_merge(tmp_path: Path) -> None:
    filled(tmp_path / "one.db", FAILED)
    filled(tmp_path / "two.db", PASSED, FAILED, began=2.0)
    with Store(tmp_path / "one.db") as store:
        assert store.merge(tmp_path / "two.db") == 1
        assert store.merge(tmp_path / "two.db") == 0
        summary = summarise(store)
    assert summary.verdicts == {"failed": 1, "passed": 1}
    assert summary.features[0].feature == "a"
    assert summary.bitwise == 0.75


def test_shards_that_disagree_change_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "one.db", FAILED)
    filled(tmp_path / "two.db", FAILED.model_copy(update={"program": "another"}), PASSED)
    with Store(tmp_path / "one.db") as store:
        with pytest.raises(ModelError, match="EK865"):
            store.merge(tmp_path / "two.db")
        assert summarise(store).programs == 1
        assert store.merge(tmp_path / "one.db") == 0


@pytest.mark.parametrize("kind", ["text", "database", "directory", "missing"])
def test_other_files_are_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "c.db"
    if kind == "text":
        path.write_text("x" * 200)
    elif kind == "directory":
        path.mkdir()
    elif kind == "missing":
        path = tmp_path / "nowhere" / "c.db"
    else:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE mine (x)")
        connection.close()
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(ModelError, match="EK861"):
        Store(path)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_showing_by_seed_and_by_bucket(tmp_path: Path) -> None:
    filled(tmp_path / "c.db", PASSED, FAILED)
    with Store(tmp_path / "c.db") as store:
        assert show(store, "O3/values").seed == 5
        shown = show(store, "5")
        assert shown.failures == FAILED.failures
        assert shown.program == "program(5)"
        for wrong in ("7", "dialect-agreement", "99999999999999999999999"):
            with pytest.raises(ModelError, match="EK867"):
                show(store, wrong)


def test_the_file_survives_a_writer_that_is_killed_in_a_transaction(tmp_path: Path) -> None:
    campaign = filled(tmp_path / "c.db", FAILED)
    writer = Store(tmp_path / "c.db")
    writer.connection.execute("BEGIN IMMEDIATE")
    writer.connection.execute("DELETE FROM failure")
    copies = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    writer.connection.execute("ROLLBACK")
    writer.connection.close()
    (tmp_path / "after").mkdir()
    for name, content in copies.items():
        (tmp_path / "after" / name).write_bytes(content)
    with Store(tmp_path / "after" / "c.db") as store:
        assert store.done(campaign, range(10)) == {5}
        assert store.connection.execute("SELECT count(*) FROM failure").fetchone() == (1,)


def test_a_database_of_version_1_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    filled(path, FAILED)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE failure RENAME COLUMN oracle TO rung")
        connection.execute("ALTER TABLE analysis RENAME COLUMN culprit TO guilty")
        connection.execute("ALTER TABLE result DROP COLUMN counts")
        text = '{"rungs": ["O3"]}'
        connection.execute("UPDATE campaign SET config = ?", (text,))
        connection.execute("PRAGMA user_version = 1")
    with Store(path, must_exist=True) as store:
        assert show(store, "5").failures == FAILED.failures
        assert store.config(store.campaigns()[0]).oracles == ("O3",)

"""Verdicts on the buckets of `exirkit fuzz --against`: each is about a class of a table, and what it names is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from exirkit.patterns import BucketVerdict, backend_books, backend_classes, bucket_verdicts, verdict_on

ROOT = Path(__file__).resolve().parents[3]
KINDS = {
    "theirs is wrong": {"theirs", "wider"},
    "ours is wrong": {"ours"},
    "ours leaves a site": {"ours", "narrower", "theirs"},
    "theirs leaves a site": {"wider", "theirs", "equivalent"},
    "operators differ": {"equivalent", "ours", "theirs", "narrower", "wider"},
}


def test_verdicts_are_about_classes_and_scripts_that_there_are() -> None:
    classes = {entry.name for book in backend_books() for entry in backend_classes(book).entries}
    verdicts = bucket_verdicts()
    assert len({one.bucket for one in verdicts}) == len(verdicts)
    for one in verdicts:
        kind, name = one.bucket.split(" | ")[:2]
        assert name in classes, one.bucket
        assert one.verdict in KINDS[kind], one.bucket
        assert all((ROOT / "docs" / "upstream" / "passes" / f"{each}.py").is_file() for each in one.findings)
        # What programs that no exporter makes show of a pass has no script.
        assert not one.findings or one.verdict == "theirs", one.bucket
        assert verdict_on(one.bucket) is one


def test_buckets_without_a_verdict_have_none() -> None:
    assert verdict_on("ours is wrong | MeanToSumDiv | output value") is None
    assert verdict_on("operators differ | MeanToSumDivision") is None


def test_scripts_are_for_what_a_pass_gets_wrong() -> None:
    with pytest.raises(ValidationError, match="what a pass gets wrong"):
        BucketVerdict(bucket="operators differ | A", verdict="wider", because="it does", findings=("a",))

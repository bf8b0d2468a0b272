"""A sample of the architectures that the docs list goes through the chain and runs on both runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.architectures import lowering
from benchmarks.architectures.building import read_library
from benchmarks.architectures.measuring import measure
from benchmarks.architectures.table import page
from tests.official.oracle import OfficialRuntime

LIBRARY = read_library()
SAMPLE = [name for name, one in LIBRARY.items() if one.quick]


@pytest.mark.slow
@pytest.mark.executorch
@pytest.mark.parametrize("name", SAMPLE)
def test_sample(name: str, official_runtime: OfficialRuntime) -> None:
    outcome = measure(name, LIBRARY[name], official_runtime, seconds=120, official=False)
    assert outcome.goes, outcome.failures


def test_page_is_about_the_library() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "architectures.md").read_text()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    named = [row for row in rows if "/" in row]
    assert set(named) <= set(LIBRARY)
    assert len(set(named)) == len(named) >= 80
    for name in SAMPLE:
        assert name in text.split("## What goes")[1].split("## Not exported")[0], name


def test_page_without_results() -> None:
    assert "Nothing." in page({})


def test_architectures_are_decomposed_node_by_node_and_keep_to_twice_the_arena() -> None:
    results = lowering.read_results()
    assert set(results) <= set(LIBRARY)
    whole = {name: one for name, one in results.items() if "arena_O2" in one}
    assert len(whole) >= 80
    assert not [name for name, one in results.items() if one.get("fall_backs")]
    assert not [name for name, one in whole.items() if one["arena_O2"] > 2 * one["arena_O1"]]
    assert lowering.PAGE.read_text() == lowering.page(results)
    assert "Nothing was measured" in lowering.page({})

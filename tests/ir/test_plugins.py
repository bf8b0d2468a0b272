"""Plug-ins of distributions that are put on the path: loaded late, blamed by name, and no trouble to each other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from exirkit.ir import UsageError, find_plugins, load_plugin, load_plugins

GROUP = "exirkit.predicates"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def distribution(site: Path, name: str, entries: str, **modules: str) -> None:
    folder = site / f"{name.replace('-', '_')}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}\n")
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)


def test_nothing_is_loaded_before_it_is_asked_for(site: Path) -> None:
    distribution(site, "fake-good", "answer = fake_good_module:ANSWER", fake_good_module="ANSWER = 42\n")
    assert list(find_plugins(GROUP)) == ["answer"]
    assert "fake_good_module" not in sys.modules
    assert load_plugin(GROUP, "answer") == 42
    del sys.modules["fake_good_module"]


@pytest.mark.parametrize("text", ["raise RuntimeError('no')", "import not_there", "", "raise SystemExit(3)", "def f(:"])
def test_a_broken_one_names_its_distribution_and_stops_no_other(site: Path, text: str) -> None:
    distribution(site, "fake-broken", "broken = fake_broken_module:THING", fake_broken_module=text + "\n")
    distribution(site, "fake-fine", "fine = json:dumps")
    with pytest.raises(UsageError) as caught:
        load_plugin(GROUP, "broken")
    (found,) = caught.value.diagnostics
    assert (found.code, found.severity) == ("EK118", "error")
    assert "'broken' of fake-broken" in found.message
    loaded, warnings = load_plugins(GROUP)
    assert list(loaded) == ["fine"]
    assert [(one.code, one.severity) for one in warnings] == [("EK118", "warning")]
    sys.modules.pop("fake_broken_module", None)


def test_two_of_one_name(site: Path) -> None:
    distribution(site, "fake-first", "one = json:dumps")
    distribution(site, "fake-second", "one = json:loads")
    with pytest.raises(UsageError) as caught:
        load_plugin(GROUP, "one")
    (found,) = caught.value.diagnostics
    assert found.code == "EK119"
    assert sorted(found.notes) == ["fake-first: json:dumps", "fake-second: json:loads"]
    assert load_plugins(GROUP)[0] == {}


def test_none_of_that_name() -> None:
    with pytest.raises(UsageError, match="EK118"):
        load_plugin(GROUP, "nothing-at-all")

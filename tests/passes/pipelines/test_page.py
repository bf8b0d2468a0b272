"""The page about pipelines: its example is a valid file, and its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

from exirkit import passes
from exirkit.passes.contract import shipped_passes
from exirkit.passes.pipelines.model import CHECKS, INVARIANTS, SETTINGS, Stage

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how_to" / "pipelines.md").read_text()


def names_in(heading: str) -> list[str]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)


def test_tables_are_complete() -> None:
    assert names_in("Settings") == [name for name in SETTINGS if name != "out-variant-overrides"] + [
        "out-variant-overrides"
    ]
    assert names_in("Invariants") == list(INVARIANTS)
    for name, check in CHECKS.items():
        for one in check.confirms:
            assert re.search(rf"^\| `{one}` \|.*checked by .*`{name}`", PAGE, re.MULTILINE), (one, name)
    keys = set(re.findall(r"`(\w+)`", PAGE.split("A stage has")[1].split("## Settings")[0]))
    assert {field.alias or name for name, field in Stage.model_fields.items()} <= keys


def test_facts_about_passes_name_what_exists() -> None:
    known = shipped_passes()
    for one in known.values():
        assert {*one.requires, *one.ensures, *one.invalidates} <= set(INVARIANTS), one.name
        assert {*one.after, *one.before} <= set(known), one.name


def test_every_pass_is_registered() -> None:
    offered = list(vars(passes).values())
    classes = [
        one for one in offered if isinstance(one, type) and issubclass(one, passes.Pass) and one is not passes.Pass
    ]
    # Both take rules or operators; rules are stages of their own.
    assert {one.name for one in classes} - set(shipped_passes()) == {"apply-rules", "unfuse-operators"}

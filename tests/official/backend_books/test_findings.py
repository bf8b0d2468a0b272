"""The defects of official classes are there, and the rules that do the work of these classes do not have them."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tests.official.backend_books.findings import FOLDER, PassFinding, pass_findings
from tests.patterns.rule_files import book, rule
from tests.thoroughness import TRIES_ALL

from exirkit import to_edge
from exirkit.passes import ApplyRules
from exirkit.passes.contract import Pass, RegisteredPass, shipped_passes
from exirkit.patterns import CompiledRule, backend_books, backend_classes, shipped_books, with_meanings
from exirkit.patterns.books.backend_classes import BackendClass

FOUND = pass_findings()
# Every seventh program in `make test`.
PROGRAMS = [
    pytest.param(one, id=one.name, marks=() if number % 7 == 0 else pytest.mark.slow)
    for number, one in enumerate(one for one in FOUND if one.book is not None)
]
REPROS = Path(__file__).parents[2] / "fuzz" / "official" / "run_repros.py"


def entry_of(finding: PassFinding) -> BackendClass:
    """Return what the list of a book says about the class."""
    assert finding.book is not None
    (entry,) = [one for one in backend_classes(finding.book).entries if one.name == finding.class_name]
    return entry


def rules_of(entry: BackendClass) -> list[CompiledRule]:
    """Return the rules that do the work of the class."""
    books = {each.id: name for name in (*shipped_books(), *backend_books()) for each in book(name).rules}
    return [rule(books[one], one) for one in entry.rules]


def passes_of(entry: BackendClass) -> list[Pass]:
    """Return the passes that do the work of the class."""
    known = [shipped_passes()[one] for one in entry.passes]
    return [one.build(one.options()) if isinstance(one, RegisteredPass) else one() for one in known]


def test_list_is_that_of_the_folder() -> None:
    assert sorted(one.script for one in FOUND) == sorted(FOLDER.glob("*.py"))
    assert all(len(one.script.read_text(encoding="utf-8").splitlines()) <= 20 for one in FOUND)
    assert all(one.title.endswith(".") for one in FOUND)
    assert len({(one.title, one.class_name) for one in FOUND}) == len(FOUND) >= 80


@pytest.mark.parametrize("finding", PROGRAMS)
def test_our_rules_keep_results(finding: PassFinding) -> None:
    model, inputs = finding.program()
    # The program has the state of the model, not a copy of it.
    original = copy.deepcopy(model)
    entry = entry_of(finding)
    rules, passes = rules_of(entry), passes_of(entry)
    assert rules or passes or entry.extent == "nothing"
    edge = to_edge(torch.export.export(model, inputs)).transform([*([ApplyRules(rules)] if rules else []), *passes])
    attributes = {each.key: each for one in rules for each in one.attributes.values()}
    meant = with_meanings(edge.exported_program(), attributes.values()).module()
    for _ in range(2):
        torch.testing.assert_close(meant(*inputs), original(*inputs), equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.executorch
@pytest.mark.skipif(find_spec("executorch") is None, reason="the official package is not installed")
def test_defects_are_still_there() -> None:
    # The wheel is the same one in every run: every tenth defect by default, the others with EXIRKIT_TESTS=all.
    tried = FOUND if TRIES_ALL else FOUND[::10]
    scripts = "\n".join(str(one.script) for one in tried)
    done = subprocess.run(
        [sys.executable, str(REPROS)], input=scripts, capture_output=True, text=True, check=True, timeout=600
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for finding, answer in zip(tried, answers, strict=True):
        assert answer["code"] == 1, f"{finding.name} was fixed; take it out of the list"
        assert re.search(finding.shows, answer["output"]), answer["output"][-2000:]

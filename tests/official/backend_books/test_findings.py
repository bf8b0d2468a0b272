"""The defects of official classes are there, and the rules that do the work of these classes do not have them."""

from __future__ import annotations

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
from exirkit.patterns import CompiledRule, backend_books, backend_classes, shipped_books, with_meanings

FOUND = pass_findings()
# Every seventh program in `make test`.
PROGRAMS = [
    pytest.param(one, id=one.name, marks=() if number % 7 == 0 else pytest.mark.slow)
    for number, one in enumerate(one for one in FOUND if one.book is not None)
]
REPROS = Path(__file__).parents[2] / "fuzz" / "official" / "run_repros.py"


def rules_of(finding: PassFinding) -> list[CompiledRule]:
    """Return the rules that do the work of the class."""
    assert finding.book is not None
    (entry,) = [one for one in backend_classes(finding.book).entries if one.name == finding.class_name]
    books = {each.id: name for name in (*shipped_books(), *backend_books()) for each in book(name).rules}
    return [rule(books[one], one) for one in entry.rules]


def test_list_is_that_of_the_folder() -> None:
    assert sorted(one.script for one in FOUND) == sorted(FOLDER.glob("*.py"))
    assert all(len(one.script.read_text(encoding="utf-8").splitlines()) <= 20 for one in FOUND)
    assert all(one.title.endswith(".") for one in FOUND)
    assert len({(one.title, one.class_name) for one in FOUND}) == len(FOUND) >= 80


@pytest.mark.parametrize("finding", PROGRAMS)
def test_our_rules_keep_results(finding: PassFinding) -> None:
    model, inputs = finding.program()
    rules = rules_of(finding)
    edge = to_edge(torch.export.export(model, inputs)).transform([ApplyRules(rules)])
    attributes = {each.key: each for one in rules for each in one.attributes.values()}
    meant = with_meanings(edge.exported_program(), attributes.values())
    seen, expected = meant.module()(*inputs), model(*inputs)
    torch.testing.assert_close(seen, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


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

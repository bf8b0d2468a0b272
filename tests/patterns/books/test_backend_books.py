"""Books of backends: loaded only when named, checked like all books, and accounted for class by class."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from tests.official.backend_books.table import PAGE, page, rule_lines
from tests.patterns.books.backend_rules import stage_name
from tests.patterns.rule_files import book, rule, rule_ids

from exirkit import Pipeline, to_edge
from exirkit.passes import shipped_pipelines, shipped_text
from exirkit.passes.contract import shipped_passes
from exirkit.patterns import (
    backend_books,
    backend_classes,
    check_rule,
    relations_of_book,
    shipped_books,
    shipped_propagations,
)

BOOKS = backend_books()
# Every fifteenth rule is tried again in `make test`, with fewer samples; all of them with witnesses in `make test-all`.
SAMPLE = rule_ids(*BOOKS)[::15]


def test_only_who_names_them_gets_them() -> None:
    assert not set(BOOKS) & set(shipped_books())
    assert not [name for name in shipped_pipelines() if "backends/" in shipped_text(name)]
    code = "import sys, exirkit.patterns as p, exirkit.patterns.books.loading as l; made = []; old = l._parse\n"
    code += "l._parse = lambda t, f, a: (made.append(f), old(t, f, a))[1]\n"
    code += "p.load_book('copies'); sys.exit(any('backends' in f for f in made) or not made)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.mark.parametrize(("name", "rule_id"), SAMPLE, ids=[one for _, one in SAMPLE])
def test_sample_is_accepted(name: str, rule_id: str) -> None:
    verdict = check_rule(rule(name, rule_id), trials=30, is_strict=True)
    assert verdict.is_accepted, "\n".join(one.render() for one in verdict.found)


@pytest.mark.parametrize("name", BOOKS)
@pytest.mark.slow
def test_rules_of_a_book_go_together(name: str) -> None:
    assert not relations_of_book(book(name)).found


@pytest.mark.parametrize("name", BOOKS)
def test_entries_name_what_there_is(name: str) -> None:
    entries = backend_classes(name).entries
    known, passes = rule_lines(), set(shipped_passes())
    assert not [(one.name, rule) for one in entries for rule in one.rules if rule not in known]
    assert {each for one in entries for each in one.propagations} <= set(shipped_propagations())
    assert not [(one.name, each) for one in entries for each in one.passes if each not in passes]
    named = {rule for one in entries for rule in one.rules}
    left = [one.id for one in book(name).rules if not {one.id, one.rule.origin} & named]
    assert not left, "rules that do the work of no class"


@pytest.mark.parametrize("name", BOOKS)
def test_stages_of_the_chain_are_classes(name: str) -> None:
    # A chain may run classes of other packages.
    books = (*(one for one in BOOKS if one != name), name)
    entries = {stage_name(one.name): one for book in books for one in backend_classes(book).entries}
    chain = Pipeline.from_file(name)
    found: dict[str, tuple[list[str], list[str]]] = {}
    for one in chain.stages:
        for stage in one.walk():
            if stage.rules is not None or stage.registered is not None:
                # Stages of a group do the work of one class together.
                rules, passes = found.setdefault(one.stage.label, ([], []))
                rules += dict.fromkeys(each.rule.origin for each in stage.rules or ())
                passes += [] if stage.registered is None else [stage.registered.name]
    for label, (rules, passes) in found.items():
        assert sorted(rules) == sorted(entries[label].rules), label
        propagates = ["propagate"] if entries[label].propagations else []
        assert sorted(passes) in (sorted(entries[label].passes), sorted([*entries[label].passes, *propagates])), label


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.official.backend_books.table"


class Mixed(torch.nn.Module):
    """Something for many stages: layers, permutations that move nothing, views, pooling, numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3)
        self.norm = torch.nn.BatchNorm2d(3)
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.max_pool2d(self.norm(self.conv(x)), 2).mean((2, 3), keepdim=True)
        y = y.permute(0, 2, 3, 1).unsqueeze(0).transpose(1, 2).squeeze(0)
        return (self.linear(y.reshape(-1, 3)) * 2.0 + 1).max(1).values


@pytest.mark.parametrize("name", BOOKS)
def test_chain_keeps_results(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = Mixed().eval(), (torch.randn(2, 2, 8, 8),)
    edge = to_edge(torch.export.export(model, inputs))
    chain = Pipeline.from_file(name)
    done = edge.transform([chain])
    assert done.exported_program().graph_module.code != edge.exported_program().graph_module.code
    close: Callable[..., None] = torch.testing.assert_close
    close(done.exported_program().module()(*inputs), model(*inputs), rtol=1e-4, atol=1e-4)

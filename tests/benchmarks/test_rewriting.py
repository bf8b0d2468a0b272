"""The rewriting benchmark in small: every engine does what it is timed for."""

from __future__ import annotations

import importlib.util
from itertools import islice

import pytest
import torch
from benchmarks.rewriting.engines import ENGINES, fresh_copy
from benchmarks.rewriting.graphs import plant
from benchmarks.rewriting.measuring import Cell, measure, report
from benchmarks.rewriting.rules import book_text, family
from benchmarks.rewriting.scale import many, rewritten

from exirkit.patterns import RuleEngine, parse_book

RULES = family()[:12]
SEED = 7
MISSING = "" if importlib.util.find_spec("executorch") else "the executorch wheel is not installed"
NAMES = [
    pytest.param(name, marks=[pytest.mark.executorch, pytest.mark.skipif(bool(MISSING), reason=MISSING)])
    if name == "ExportPass"
    else name
    for name in ENGINES
]


def test_family_has_120_rules_of_different_structure() -> None:
    assert len({rule.term for rule in family()}) == len({rule.name for rule in family()}) == 120


def test_more_rules_are_other_rules_of_the_same_language() -> None:
    rules = tuple(islice(many(), 1_000))
    assert rules[:120] == family()
    assert len({rule.term for rule in rules}) == len({rule.name for rule in rules}) == 1_000
    some = (*family()[:3], *rules[120::200])
    engine = RuleEngine(parse_book(book_text(some)).require_valid().rules)
    assert rewritten(engine, 200, 0.5)[0] > 0
    assert rewritten(engine, 200, 0.0)[0] == 0


def test_same_seed_same_program() -> None:
    one, other = (plant(400, RULES, 0.5, SEED) for _ in range(2))
    assert str(one.program.graph) == str(other.program.graph)
    assert one.sites == other.sites
    assert one.sites
    assert one.traps


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_what_an_engine_says_is_what_it_did(name: str) -> None:
    engine = ENGINES[name](RULES)
    planted = plant(150, RULES, 0.5, SEED)
    program = fresh_copy(planted.program, is_eager=engine.is_eager)
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(SEED))
    expected = planted.program.graph_module(x)[0]
    engine.prepare(program)
    found = engine.run(program)
    program.graph_module.recompile()
    fused = [node for node in program.graph.nodes if str(node.target).startswith("bench.")]
    assert len(fused) == len(found) == len(set(found))
    plain = {(site.rule, site.root) for site in planted.sites if site.spelling == "as written"}
    missed = plain - set(found)
    # Two wildcards of FX never stand for one node.
    assert not missed or name.startswith("fx")
    torch.testing.assert_close(program.graph_module(x)[0], expected)


def test_our_engine_finds_every_site_and_no_other() -> None:
    planted = plant(400, RULES, 0.5, SEED)
    found = ENGINES["exirkit"](RULES).run(planted.program)
    assert {site.spelling for site in planted.sites} > {"as written", "swapped"}
    assert sorted(found) == sorted((site.rule, site.root) for site in planted.sites)


@pytest.mark.filterwarnings("ignore")
def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    cells: list[Cell] = []
    names = ["exirkit", "fx-lazy", "inductor"]
    engines = {name: ENGINES[name](RULES) for name in names}
    for size in (60, 120):
        for title, share in (("no sites", 0.0), ("with sites", 0.5)):
            planted = plant(size, RULES, share, SEED)
            cells += measure(planted, engines, Cell("", len(RULES), title, size, size), 1)
    report(cells, {name: {len(RULES): 0.1} for name in names}, names)
    shown = capsys.readouterr().out
    for words in ("us per node", "ms per rule", "fastest other / ours", "from the other end"):
        assert words in shown

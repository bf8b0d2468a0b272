"""The short ways to a match find what the long ones find: candidates, arguments, literals asked first."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.patterns.exported_programs import exported

from exirkit.ir import GraphEditor
from exirkit.patterns import FailureTrace, RuleEngine, load_book, shipped_books
from exirkit.patterns.engine.application import RuleApplication
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.operators.arguments import argument_of, canonical_arguments


@pytest.fixture(scope="module")
def engine() -> RuleEngine:
    """An engine for all shipped rules and those of the examples."""
    books: list[str | Path] = [Path(__file__).parent / "example_rules.yaml", *shipped_books()]
    return RuleEngine([rule for book in books for rule in load_book(book).rules])


def attention() -> GraphEditor:
    q, k, v, m = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6), torch.randn(2, 3, 5)
    return exported(lambda _, q, k, v, m: (torch.softmax(q @ k.permute(0, -1, 1) * 0.5 + m, dim=2) @ v,), q, k, v, m)


def pointwise() -> GraphEditor:
    x = torch.randn(2, 3, 4)
    return exported(
        lambda _, x: (
            (1 * x).relu().permute(0, 1, 2).add(x.sigmoid() * x, alpha=2),
            x.clamp(0.0, 6.0).clamp(1, 2).permute(-1, 0, 1).permute(1, 2, 0) + 0,
            torch.cat(x.split([1, 2], dim=-2), dim=1).view(-1, 4).reshape(2, 3, 4),
        ),
        x,
    )


def convolution() -> GraphEditor:
    x, norm, conv = torch.randn(2, 3, 8, 8), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(3, 4, 3, padding=1)
    return exported(lambda m, x: (m.norm(m.conv(x)).relu(), m.conv(x).mean((-1, -2))), x, norm=norm, conv=conv)


PROGRAMS = {"attention": attention, "pointwise": pointwise, "convolution": convolution}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_rule_that_matches_is_a_candidate(name: str, engine: RuleEngine) -> None:
    editor = PROGRAMS[name]()
    application = RuleApplication(editor, ProgramFacts(editor))
    matches = 0
    for node in editor.graph.nodes:
        if node.op != "call_function":
            continue
        root = engine.tree.root_of(node.target)
        candidates = set() if root is None else set(engine.tree.candidates(node, root))
        for rank, rule in enumerate(engine.rules):
            found = application.match(rule, node) is not None
            assert rank in candidates or not found, f"{rule.id} at %{node.name}"
            matches += found
    assert matches


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_trace_changes_no_result(name: str, engine: RuleEngine) -> None:
    editor = PROGRAMS[name]()
    application = RuleApplication(editor, ProgramFacts(editor))
    heard = 0
    for node in editor.graph.nodes:
        for rule in engine.rules if node.op == "call_function" else ():
            silent = application.match(rule, node)
            trace = FailureTrace()
            told = application.match(rule, node, trace)
            assert (told is None) <= bool(trace.failures), f"{rule.id} at %{node.name}"
            heard += len(trace.failures)
            assert (silent is None) == (told is None), f"{rule.id} at %{node.name}"
            assert silent is None or told is None or silent.names == told.names
    assert heard


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_argument_is_that_of_the_whole_view(name: str) -> None:
    for node in PROGRAMS[name]().graph.nodes:
        if node.op == "call_function":
            view = canonical_arguments(node)
            assert all(argument_of(node, key) is value for key, value in view.items())
            assert argument_of(node, "no_such_argument") is None


def test_defaults_in_a_view_are_not_shared() -> None:
    x = torch.randn(1, 2, 4, 4)
    editor = exported(lambda _, x: (torch.max_pool2d(x, 2), torch.max_pool2d(x.relu(), 2)), x)
    pools = [node for node in editor.graph.nodes if "max_pool2d" in str(node.target)]
    first, second = (canonical_arguments(node) for node in pools)
    assert first["padding"] == second["padding"] == [0, 0]
    first["padding"].append(7)
    assert second["padding"] == [0, 0]

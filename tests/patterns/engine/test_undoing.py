"""Applications are undone exactly, and the first one that breaks something is found."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from tests.patterns import rule_files
from tests.patterns.engine.test_control_flow import FACTORS, NEGATIONS, ONES, X, branches, program_of, rules, state_of
from tests.patterns.exported_programs import exported

from exirkit.ir import GraphEditor, UsageError, copy_program
from exirkit.patterns import RewriteOptions, RuleEngine, bisect_rewrites

ALL = [*NEGATIONS, *FACTORS, *ONES]


def function(m: Any, x: torch.Tensor) -> Any:
    return branches(m, (x.neg().neg() * m.n.a * m.n.c * m.n.b).exp()).neg().neg() * m.n.c


def state(editor: GraphEditor) -> list[str]:
    program = editor.program
    tables = [str([*program.state_dict, *program.constants]), str(program.range_constraints)]
    users = str([[user.name for user in node.users] for node in program.graph.nodes])
    return [*state_of(program), *tables, users]


def test_every_application_is_undone_exactly() -> None:
    program = program_of(function)
    plain = GraphEditor(copy_program(program))
    expected = [state(plain)]
    total = len(RuleEngine(ALL).run(plain).journal)
    assert total >= 6
    for limit in range(1, total + 1):
        editor = GraphEditor(copy_program(program))
        RuleEngine(ALL).run(editor, RewriteOptions(limit=limit))
        expected.append(state(editor))
    editor = GraphEditor(copy_program(program))
    with RuleEngine(ALL).reversible(editor) as history:
        assert [one.number for one in history.journal] == list(range(1, total + 1))
        for count in reversed(range(total)):
            assert history.undo().number == count + 1
            assert state(editor) == expected[count], f"after {count} applications"
            assert sum(one.applied for one in history.report.statistics.values()) == count
    assert state(editor) == expected[0]
    torch.testing.assert_close(editor.program.module()(X), program.module()(X))


def test_what_stands_at_the_end_stays() -> None:
    program = program_of(function)
    editor, limited = (GraphEditor(copy_program(program)) for _ in range(2))
    with RuleEngine(ALL).reversible(editor) as history:
        history.undo_to(3)
        with pytest.raises(UsageError, match="EK253"):
            history.undo_to(4)
    RuleEngine(ALL).run(limited, RewriteOptions(limit=3))
    assert state(editor) == state(limited)
    torch.testing.assert_close(editor.program.module()(X), program.module()(X))
    with pytest.raises(UsageError, match="EK121"):
        history.undo()


def test_nothing_to_undo() -> None:
    editor = GraphEditor(copy_program(program_of(function)))
    with RuleEngine([]).reversible(editor) as history, pytest.raises(UsageError, match="EK253"):
        history.undo()
    with pytest.raises(UsageError, match="EK121"):
        editor.checkpoint()


def test_an_error_in_the_block_undoes_everything() -> None:
    editor = GraphEditor(copy_program(program_of(function)))
    before = state(editor)
    with pytest.raises(ZeroDivisionError), RuleEngine(ALL).reversible(editor) as history:  # noqa: PT012
        history.undo()
        1 / 0  # noqa: B018 - a mistake in user code
    assert state(editor) == before


def test_no_applications_at_all() -> None:
    editor = GraphEditor(copy_program(program_of(function)))
    before = state(editor)
    assert not RuleEngine(ALL).run(editor, RewriteOptions(limit=0)).journal
    assert state(editor) == before


WRONG = rules("""
- id: wrong
  vars: {x: "f32 [*S]"}
  match: return aten.cos.default(x)
  replace: return aten.sin.default(x)
""")


@pytest.mark.parametrize("place", [0, 3, 7])
def test_the_first_bad_application_is_found(place: int) -> None:
    def chain(_: Any, x: torch.Tensor) -> Any:
        for index in range(8):
            x = x.cos() if index == place else x.neg().neg().tanh()
        return (x,)

    program = exported(chain, X).program
    expected = program.module()(X)[0]
    looked: list[int] = []

    def is_good(candidate: Any) -> bool:
        looked.append(len(candidate.graph.nodes))
        return torch.allclose(candidate.module()(X)[0], expected)

    found = bisect_rewrites(program, [*NEGATIONS, *WRONG], is_good)
    assert found.culprit is not None
    assert (found.culprit.rule, found.culprit.root) == ("wrong", "cos")
    assert found.bad is not None
    assert is_good(found.good)
    assert not is_good(found.bad)
    assert found.trials == len(looked) - 2 <= 2 + 3


def test_good_to_the_end_and_bad_from_the_start() -> None:
    program = exported(lambda _, x: (x.neg().neg().cos(),), X).program
    found = bisect_rewrites(program, NEGATIONS, lambda one: True)
    assert (found.culprit, found.bad, found.trials) == (None, None, 2)
    assert len(found.good.graph.nodes) == len(program.graph.nodes) - 2
    with pytest.raises(UsageError, match="EK252"):
        bisect_rewrites(program, NEGATIONS, lambda one: False)


def test_the_journal_is_the_same_in_every_run() -> None:
    documents = []
    for _ in range(2):
        editor = GraphEditor(copy_program(program_of(function)))
        report = RuleEngine([*ALL, *rule_files.book("canonicalize").rules]).run(editor)
        documents.append(json.dumps(report.document()))
    assert documents[0] == documents[1]
    first = json.loads(documents[0])["applications"][0]
    assert set(first) == {"number", "rule", "graph", "root", "before", "after", "bindings"}

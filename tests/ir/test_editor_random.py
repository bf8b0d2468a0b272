"""Random edits of exported programs: undone they leave no trace, kept they leave a program that is what it says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ir.program_snapshot import agrees, exact, meaning, recomputed, recorded
from tests.ir.random_edits import PlannedError, RandomEdits, fail
from tests.ir.sample_programs import sample
from tests.thoroughness import TRIES_ALL

from exirkit.ir import DiagnosticError, GraphEditor

PROGRAMS = ("branchy", "sizes", "choice", "writes")

Chooser = Callable[[int], int]

quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
thorough = settings(max_examples=1000 if TRIES_ALL else 250, deadline=None, suppress_health_check=list(HealthCheck))


def check_undo(name: str, choose: Chooser) -> None:
    """Make edits in a transaction that fails, in a program that has been edited before."""
    editor = GraphEditor(sample(name))
    edits = RandomEdits(editor, choose)
    with suppress(DiagnosticError), editor.transaction("history"):
        edits.run(3)
    before = exact(editor.program)
    with suppress(PlannedError), editor.transaction("undone") as transaction:
        edits.run(8)
        fail()
    assert not transaction.modified
    after = exact(editor.program)
    for part, value in before.items():
        assert after[part] == value, part
    agrees(editor.program)


def check_commit(name: str, choose: Chooser) -> None:
    editor = GraphEditor(sample(name))
    edits = RandomEdits(editor, choose)
    before, before_exactly = meaning(editor.program), exact(editor.program)
    try:
        with editor.transaction("kept") as transaction:
            edits.run(8)
    except DiagnosticError:
        assert exact(editor.program) == before_exactly
        return
    after = meaning(editor.program)
    assert transaction.modified == (after != before), _differences(before, after)
    agrees(editor.program)
    assert recorded(editor.program) == recomputed(editor.program)
    assert not editor._journal
    assert not editor._stale


def _differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {part: (before[part], after[part]) for part in before if before[part] != after[part]}


@quick
@given(name=st.sampled_from(PROGRAMS), data=st.data())
def test_an_undone_transaction_leaves_no_trace(name: str, data: st.DataObject) -> None:
    check_undo(name, lambda below: data.draw(st.integers(0, below - 1)))


@quick
@given(name=st.sampled_from(PROGRAMS), data=st.data())
def test_a_kept_transaction_leaves_a_truthful_program(name: str, data: st.DataObject) -> None:
    check_commit(name, lambda below: data.draw(st.integers(0, below - 1)))


@pytest.mark.slow
@thorough
@given(name=st.sampled_from(PROGRAMS), data=st.data())
def test_an_undone_transaction_leaves_no_trace_thorough(name: str, data: st.DataObject) -> None:
    check_undo(name, lambda below: data.draw(st.integers(0, below - 1)))


@pytest.mark.slow
@thorough
@given(name=st.sampled_from(PROGRAMS), data=st.data())
def test_a_kept_transaction_leaves_a_truthful_program_thorough(name: str, data: st.DataObject) -> None:
    check_commit(name, lambda below: data.draw(st.integers(0, below - 1)))

"""A watch over a graph: it finds every edit that the editor did not make, and none that it made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ir.random_edits import RandomEdits
from tests.ir.sample_programs import ATEN, sample
from tests.thoroughness import TRIES_ALL
from torch.fx import Node

from exirkit.ir import DiagnosticError, GraphEditor

PROGRAMS = ("branchy", "sizes", "choice", "writes")
some = settings(max_examples=300 if TRIES_ALL else 40, deadline=None, suppress_health_check=list(HealthCheck))


def edit_args(editor: GraphEditor, node: Node) -> None:
    node.args = (*node.args[:-1], 7)


def edit_kwargs(editor: GraphEditor, node: Node) -> None:
    node.kwargs = {**node.kwargs, "extra": 1}


def edit_target(editor: GraphEditor, node: Node) -> None:
    node.target = ATEN.tanh.default


def edit_name(editor: GraphEditor, node: Node) -> None:
    node._rename("something_else")


def edit_meta(editor: GraphEditor, node: Node) -> None:
    node.meta["someones"] = 3


def remove_meta(editor: GraphEditor, node: Node) -> None:
    node.meta.pop("val")


def add(editor: GraphEditor, node: Node) -> None:
    with editor.graph.inserting_before(editor.graph.output_node()):
        editor.graph.call_function(ATEN.neg.default, (node,))


def erase(editor: GraphEditor, node: Node) -> None:
    with editor.graph.inserting_before(node):
        other = editor.graph.create_node(node.op, node.target, node.args, node.kwargs)
    node.replace_all_uses_with(other)
    editor.graph.erase_node(node)


def move(editor: GraphEditor, node: Node) -> None:
    node.next.append(node)


def set_state(editor: GraphEditor, node: Node) -> None:
    editor.program.state_dict["new"] = torch.ones(1)


def drop_spec(editor: GraphEditor, node: Node) -> None:
    editor.program.graph_signature.output_specs.pop()


RAW: list[Callable[[GraphEditor, Node], None]] = [
    edit_args, edit_kwargs, edit_target, edit_name, edit_meta, remove_meta, add, erase, move, set_state, drop_spec,
]  # fmt: skip


@some
@given(name=st.sampled_from(PROGRAMS), data=st.data())
def test_edits_of_the_editor_are_not_findings(name: str, data: st.DataObject) -> None:
    editor = GraphEditor(sample(name))
    with suppress(DiagnosticError), editor.transaction("history"):
        RandomEdits(editor, lambda below: data.draw(st.integers(0, below - 1))).run(3)
    watch = editor.watch()
    assert watch is not None
    with suppress(DiagnosticError), editor.transaction("watched"):
        RandomEdits(editor, lambda below: data.draw(st.integers(0, below - 1))).run(8)
    assert watch.findings() == []


@some
@given(name=st.sampled_from(PROGRAMS), raw=st.sampled_from(RAW), at=st.integers(0, 4), data=st.data())
def test_one_raw_edit_among_others_is_found(
    name: str, raw: Callable[[GraphEditor, Node], None], at: int, data: st.DataObject
) -> None:
    editor = GraphEditor(sample(name))
    edits = RandomEdits(editor, lambda below: data.draw(st.integers(0, below - 1)))
    watch = editor.watch()
    assert watch is not None
    before = set(editor.graph.nodes)
    with suppress(DiagnosticError), editor.transaction("before"):
        edits.run(at)
    # Of nodes that the editor has made, only the value is watched.
    calls = [node for node in editor.graph.nodes if node.op == "call_function" and "val" in node.meta]
    if raw is edit_meta:
        calls = [node for node in calls if node in before]
    if raw is move:
        # What the editor has made or moved may stand anywhere.
        placed = watch._made | watch._moved
        calls = [node for node in calls if placed.isdisjoint((node, node.next))]
    if len(calls) < 2:
        return
    raw(editor, calls[data.draw(st.integers(0, len(calls) - 2))])
    assert watch.findings(), raw.__name__


@pytest.mark.parametrize("raw", RAW)
def test_every_kind_of_raw_edit_is_found(raw: Callable[[GraphEditor, Node], None]) -> None:
    editor = GraphEditor(sample("branchy"))
    watch = editor.watch()
    assert watch is not None
    raw(editor, next(node for node in editor.graph.nodes if node.op == "call_function"))
    assert watch.findings()


def test_a_raw_edit_does_not_hide_behind_a_later_one_of_the_editor() -> None:
    editor = GraphEditor(sample("branchy"))
    watch = editor.watch()
    assert watch is not None
    relu = next(iter(editor.graph.find_nodes(op="call_function", target=ATEN.relu.default)))
    args = relu.args
    relu.args = (next(iter(editor.graph.nodes)),)
    editor.rewire(relu, args)
    assert [edit.what for edit in watch.findings()] == ["%relu was given other arguments"]


def test_a_watch_inside_of_another_is_the_other() -> None:
    editor = GraphEditor(sample("branchy"))
    assert editor.watch() is not None
    assert editor.watch() is None
    editor.unwatch()
    assert editor.watch() is not None

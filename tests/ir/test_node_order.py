"""No edit places a node in front of what it uses, and an edit that would leaves the program as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.ir.program_snapshot import exact
from tests.ir.sample_programs import ATEN, node, sample

from exirkit.ir import GraphEditor, UsageError


@pytest.fixture
def editor() -> GraphEditor:
    return GraphEditor(sample("branchy"))


def call_early(editor: GraphEditor) -> None:
    editor.call(ATEN.neg.default, (node(editor.program, "permute"),), before=node(editor.program, "relu"))


def call_at_its_argument(editor: GraphEditor) -> None:
    relu = node(editor.program, "relu")
    editor.call(ATEN.neg.default, (relu,), before=relu)


def call_with_an_early_argument_in_a_list(editor: GraphEditor) -> None:
    permute = node(editor.program, "permute")
    editor.call(ATEN.cat.default, ([permute, permute],), before=node(editor.program, "relu"))


def call_in_front_of_an_input(editor: GraphEditor) -> None:
    nodes = list(editor.graph.nodes)
    editor.call(ATEN.neg.default, (nodes[0],), before=nodes[1])


def rewire_early(editor: GraphEditor) -> None:
    editor.rewire(node(editor.program, "relu"), (node(editor.program, "permute"),))


def retarget_early(editor: GraphEditor) -> None:
    editor.retarget(node(editor.program, "relu"), ATEN.neg.default, (node(editor.program, "permute"),))


def use_itself(editor: GraphEditor) -> None:
    relu = node(editor.program, "relu")
    editor.rewire(relu, (relu,))


def replace_by_a_later_one(editor: GraphEditor) -> None:
    # `linear` is used by `relu`, from which `other` is not computed.
    other = editor.call(ATEN.neg.default, (node(editor.program, "max"),), before=editor.graph.output_node(), val=None)
    editor.replace(node(editor.program, "linear"), other)


def replace_in_an_earlier_one(editor: GraphEditor) -> None:
    relu = node(editor.program, "relu")
    editor.replace_in(relu, relu.all_input_nodes[0], node(editor.program, "permute"))


def move_in_front_of_an_argument(editor: GraphEditor) -> None:
    relu = node(editor.program, "relu")
    editor.move(relu, relu.all_input_nodes[0])


def move_behind_a_user(editor: GraphEditor) -> None:
    editor.move(node(editor.program, "relu"), editor.graph.output_node())


def move_in_front_of_an_input(editor: GraphEditor) -> None:
    editor.move(node(editor.program, "relu"), next(iter(editor.graph.nodes)))


EARLY = [
    call_early, call_at_its_argument, call_with_an_early_argument_in_a_list, call_in_front_of_an_input, rewire_early,
    retarget_early, use_itself, replace_in_an_earlier_one, move_in_front_of_an_argument, move_behind_a_user,
    move_in_front_of_an_input,
]  # fmt: skip


@pytest.mark.parametrize("is_open", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("edit", EARLY)
def test_is_rejected_there_and_then(editor: GraphEditor, edit: Callable[[GraphEditor], None], is_open: bool) -> None:
    before = exact(editor.program)
    if is_open:
        with editor.transaction("pass") as transaction:
            with pytest.raises(UsageError) as error:
                edit(editor)
            assert exact(editor.program) == before
        assert not transaction.modified
    else:
        with pytest.raises(UsageError) as error:
            edit(editor)
    assert error.value.code == "EK122"
    assert exact(editor.program) == before


def test_a_later_value_cannot_replace_an_earlier_one(editor: GraphEditor) -> None:
    with pytest.raises(UsageError) as error:
        replace_by_a_later_one(editor)
    assert error.value.code == "EK122"
    assert error.value.diagnostics[0].message.startswith("%relu uses %neg_default, which stands behind %relu")


def test_what_the_new_value_is_computed_from_goes_on_using_the_old_one(editor: GraphEditor) -> None:
    relu = node(editor.program, "relu")
    users = list(relu.users)
    with editor.transaction("pass"):
        first = editor.call(ATEN.neg.default, (relu,), before=relu.next)
        second = editor.call(ATEN.exp.default, (first,), before=first.next)
        editor.replace(relu, second)
    assert list(relu.users) == [first]
    assert set(second.users) == set(users)


@pytest.mark.parametrize("way", ["call", "rewire", "retarget"])
def test_an_argument_outside_of_a_tuple_is_rejected(editor: GraphEditor, way: str) -> None:
    before = exact(editor.program)
    (call, *_) = editor.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    edits: dict[str, Callable[[], object]] = {
        "call": lambda: editor.call(torch.ops.aten.neg.default, call, before=call.next),
        "rewire": lambda: editor.rewire(call, call.args[0]),
        "retarget": lambda: editor.retarget(call, torch.ops.aten.neg.default, call.args[0]),
    }
    with pytest.raises(UsageError, match=r"EK111.*which is not a sequence(?s:.*)write \(%\w+,\)"):
        edits[way]()
    assert exact(editor.program) == before

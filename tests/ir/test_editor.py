"""Transactions and edits of nodes: what is undone, what is rejected, what is modified."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from typing import Any

import pytest
import torch
from tests.ir.program_snapshot import agrees, exact, meaning, recomputed, recorded
from tests.ir.random_edits import PlannedError, fail
from tests.ir.sample_programs import ATEN, calls, node, sample
from torch.fx import Node

from exirkit.ir import DiagnosticError, GraphEditor, ModelError, UsageError, ops


@pytest.fixture
def editor() -> GraphEditor:
    return GraphEditor(sample("branchy"))


def error_code(error: pytest.ExceptionInfo[DiagnosticError]) -> str:
    return error.value.code


class TestTransactions:
    def test_nothing_done_is_not_modified(self, editor: GraphEditor) -> None:
        with editor.transaction("idle") as transaction:
            pass
        assert not transaction.modified
        assert transaction.author == "idle"

    def test_effect_names_what_happened(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        with editor.transaction("pass") as transaction:
            new = editor.call(ATEN.neg.default, relu.args, before=relu, origins=relu)
            editor.replace(relu, new)
            editor.rename(relu, "old_relu")
            editor.erase(relu)
            editor.set_meta(new, "tag", 1)
        effect = transaction.effect
        assert (effect.created, effect.erased) == (["neg_default"], ["relu"])
        assert set(effect.changed) == {"permute", "output"}
        assert effect.has_table_changes, "an output has another name"

    def test_an_error_undoes_everything_and_is_passed_on(self, editor: GraphEditor) -> None:
        before = exact(editor.program)
        with suppress(PlannedError), editor.transaction("pass") as transaction:
            editor.rename(node(editor.program, "relu"), "other")
            editor.add_constant(torch.tensor(1.0), name="c")
            fail()
        assert exact(editor.program) == before
        assert not transaction.modified

    def test_names_are_as_if_nothing_had_happened(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        untouched = GraphEditor(sample("branchy"))
        with editor.transaction("undone") as transaction:
            for _ in range(3):
                editor.call(ATEN.add.Tensor, (relu, relu), before=relu.next)
            editor.rename(relu, "add")
            transaction.roll_back()
        names = []
        for each in (editor, untouched):
            place = each.graph.output_node()
            source = node(each.program, "relu")
            names.append([each.call(ATEN.add.Tensor, (source, source), before=place).name for _ in range(3)])
        assert names[0] == names[1]

    def test_an_inner_error_undoes_the_inner_edits_only(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        with editor.transaction("outer") as outer:
            editor.set_meta(relu, "outer", 1)
            with suppress(PlannedError), editor.transaction("inner") as inner:
                editor.set_meta(relu, "outer", 2)
                editor.set_meta(relu, "inner", 1)
                fail()
            assert relu.meta["outer"] == 1
            assert "inner" not in relu.meta
            editor.set_meta(relu, "later", 1)
        assert not inner.modified
        assert outer.effect.changed == ["relu"]
        assert (relu.meta["outer"], relu.meta["later"]) == (1, 1)

    def test_what_was_due_before_an_inner_error_is_still_inferred(self, editor: GraphEditor) -> None:
        permute = calls(editor.program, ATEN.permute.default)[0]
        with editor.transaction("outer"):
            editor.retarget(permute, ATEN.permute_copy.default)
            with suppress(PlannedError), editor.transaction("inner"):
                editor.propagate()
                fail()
            with editor.transaction("inner again") as inner:
                inner.roll_back()
        assert permute.meta["val"].is_contiguous()
        assert recorded(editor.program) == recomputed(editor.program)

    def test_an_outer_roll_back_takes_finished_inner_transactions_along(self, editor: GraphEditor) -> None:
        before = exact(editor.program)
        with editor.transaction("outer") as outer:
            with editor.transaction("inner") as inner:
                editor.rename(node(editor.program, "relu"), "other")
            assert inner.modified
            outer.roll_back()
            assert exact(editor.program) == before
        assert not outer.modified

    def test_an_outer_roll_back_from_inside_an_inner_one(self, editor: GraphEditor) -> None:
        before = exact(editor.program)
        with editor.transaction("outer") as outer:
            editor.erase_unused(node(editor.program, "add_2"))
            with editor.transaction("inner") as inner:
                editor.rename(node(editor.program, "relu"), "other")
                outer.roll_back()
                assert exact(editor.program) == before
                editor.rename(node(editor.program, "relu"), "third")
        assert inner.modified
        assert outer.effect.changed == ["third"]

    def test_edits_go_on_after_a_roll_back(self, editor: GraphEditor) -> None:
        before = exact(editor.program)
        max_, relu = node(editor.program, "max"), node(editor.program, "relu")
        with editor.transaction("pass") as transaction:
            for _ in range(2):
                editor.replace(relu, max_)
                transaction.roll_back()
                assert exact(editor.program) == before, "the order of users is restored each time"

    def test_a_finished_transaction_cannot_be_rolled_back(self, editor: GraphEditor) -> None:
        with editor.transaction("outer"):
            with editor.transaction("inner") as inner:
                editor.set_meta(node(editor.program, "relu"), "tag", 1)
            editor.set_meta(node(editor.program, "relu"), "tag", 2)
            inner.roll_back()
        assert node(editor.program, "relu").meta["tag"] == 2

    def test_interrupts_undo_too(self, editor: GraphEditor) -> None:
        before = exact(editor.program)
        with suppress(KeyboardInterrupt), editor.transaction("pass"):
            editor.replace(node(editor.program, "relu"), node(editor.program, "input"))
            raise KeyboardInterrupt
        assert exact(editor.program) == before

    def test_a_journal_keeps_nothing_alive(self, editor: GraphEditor) -> None:
        class Marker:
            pass

        marker = Marker()
        alive = weakref.ref(marker)
        relu = node(editor.program, "relu")
        with editor.transaction("pass") as transaction:
            made = editor.call(ATEN.neg.default, relu.args, before=relu)
            editor.set_meta(made, "marker", marker)
            editor.set_meta(relu, "marker", marker)
            editor.remove_meta(relu, "marker")
            editor.erase(made)
        del made, marker
        assert not editor._journal
        gc.collect()
        assert alive() is None
        assert transaction.effect.created == []


class TestRejections:
    """What cannot be done is said so, and nothing changes."""

    def test_nodes_that_are_gone(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        with editor.transaction("pass"):
            gone = editor.call(ATEN.neg.default, relu.args, before=relu)
            editor.erase(gone)
        before = exact(editor.program)
        with editor.transaction("wrong") as transaction:
            for edit in (
                lambda: editor.erase(gone),
                lambda: editor.replace(relu, gone),
                lambda: editor.replace(gone, relu),
                lambda: editor.replace_in(relu, gone, relu),
                lambda: editor.rewire(gone, (relu,)),
                lambda: editor.retarget(gone, ATEN.exp.default),
                lambda: editor.move(gone, relu),
                lambda: editor.move(relu, gone),
                lambda: editor.rename(gone, "name"),
                lambda: editor.set_meta(gone, "tag", 1),
                lambda: editor.remove_meta(gone, "val"),
                lambda: editor.set_value(gone, None),
                lambda: editor.refresh(gone),
                lambda: editor.call(ATEN.exp.default, (relu,), before=gone),
                lambda: editor.remove_input(gone),
                lambda: editor.set_tensor(gone, torch.ones(1)),
            ):
                with pytest.raises(UsageError) as caught:
                    edit()
                assert error_code(caught) == "EK114"
                assert "no longer" in str(caught.value)
        assert not transaction.modified
        assert exact(editor.program) == before

    def test_nodes_of_another_graph(self, editor: GraphEditor) -> None:
        other = node(sample("branchy"), "relu")
        with pytest.raises(UsageError, match="%relu is not in the graph"):
            editor.erase(other)

    def test_nodes_in_use(self, editor: GraphEditor) -> None:
        with pytest.raises(UsageError, match="%relu is used by %permute, %output") as caught:
            editor.erase(node(editor.program, "relu"))
        assert error_code(caught) == "EK115"

    @pytest.mark.parametrize("name", ["input", "p_linear_bias", "output"])
    def test_inputs_and_output_keep_their_place(self, editor: GraphEditor, name: str) -> None:
        with pytest.raises(UsageError) as caught:
            editor.move(node(editor.program, name), node(editor.program, "relu"))
        assert error_code(caught) == "EK117"

    def test_a_call_that_does_not_fit(self, editor: GraphEditor) -> None:
        relu, permute = node(editor.program, "relu"), node(editor.program, "permute")
        before = exact(editor.program)
        with pytest.raises(ModelError) as caught:
            editor.call(ATEN.add.Tensor, (relu, permute), {"alpha": 2}, before=permute.next, origins=permute)
        assert error_code(caught) == "EK111"
        text = str(caught.value)
        assert "aten.add.Tensor does not take these arguments: " in text
        assert "aten.add.Tensor(%relu, %permute, alpha=2)" in text
        assert "%relu: float32[3, 4]" in text
        assert "%permute: float32[4, 3]" in text
        assert exact(editor.program) == before

    def test_a_call_that_no_longer_fits(self, editor: GraphEditor) -> None:
        before = exact(editor.program)
        with pytest.raises(ModelError) as caught, editor.transaction("pass"):
            # What was 4 x 3 is 3 x 4 then, and is added to 4 x 3.
            editor.replace(node(editor.program, "permute"), node(editor.program, "relu"))
        assert error_code(caught) == "EK111"
        assert "%add_1" in str(caught.value)
        assert exact(editor.program) == before


class TestEdits:
    def test_call_inherits_provenance(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        new = editor.call(ATEN.neg.default, (relu,), before=relu.next, origins=[relu])
        assert new.meta["stack_trace"] == relu.meta["stack_trace"]
        assert new.name == "neg_default"
        assert relu.next is new

    def test_call_by_handle_is_named_after_it(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        new = editor.call(ops.edge.aten.neg.default, (relu,), before=relu.next)
        assert new.name == "aten_neg_default"

    def test_replace_keeps_the_users_that_compute_the_replacement(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        with editor.transaction("pass"):
            new = editor.call(ATEN.neg.default, (relu,), before=relu.next)
            editor.replace(relu, new)
        assert list(relu.users) == [new]
        assert editor.graph.output_node().args[0][2] is new  # type: ignore[index]

    def test_replace_by_itself_is_nothing(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        with editor.transaction("pass") as transaction:
            editor.replace(relu, relu)
            editor.replace_in(node(editor.program, "permute"), relu, relu)
            editor.replace_in(node(editor.program, "add"), relu, node(editor.program, "input"))
        assert not transaction.modified

    def test_replace_in_changes_one_user(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        with editor.transaction("pass"):
            editor.replace_in(node(editor.program, "permute"), relu, node(editor.program, "max"))
        assert list(relu.users) == [editor.graph.output_node()]

    @pytest.mark.parametrize("arguments", [[1, 0], (1, 0), torch.fx.immutable_collections.immutable_list([1, 0])])
    def test_rewire_to_the_same_is_nothing(self, editor: GraphEditor, arguments: Any) -> None:
        permute = node(editor.program, "permute")
        with editor.transaction("pass") as transaction:
            editor.rewire(permute, (permute.args[0], arguments))
            editor.rewire(permute, kwargs={})
        assert not transaction.modified
        assert not editor._stale

    def test_keyword_arguments_there_and_back(self, editor: GraphEditor) -> None:
        add = node(editor.program, "add")
        with editor.transaction("pass") as transaction:
            editor.rewire(add, kwargs={"alpha": 2})
            editor.rewire(add, kwargs={})
        assert not transaction.modified
        with editor.transaction("pass") as transaction:
            editor.rewire(add, kwargs={"alpha": 1})
        assert transaction.effect.changed == ["add"]
        with editor.transaction("pass") as transaction:
            editor.rewire(add, kwargs={"alpha": 1.0})
            editor.rewire(add, kwargs={"alpha": True})
        assert transaction.modified, "1 and True are different arguments"

    def test_retarget_there_and_back(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        with editor.transaction("pass") as transaction:
            editor.retarget(relu, ATEN.neg.default)
            editor.propagate()
            editor.retarget(relu, ATEN.relu.default)
        assert not transaction.modified

    def test_rename(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        with editor.transaction("pass") as transaction:
            editor.rename(relu, "linear")
            assert relu.name == "linear_1"
            editor.rename(relu, "relu")
            assert relu.name == "relu"
        assert not transaction.modified

    def test_names_that_python_keeps_for_itself(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        before = exact(editor.program)
        with editor.transaction("pass") as transaction:
            for name in ("max", "1st", "a.b c", "", "lambda"):
                editor.rename(relu, name)
                assert relu.name.isidentifier()
            transaction.roll_back()
        assert exact(editor.program) == before

    def test_erase_unused_takes_producers_along(self, editor: GraphEditor) -> None:
        output = editor.graph.output_node()
        results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
        with editor.transaction("pass"):
            results[1] = results[3] = None
            editor.rewire(output, (tuple(results),))
            editor.erase_unused(node(editor.program, "mul_1"))
            editor.erase_unused(node(editor.program, "relu"))
        names = [one.name for one in editor.graph.nodes if one.op == "call_function"]
        assert names == ["add", "linear", "relu", "add_2"]
        agrees(editor.program)

    def test_moved_nodes_are_reported_where_the_order_changes(self, editor: GraphEditor) -> None:
        first, second, third = (node(editor.program, name) for name in ("permute_1", "add_1", "clone"))
        with editor.transaction("pass") as transaction:
            editor.move(third, first)
            editor.move(first, third)
            editor.move(third, second)
            editor.move(third, second.next)
        assert not transaction.modified
        with editor.transaction("pass") as transaction:
            editor.move(third, first)
        assert transaction.effect.changed == ["clone"]

    def test_nodes_around_a_moved_one_do_not_count(self, editor: GraphEditor) -> None:
        """A node that is moved there and back is unchanged, whatever was made and erased around it."""
        clone, mul = node(editor.program, "clone"), node(editor.program, "mul")
        relu = node(editor.program, "relu")
        with editor.transaction("pass") as transaction:
            doomed = editor.call(ATEN.neg.default, (relu,), before=mul)
            editor.move(clone, relu)
            editor.erase(doomed)
            editor.move(clone, mul)
            new = editor.call(ATEN.exp.default, (relu,), before=mul)
        assert clone.next is new
        assert transaction.effect.created == ["exp_default"]
        assert transaction.effect.changed == []
        with editor.transaction("pass") as transaction:
            editor.move(clone, relu)
            editor.erase(new)
            editor.move(clone, mul)
        assert transaction.effect.erased == ["exp_default"]
        assert transaction.effect.changed == []

    def test_moving_in_front_of_itself_or_its_follower_is_nothing(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        before = exact(editor.program)
        with editor.transaction("pass") as transaction:
            editor.move(relu, relu)
            editor.move(relu, relu.next)
        assert not transaction.modified
        assert exact(editor.program) == before

    @pytest.mark.parametrize(("old", "new"), [(0.0, -0.0), (1, True), (1, 1.0), ((1, 2), (1, True))])
    def test_metadata_is_compared_exactly(self, editor: GraphEditor, old: Any, new: Any) -> None:
        relu = node(editor.program, "relu")
        editor.set_meta(relu, "tag", old)
        with editor.transaction("pass") as transaction:
            editor.set_meta(relu, "tag", new)
        assert transaction.modified
        with editor.transaction("pass") as transaction:
            editor.remove_meta(relu, "tag")
            editor.set_meta(relu, "tag", new)
        assert not transaction.modified

    def test_setting_val_as_metadata_reaches_the_users(self, editor: GraphEditor) -> None:
        max_ = node(editor.program, "max")
        with editor.transaction("pass"), editor.fake_mode:
            editor.set_meta(max_, "val", torch.empty(3, 4, dtype=torch.float64))
        assert node(editor.program, "sum_1").meta["val"].dtype is torch.float64

    def test_edits_outside_transactions_are_not_undone_with_the_next(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        editor.set_meta(relu, "tag", 1)
        with suppress(PlannedError), editor.transaction("pass"):
            editor.set_meta(relu, "tag", 2)
            fail()
        assert relu.meta["tag"] == 1


def test_the_module_computes_what_the_graph_says_after_edits(editor: GraphEditor) -> None:
    program = editor.program
    inputs = (torch.randn(3, 4), torch.randn(3, 4))
    expected = program.module()(*inputs)
    assert "neg" not in program.graph_module.code
    relu = node(program, "relu")
    with editor.transaction("pass"):
        negated = editor.call(ATEN.neg.default, (relu,), before=relu.next, origins=relu)
        editor.replace(relu, negated)
    assert "neg" in program.graph_module.code
    found = program.module()(*inputs)
    torch.testing.assert_close(found[1], -expected[1])
    agrees(program)


def test_copies_do_not_share_edits(editor: GraphEditor) -> None:
    untouched = sample("branchy")
    before = meaning(untouched)
    with editor.transaction("pass"):
        for one in list(editor.graph.nodes):
            editor.set_meta(one, "tag", 1)
            if isinstance(one, Node) and one.op != "output":
                editor.rename(one, f"renamed_{one.name}")
    assert meaning(untouched) == before

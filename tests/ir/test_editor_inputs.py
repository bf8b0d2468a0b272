"""Signature, stored tensors and constants under the editor."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.ir.program_snapshot import agrees, exact, meaning
from tests.ir.random_edits import PlannedError, fail
from tests.ir.sample_programs import ATEN, node, sample
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    SymIntArgument,
    TensorArgument,
)

from exirkit.ir import ContractError, GraphEditor, UsageError


@pytest.fixture
def editor() -> GraphEditor:
    return GraphEditor(sample("branchy"))


def set_results(editor: GraphEditor, results: Any) -> None:
    editor.rewire(editor.graph.output_node(), (tuple(results),))


def results_of(editor: GraphEditor) -> list[Any]:
    return list(editor.graph.output_node().args[0])  # type: ignore[arg-type]


INPUTS = (torch.arange(12.0).reshape(3, 4), torch.ones(3, 4))


class TestOutputs:
    def test_a_replaced_output_that_is_returned_twice(self, editor: GraphEditor) -> None:
        mul = node(editor.program, "mul_1")
        with editor.transaction("pass"):
            editor.replace(mul, editor.call(ATEN.neg.default, (mul,), before=mul.next))
        names = [spec.arg.name for spec in editor.program.graph_signature.output_specs]
        assert names == ["add", "neg_default", "relu", "neg_default", "max", "", "", "add_2"]
        agrees(editor.program)
        before, after = sample("branchy").module()(*INPUTS), editor.program.module()(*INPUTS)
        torch.testing.assert_close(after[0], -before[0])
        torch.testing.assert_close(after[2], -before[2])

    def test_an_output_that_becomes_an_input(self, editor: GraphEditor) -> None:
        with editor.transaction("pass"):
            editor.replace(node(editor.program, "relu"), node(editor.program, "max"))
        assert editor.program.graph_signature.output_specs[2].arg == TensorArgument(name="max")
        agrees(editor.program)
        assert editor.program.module()(*INPUTS)[1].equal(INPUTS[1])

    def test_outputs_that_become_constants_and_back(self, editor: GraphEditor) -> None:
        results = results_of(editor)
        signature = list(editor.program.graph_signature.output_specs)
        with editor.transaction("pass") as transaction:
            changed = list(results)
            changed[1], changed[5], changed[6] = None, node(editor.program, "relu"), True
            set_results(editor, changed)
        assert transaction.modified
        args = [spec.arg for spec in editor.program.graph_signature.output_specs]
        assert args[1] == ConstantArgument(name="", value=None)
        assert args[5] == TensorArgument(name="relu")
        assert isinstance(args[6], ConstantArgument)
        assert args[6].value is True
        agrees(editor.program)
        with editor.transaction("pass"):
            set_results(editor, results)
        assert editor.program.graph_signature.output_specs == signature

    def test_a_number_takes_the_place_of_a_tensor(self) -> None:
        editor = GraphEditor(sample("sizes"))
        results = results_of(editor)
        with editor.transaction("pass"):
            set_results(editor, (results[1], results[0], results[2]))
        kinds = [type(spec.arg) for spec in editor.program.graph_signature.output_specs]
        assert kinds == [SymIntArgument, TensorArgument, TensorArgument]
        agrees(editor.program)

    def test_one_output_more(self, editor: GraphEditor) -> None:
        before = exact(editor.program)
        with pytest.raises(ContractError) as caught, editor.transaction("pass"):
            set_results(editor, [*results_of(editor), None])
        assert caught.value.code == "EK113"
        assert "9 outputs, the signature of its program 8" in str(caught.value)
        assert exact(editor.program) == before

    def test_a_placeholder_erased_behind_the_signature(self, editor: GraphEditor) -> None:
        before = exact(editor.program)
        with pytest.raises(ContractError, match="7 inputs, the signature of its program 8"), editor.transaction("pass"):
            editor.erase(node(editor.program, "p_unused"))
        assert exact(editor.program) == before


class TestNames:
    def test_two_inputs_change_names(self, editor: GraphEditor) -> None:
        first, second = node(editor.program, "p_linear_weight"), node(editor.program, "p_linear_bias")
        before = sample("branchy").module()(*INPUTS)
        with editor.transaction("pass"):
            editor.rename(first, "between")
            editor.rename(second, "p_linear_weight")
            editor.rename(first, "p_linear_bias")
        specs = editor.program.graph_signature.input_specs
        assert [(spec.arg.name, spec.target) for spec in specs[1:3]] == [
            ("p_linear_bias", "linear.weight"),
            ("p_linear_weight", "linear.bias"),
        ]
        agrees(editor.program)
        torch.testing.assert_close(editor.program.module()(*INPUTS)[:6], before[:6])

    def test_a_written_input_keeps_its_output(self) -> None:
        editor = GraphEditor(sample("writes"))
        with editor.transaction("pass"):
            editor.rename(node(editor.program, "y"), "aside")
            editor.rename(node(editor.program, "input"), "y")
        spec = editor.program.graph_signature.output_specs[0]
        assert spec.target == "y"
        agrees(editor.program)
        x = torch.ones(3)
        editor.program.module()(x, torch.ones(3))
        assert x.equal(torch.full((3,), 2.0))

    def test_stored_tensors_are_found_by_node_right_after_a_rename(self, editor: GraphEditor) -> None:
        with editor.transaction("pass"):
            weight, unused = node(editor.program, "p_linear_weight"), node(editor.program, "p_unused")
            editor.rename(weight, "elsewhere")
            editor.rename(unused, "p_linear_weight")
            editor.remove_input(unused)
            editor.set_tensor(weight, torch.zeros(4, 4))
        assert "unused" not in editor.program.state_dict
        assert not editor.program.state_dict["linear.weight"].any()
        agrees(editor.program)

    def test_names_that_differed_before_are_brought_in_line(self, editor: GraphEditor) -> None:
        """Passes that work on graph modules rename as they like; the next transaction repairs the signature."""
        node(editor.program, "input")._rename("features")
        node(editor.program, "relu")._rename("hidden")
        with editor.transaction("repair") as transaction:
            pass
        assert transaction.modified
        agrees(editor.program)


def _nan(payload: int) -> torch.Tensor:
    return torch.tensor(0x7FC00000 + payload, dtype=torch.int32).view(torch.float32)


EQUAL = (
    (torch.tensor(2.0), torch.tensor(2.0)),
    (torch.tensor([[1]]), torch.tensor([[1]])),
    (torch.tensor(float("nan")), torch.tensor(float("nan"))),
    (torch.tensor([5.0, 6.0])[1:], torch.tensor([6.0])),
    (torch.tensor(1 + 2j).conj(), torch.tensor(1 - 2j)),
)
DIFFERENT = (
    (torch.tensor(0.0), torch.tensor(-0.0)),
    (torch.tensor(1), torch.tensor(True)),
    (torch.tensor(1.0), torch.tensor(1)),
    (torch.tensor(1.0), torch.tensor([1.0])),
    (torch.tensor(1.0, dtype=torch.float16), torch.tensor(1.0, dtype=torch.bfloat16)),
    (_nan(0), _nan(1)),
    (torch.tensor(1 + 2j), torch.tensor(1 - 2j)),
    (torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0])),
    (torch.empty(0), torch.empty(0)),
)


class TestConstants:
    @pytest.mark.parametrize(("left", "right"), EQUAL)
    def test_equal_ones_are_shared(self, editor: GraphEditor, left: torch.Tensor, right: torch.Tensor) -> None:
        assert editor.add_constant(left, name="c") is editor.add_constant(right, name="d")

    @pytest.mark.parametrize(("left", "right"), DIFFERENT)
    def test_others_are_not(self, editor: GraphEditor, left: torch.Tensor, right: torch.Tensor) -> None:
        with editor.transaction("pass"):
            assert editor.add_constant(left, name="c") is not editor.add_constant(right, name="c")
        agrees(editor.program)

    def test_they_stand_before_the_user_inputs_in_order(self, editor: GraphEditor) -> None:
        with editor.transaction("pass"):
            made = [editor.add_constant(torch.tensor(float(each)), name="c") for each in range(3)]
        names = [one.name for one in editor.graph.find_nodes(op="placeholder")]
        assert names[-5:] == [*(one.name for one in made), "input", "max"]
        assert all(one.target == one.name for one in made)
        agrees(editor.program)

    def test_in_a_program_without_user_inputs(self, editor: GraphEditor) -> None:
        program = editor.program
        specs = program._graph_signature.input_specs
        specs[:] = [replace(spec, kind=InputKind.CONSTANT_TENSOR, target=spec.arg.name) for spec in specs]
        program._constants.update({spec.arg.name: torch.ones(1) for spec in specs})
        with editor.transaction("pass"):
            made = [editor.add_constant(torch.full((2,), float(each)), name="c") for each in range(2)]
        assert [one.name for one in editor.graph.find_nodes(op="placeholder")[-2:]] == [one.name for one in made]
        agrees(program)

    def test_undone_ones_are_not_given_out_again(self, editor: GraphEditor) -> None:
        with suppress(PlannedError), editor.transaction("pass"):
            undone = editor.add_constant(torch.tensor(2.0), name="c")
            fail()
        with editor.transaction("pass"):
            again = editor.add_constant(torch.tensor(2.0), name="c")
        assert undone._erased
        assert again is not undone
        assert again.name == "c"
        agrees(editor.program)

    def test_removed_ones_are_not_given_out_until_the_removal_is_undone(self, editor: GraphEditor) -> None:
        with editor.transaction("pass"):
            first = editor.add_constant(torch.tensor(2.0), name="c")
            with suppress(PlannedError), editor.transaction("inner"):
                editor.remove_input(first)
                assert editor.add_constant(torch.tensor(2.0), name="c") is not first
                fail()
            assert not first._erased
            second = editor.add_constant(torch.tensor(2.0), name="c")
            assert not second._erased
        agrees(editor.program)

    def test_ones_whose_tensor_was_replaced_are_not_given_out(self, editor: GraphEditor) -> None:
        with editor.transaction("pass"):
            first = editor.add_constant(torch.tensor(2.0), name="c")
            editor.set_tensor(first, torch.tensor(3.0))
            second = editor.add_constant(torch.tensor(2.0), name="c")
        assert first is not second
        assert editor.program.constants[first.name] == 3.0

    @pytest.mark.parametrize("name", ["linear", "training", "count", "p_unused", "forward", "a.b", "0", ""])
    def test_any_name_gives_a_program_that_runs(self, editor: GraphEditor, name: str) -> None:
        """`linear` is a module on the way to a parameter, `training` an attribute of every module."""
        relu = node(editor.program, "relu")
        expected = editor.program.module()(*INPUTS)
        with editor.transaction("pass"):
            constant = editor.add_constant(torch.tensor(2.0), name=name, origins=relu)
            editor.replace(relu, editor.call(ATEN.mul.Tensor, (relu, constant), before=relu.next))
        agrees(editor.program)
        torch.testing.assert_close(editor.program.module()(*INPUTS)[1], expected[1] * 2)

    def test_memory_is_shared_and_gradients_are_not(self, editor: GraphEditor) -> None:
        tensor = torch.ones(3, requires_grad=True)
        constant = editor.add_constant(tensor, name="c")
        stored = editor.program.constants[constant.name]
        assert stored.data_ptr() == tensor.data_ptr()
        assert not stored.requires_grad
        assert constant.meta["val"].shape == (3,)

    def test_strides_are_recorded(self, editor: GraphEditor) -> None:
        constant = editor.add_constant(torch.ones(2, 3).t(), name="c")
        assert constant.meta["val"].stride() == (1, 3)

    def test_added_and_removed_is_not_modified(self, editor: GraphEditor) -> None:
        with editor.transaction("pass") as transaction:
            editor.remove_input(editor.add_constant(torch.ones(2), name="c"))
        assert not transaction.modified


class TestRemoval:
    def test_of_an_unused_parameter(self, editor: GraphEditor) -> None:
        with editor.transaction("pass") as transaction:
            editor.remove_input(node(editor.program, "p_unused"))
        assert transaction.effect.erased == ["p_unused"]
        assert "unused" not in editor.program.state_dict
        agrees(editor.program)
        editor.program.module()(*INPUTS)

    def test_outside_transactions(self, editor: GraphEditor) -> None:
        editor.remove_input(editor.add_constant(torch.ones(2), name="c"))
        editor.remove_input(node(editor.program, "p_unused"))
        agrees(editor.program)

    def test_of_the_same_one_twice_at_once(self, editor: GraphEditor) -> None:
        unused = node(editor.program, "p_unused")
        with pytest.raises(UsageError) as caught, editor.transaction("pass"):
            editor.remove_inputs([unused, unused])
        assert caught.value.code == "EK114"
        agrees(editor.program)

    def test_undone_brings_the_tables_back_in_their_order(self, editor: GraphEditor) -> None:
        assert next(iter(editor.program.state_dict)) == "unused", "an entry that would come back last"
        before = exact(editor.program)
        with editor.transaction("pass") as transaction:
            editor.remove_input(node(editor.program, "p_unused"))
            transaction.roll_back()
        assert exact(editor.program) == before

    @pytest.mark.parametrize(
        ("name", "code", "text"),
        [
            ("p_linear_bias", "EK115", "used by %linear"),
            ("input", "EK116", "not a stored tensor"),
            ("relu", "EK116", "not a stored tensor"),
        ],
    )
    def test_of_what_is_needed(self, editor: GraphEditor, name: str, code: str, text: str) -> None:
        before = exact(editor.program)
        with pytest.raises(UsageError, match=text) as caught:
            editor.remove_input(node(editor.program, name))
        assert caught.value.code == code
        assert exact(editor.program) == before

    def test_of_a_written_buffer_that_nothing_reads(self, editor: GraphEditor) -> None:
        count = node(editor.program, "b_count")
        with editor.transaction("pass"):
            editor.replace(count, node(editor.program, "b_scale"))
        with pytest.raises(UsageError, match="%b_count is written by the program") as caught:
            editor.remove_input(count)
        assert caught.value.code == "EK115"

    def test_of_several_is_all_or_nothing_for_those_that_are_not_tensors(self, editor: GraphEditor) -> None:
        before = exact(editor.program)
        with pytest.raises(UsageError):
            editor.remove_inputs([node(editor.program, "p_unused"), node(editor.program, "p_linear_bias")])
        assert exact(editor.program) == before

    def test_of_one_of_two_placeholders_of_a_tensor(self, editor: GraphEditor) -> None:
        program = editor.program
        specs = program._graph_signature.input_specs
        specs[0] = replace(specs[0], target="linear.weight")
        with editor.transaction("pass"):
            editor.remove_input(node(program, "p_unused"))
        assert "linear.weight" in program.state_dict
        program.module()(*INPUTS)


class TestReplacedTensors:
    def test_a_parameter_stays_one(self, editor: GraphEditor) -> None:
        bias = torch.arange(4.0)
        with editor.transaction("pass") as transaction:
            editor.set_tensor(node(editor.program, "p_linear_bias"), bias)
        stored = editor.program.state_dict["linear.bias"]
        assert transaction.modified
        assert isinstance(stored, torch.nn.Parameter)
        assert stored.data_ptr() == bias.data_ptr()
        assert dict(editor.program.named_parameters())["linear.bias"] is stored
        editor.program.module()(*INPUTS)

    def test_another_dtype_reaches_the_users(self, editor: GraphEditor) -> None:
        with editor.transaction("pass"):
            editor.set_tensor(node(editor.program, "b_scale"), torch.ones(4, dtype=torch.float64))
        assert node(editor.program, "mul_1").meta["val"].dtype is torch.float64

    def test_an_integer_parameter(self, editor: GraphEditor) -> None:
        with editor.transaction("pass"):
            editor.set_tensor(node(editor.program, "p_unused"), torch.ones(3, dtype=torch.int8))
        assert not editor.program.state_dict["unused"].requires_grad

    def test_the_same_tensor_is_not_modified(self, editor: GraphEditor) -> None:
        scale = editor.program.constants["scale"]
        with editor.transaction("pass") as transaction:
            editor.set_tensor(node(editor.program, "b_scale"), scale)
        assert not transaction.modified
        with editor.transaction("pass") as transaction:
            editor.set_tensor(node(editor.program, "b_scale"), scale.detach())
        assert not transaction.modified, "the same memory"
        with editor.transaction("pass") as transaction:
            editor.set_tensor(node(editor.program, "b_scale"), scale.clone())
        assert transaction.modified

    def test_all_placeholders_of_the_tensor_follow(self, editor: GraphEditor) -> None:
        specs = editor.program._graph_signature.input_specs
        specs[0] = replace(specs[0], target="linear.weight")
        with editor.transaction("pass"):
            editor.set_tensor(node(editor.program, "p_linear_weight"), torch.ones(4, 4, dtype=torch.float32).t())
            editor.set_tensor(node(editor.program, "p_linear_weight"), torch.ones(4, 4).expand(4, 4).t())
        values = [node(editor.program, name).meta["val"].stride() for name in ("p_unused", "p_linear_weight")]
        assert values == [(1, 4), (1, 4)]

    def test_user_inputs_have_none(self, editor: GraphEditor) -> None:
        with pytest.raises(UsageError) as caught:
            editor.set_tensor(node(editor.program, "input"), torch.ones(3, 4))
        assert caught.value.code == "EK116"


def test_ranges_are_part_of_the_program() -> None:
    editor = GraphEditor(sample("sizes"))
    ranges = editor.program.range_constraints
    symbol = next(iter(ranges))
    old = ranges[symbol]
    before = meaning(editor.program)
    with editor.transaction("pass") as transaction:
        editor.set_range(symbol, type(old)(old.lower, 32))
        editor.set_range(symbol, type(old)(old.lower, old.upper))
    assert not transaction.modified, "an equal range"
    with editor.transaction("pass") as transaction:
        editor.set_range(symbol, type(old)(old.lower, 32))
        assert ranges[symbol].upper == 32
        transaction.roll_back()
    assert meaning(editor.program) == before


@pytest.mark.parametrize("single", [torch.ones(2)[::2], torch.ones(1).expand(3)[:1], torch.ones(1, 1)])
def test_single_elements_are_shared_whatever_their_stride(editor: GraphEditor, single: torch.Tensor) -> None:
    first = editor.add_constant(single, name="single")
    assert editor.add_constant(single.clone(memory_format=torch.contiguous_format), name="single") is first

"""Values of nodes under the editor: what is inferred, when, how often, and what torch's shape environment has of it."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from tests.ir.program_snapshot import described, exact, recomputed, recorded
from tests.ir.random_edits import PlannedError, fail
from tests.ir.sample_programs import ATEN, calls, node, sample
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Node

from exirkit.fuzz.programs import build, parse_program
from exirkit.ir import GraphEditor, ModelError, contiguous_stride, edge_operator, infer_value, ops, same_value


@pytest.fixture
def editor() -> GraphEditor:
    return GraphEditor(sample("branchy"))


class Counting:
    """A call target that says how often it was run; it is not an operator, so nothing remembers its results."""

    __name__ = "counting"

    def __init__(self, meaning: Callable[..., Any] = torch.relu) -> None:
        self.runs = 0
        self._meaning = meaning

    def __call__(self, *args: Any) -> Any:
        self.runs += 1
        return self._meaning(*args)


class TestPropagation:
    def test_strides_follow_a_chain_of_views_turned_into_copies(self, editor: GraphEditor) -> None:
        permutes = calls(editor.program, ATEN.permute.default)
        assert not any(permute.meta["val"].is_contiguous() for permute in permutes)
        with editor.transaction("pass"):
            turned = editor.call(ATEN.permute.default, (permutes[0], [1, 0]), before=permutes[0].next)
            again = editor.call(ATEN.permute.default, (turned, [1, 0]), before=turned.next)
            editor.replace(permutes[0], again)
            editor.rewire(turned, (permutes[0], [1, 0]))
            for permute in calls(editor.program, ATEN.permute.default):
                editor.retarget(permute, ATEN.permute_copy.default)
        chain = [node(editor.program, name) for name in ("permute", "add_1", "mul")]
        assert all(one.meta["val"].is_contiguous() for one in (*chain, turned, again))
        assert recorded(editor.program) == recomputed(editor.program)

    def test_dtypes_follow(self, editor: GraphEditor) -> None:
        max_ = node(editor.program, "max")
        with editor.transaction("pass"):
            cast = editor.call(
                ATEN._to_copy.default, (max_,), {"dtype": torch.float64}, before=node(editor.program, "add")
            )
            editor.replace_in(node(editor.program, "permute_1"), max_, cast)
        assert node(editor.program, "mul_1").meta["val"].dtype is torch.float64
        assert recorded(editor.program) == recomputed(editor.program)

    def test_what_is_not_affected_is_not_run(self, editor: GraphEditor) -> None:
        relu, output = node(editor.program, "relu"), editor.graph.output_node()
        counters = {name: Counting() for name in ("before", "beside", "behind", "far")}
        with editor.transaction("prepare"):
            before = editor.call(counters["before"], relu.args, before=relu)
            beside = editor.call(counters["beside"], (before,), before=output)
            behind = editor.call(counters["behind"], (relu,), before=output)
            editor.call(counters["far"], (behind,), before=output)
        assert {name: counter.runs for name, counter in counters.items()} == dict.fromkeys(counters, 1)
        with editor.transaction("same value"):
            editor.retarget(relu, ATEN.neg.default)
        assert [counter.runs for counter in counters.values()] == [1, 1, 1, 1]
        with editor.transaction("other value"), editor.fake_mode:
            editor.set_value(relu, torch.empty(3, 4, dtype=torch.float64))
        assert [counter.runs for counter in counters.values()] == [1, 1, 2, 2]
        assert beside.meta["val"].dtype is torch.float32

    def test_pushing_stops_where_values_stay_as_they_are(self, editor: GraphEditor) -> None:
        relu, output = node(editor.program, "relu"), editor.graph.output_node()
        far = Counting()
        with editor.transaction("prepare"):
            shape = editor.call(ATEN.sym_size.int, (relu, 0), before=output)
            editor.call(far, (shape,), before=output, val=None)
        with editor.transaction("pass"), editor.fake_mode:
            editor.set_value(relu, torch.empty(3, 4, dtype=torch.float64))
        assert far.runs == 0

    def test_each_node_once_even_with_many_ways_to_it(self, editor: GraphEditor) -> None:
        """A chain of additions, each used twice: a walk along edges would run the last one 2**12 times."""
        relu, output = node(editor.program, "relu"), editor.graph.output_node()
        counter = Counting(torch.add)
        with editor.transaction("prepare"):
            first = second = relu
            for _ in range(12):
                first, second = (editor.call(counter, (first, second), before=output) for _ in range(2))
        counter.runs = 0
        with editor.transaction("pass"), editor.fake_mode:
            editor.set_value(relu, torch.empty(3, 4, dtype=torch.float64))
        assert counter.runs == 24

    def test_stale_nodes_that_stand_behind_one_another(self, editor: GraphEditor) -> None:
        """Users that are due already when a producer changes are run once, after it."""
        relu, output = node(editor.program, "relu"), editor.graph.output_node()
        counter = Counting()
        with editor.transaction("prepare"):
            chain = [relu]
            for _ in range(5):
                chain.append(editor.call(counter, (chain[-1],), before=output))
        counter.runs = 0
        with editor.transaction("pass"):
            for one in reversed(chain[1:]):
                editor.refresh(one)
            with editor.fake_mode:
                editor.set_value(relu, torch.empty(3, 4, dtype=torch.float16))
        assert counter.runs == 5
        assert all(one.meta["val"].dtype is torch.float16 for one in chain)

    def test_a_call_sees_what_its_arguments_have_become(self, editor: GraphEditor) -> None:
        """The call fits only the new value of its argument; users behind it do not, and are fixed afterwards."""
        relu, add = node(editor.program, "relu"), node(editor.program, "add_1")
        linear = relu.args[0]
        with editor.transaction("pass"):
            editor.retarget(relu, ATEN.permute.default, (linear, [1, 0]))
            made = editor.call(ATEN.mm.default, (relu, linear), before=relu.next)
            turned = editor.call(ATEN.permute_copy.default, (node(editor.program, "permute"), [1, 0]), before=add)
            editor.rewire(add, (turned, add.args[1]))
        assert made.meta["val"].shape == (4, 4)
        assert recorded(editor.program) == recomputed(editor.program)

    def test_a_failure_leaves_nodes_due(self, editor: GraphEditor) -> None:
        """A caller that catches the failure of `propagate` and fixes the cause gets the right values in the end."""
        permute, relu = node(editor.program, "permute"), node(editor.program, "relu")
        with editor.transaction("pass"):
            editor.replace(permute, relu)
            with pytest.raises(ModelError):
                editor.propagate()
            copied = editor.call(ATEN.permute_copy.default, (relu, [1, 0]), before=permute)
            editor.rewire(node(editor.program, "add_1"), (copied, node(editor.program, "permute_1")))
        assert recorded(editor.program) == recomputed(editor.program)

    def test_refresh_records_missing_values(self, editor: GraphEditor) -> None:
        with editor.transaction("pass"):
            for one in editor.graph.nodes:
                if one.op == "call_function":
                    editor.remove_meta(one, "val")
                    editor.refresh(one)
        assert recorded(editor.program) == recomputed(editor.program)

    def test_missing_values_are_named(self, editor: GraphEditor) -> None:
        relu = node(editor.program, "relu")
        editor.remove_meta(relu, "val")
        with pytest.raises(ModelError, match="%relu has no recorded value") as caught:
            editor.call(ATEN.neg.default, (relu,), before=relu.next)
        assert caught.value.code == "EK112"


class TestKindsOfValues:
    def test_lists_and_their_items(self, editor: GraphEditor) -> None:
        relu, output = node(editor.program, "relu"), editor.graph.output_node()
        with editor.transaction("pass"):
            parts = editor.call(ATEN.split_copy.Tensor, (relu, 2), before=output)
            item = editor.call(operator.getitem, (parts, 1), before=output)
        assert [tuple(one.shape) for one in parts.meta["val"]] == [(2, 4), (1, 4)]
        assert item.meta["val"].shape == (1, 4)
        with editor.transaction("pass"):
            editor.rewire(parts, (relu, 1))
        assert len(parts.meta["val"]) == 3
        assert recorded(editor.program) == recomputed(editor.program)

    def test_several_results(self, editor: GraphEditor) -> None:
        relu, output = node(editor.program, "relu"), editor.graph.output_node()
        made = editor.call(ops.edge.aten.max.dim, (relu, 1), before=output)
        again = editor.call(ops.edge.aten.max.dim, (relu, 1), before=output)
        assert [one.dtype for one in made.meta["val"]] == [torch.float32, torch.int64]
        assert described(made.meta["val"]) == described(again.meta["val"])

    def test_nothing(self, editor: GraphEditor) -> None:
        """An operator without a result has none to record, before and after."""
        output = editor.graph.output_node()
        with editor.transaction("pass"):
            made = editor.call(ATEN._assert_scalar.default, (True, "text"), before=output)
            editor.remove_meta(made, "val")
        with editor.transaction("pass") as transaction:
            editor.refresh(made)
        assert not transaction.modified
        assert "val" not in made.meta

    def test_numbers(self) -> None:
        editor = GraphEditor(sample("sizes"))
        size, output = calls(editor.program, ATEN.sym_size.int)[0], editor.graph.output_node()
        with editor.transaction("pass"):
            made = editor.call(operator.mul, (size, 2), before=output)
            ready = editor.call(ops.edge.executorch_prim.mul.Scalar, (size, 2), before=output)
        assert same_value(made.meta["val"], ready.meta["val"])
        assert str(made.meta["val"]) == f"2*{size.meta['val']}"

    def test_bodies_of_control_flow(self) -> None:
        editor = GraphEditor(sample("choice"))
        x, cond = node(editor.program, "x"), node(editor.program, "cond")
        with editor.transaction("pass"):
            editor.refresh(cond)
            again = editor.call(cond.target, cond.args, before=cond.next, origins=cond)  # type: ignore[arg-type]
        assert same_value(again.meta["val"], cond.meta["val"])
        assert recorded(editor.program) == recomputed(editor.program)
        assert x in cond.all_input_nodes

    def test_real_tensors(self, editor: GraphEditor) -> None:
        relu, output = node(editor.program, "relu"), editor.graph.output_node()
        constant = editor.add_constant(torch.ones(4, dtype=torch.float64), name="c")
        constant.meta["val"] = editor.program.constants[constant.name]
        made = editor.call(ATEN.add.Tensor, (relu, constant), before=output)
        assert isinstance(made.meta["val"], FakeTensor)
        assert made.meta["val"].dtype is torch.float64
        value = infer_value(editor.fake_mode, ATEN.add.Tensor, (relu, torch.ones(4)), {})
        assert value.fake_mode is editor.fake_mode

    def test_values_of_another_mode(self, editor: GraphEditor) -> None:
        relu, output = node(editor.program, "relu"), editor.graph.output_node()
        with FakeTensorMode():
            foreign = torch.empty(3, 4, dtype=torch.float64).t().contiguous().t()
        editor.set_value(relu, foreign)
        made = editor.call(ATEN.add.Tensor, (relu, node(editor.program, "max")), before=output)
        assert made.meta["val"].fake_mode is editor.fake_mode
        assert made.meta["val"].dtype is torch.float64

    def test_operators_that_resize_what_they_write(self, editor: GraphEditor) -> None:
        """Inference must not change the recorded value of an argument."""
        relu, output = node(editor.program, "relu"), editor.graph.output_node()
        before = described(relu.meta["val"])
        made = editor.call(ATEN.resize_.default, (relu, [7, 2]), before=output)
        assert made.meta["val"].shape == (7, 2)
        assert described(relu.meta["val"]) == before

    def test_results_that_are_alike_are_different_tensors(self, editor: GraphEditor) -> None:
        """torch notes on a tensor how many of its elements are not zero; these two may differ in that."""
        first, output = node(editor.program, "relu"), editor.graph.output_node()
        with editor.transaction("pass"):
            values = [editor.call(ATEN.sin.default, (first,), before=output) for _ in range(2)]
            found = [editor.call(ATEN.nonzero.default, (value,), before=output) for value in values]
        assert str(found[0].meta["val"].shape[0]) != str(found[1].meta["val"].shape[0])

    def test_no_gradients(self, editor: GraphEditor) -> None:
        weight, output = node(editor.program, "p_linear_weight"), editor.graph.output_node()
        assert not editor.call(ATEN.neg.default, (weight,), before=output).meta["val"].requires_grad


class ShapeFacts:
    """How much a shape environment knows."""

    def __init__(self, editor: GraphEditor) -> None:
        env = editor.fake_mode.shape_env
        assert env is not None
        self._env: Any = env
        self.before = self.now()

    def now(self) -> tuple[Any, ...]:
        env = self._env
        return (
            len(env.guards),
            dict(env.replacements),
            dict(env.var_to_range),
            env.num_deferred_runtime_asserts,
            list(env.pending_fresh_unbacked_symbols),
        )


class TestDynamicSizes:
    def test_edits_add_no_guards_and_no_symbols(self) -> None:
        editor = GraphEditor(sample("sizes"))
        facts = ShapeFacts(editor)
        with editor.transaction("pass"):
            for permute in calls(editor.program, ATEN.permute.default):
                editor.retarget(permute, ATEN.permute_copy.default)
            for view in calls(editor.program, ATEN.view.default):
                editor.retarget(view, ops.edge.aten.view_copy.default)
            exp = calls(editor.program, ATEN.exp.default)[0]
            made = editor.call(ATEN.mm.default, (exp, calls(editor.program, ATEN.cat.default)[0]), before=exp.next)
            editor.add_constant(torch.ones(5), name="c")
        assert facts.now() == facts.before
        assert made.meta["val"].shape == (4, 4)
        rows = node(editor.program, "cat").meta["val"].shape[0]
        assert node(editor.program, "permute").meta["val"].shape == (4, rows)
        assert described(node(editor.program, "exp").meta["val"].stride()) == described((rows, 1))

    def test_branches_whose_results_lie_otherwise_are_inferred(self) -> None:
        """torch compares strides of what branches give, which a change of an operand changes in one of them."""

        class Chosen(torch.nn.Module):
            def forward(self, p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
                return torch.cond(p, lambda x: x.neg(), lambda x: torch.ones(3, 3), (x,))

        editor = GraphEditor(torch.export.export(Chosen(), (torch.tensor(True), torch.ones(3, 3))))
        (call,) = calls(editor.program, torch.ops.higher_order.cond)
        operands: Any = call.args[3]
        turned = editor.call(ATEN.permute.default, (operands[0], [1, 0]), before=call)
        assert not turned.meta["val"].is_contiguous()
        with editor.transaction("pass"):
            editor.rewire(call, (*call.args[:3], (turned,)))
        assert [(one.dtype, tuple(one.shape)) for one in call.meta["val"]] == [(torch.float32, (3, 3))]
        row = editor.call(ATEN.select.int, (turned, 0, 0), before=call)
        with pytest.raises(ModelError), editor.transaction("pass"):
            editor.rewire(call, (*call.args[:3], (row,)))

    def test_only_elementwise_calls_take_it_that_a_size_is_not_one(self) -> None:
        """A dim of one element is squeezed, and one of more is not: the result has no shape for all sizes."""
        text = """program(1)
s0 = symbol(3, 9)

def forward(x: "f32[s0 - 2, 3]", y: "f32[s0]"):
    a = aten.add.Tensor(x, x)
    return a, y

run("forward", s0=6, x=zeros(), y=zeros())
"""
        editor = GraphEditor(build(parse_program(text))["forward"])
        (add,) = calls(editor.program, ATEN.add.Tensor)
        output = editor.graph.output_node()
        made = editor.call(ATEN.neg.default, (add,), before=output)
        assert described(made.meta["val"].shape) == described(add.meta["val"].shape)
        for target, args in ((ATEN.squeeze_copy.dim, (add, 0)), (ATEN.squeeze_copy.default, (add,))):
            with pytest.raises(ModelError, match="EK111"):
                editor.call(target, args, before=output)

    def test_a_call_that_would_fix_a_size_is_rejected(self) -> None:
        """Adding a tensor of 4 rows would make the number of rows 4 in every copy of the program."""
        editor = GraphEditor(sample("sizes"))
        facts, before = ShapeFacts(editor), exact(editor.program)
        y = node(editor.program, "y")
        constant = editor.add_constant(torch.ones(4, 4), name="c")
        with pytest.raises(ModelError) as caught:
            editor.call(ATEN.add.Tensor, (y, constant), before=editor.graph.output_node())
        assert caught.value.code == "EK111"
        assert "it would hold for some sizes only: Eq(" in str(caught.value)
        assert "Guard attempted" not in str(caught.value)
        assert facts.now() == facts.before
        with pytest.raises(ModelError), editor.transaction("pass"):
            editor.rewire(calls(editor.program, ATEN.mul.Tensor)[0], (y, constant))
        assert facts.now() == facts.before
        editor.remove_input(constant)
        after = exact(editor.program)
        assert [after[part] == before[part] for part in ("meta", "signature")] == [True, True]

    def test_comparing_values_adds_none(self) -> None:
        editor = GraphEditor(sample("sizes"))
        facts = ShapeFacts(editor)
        values = [one.meta["val"] for one in editor.graph.nodes if "val" in one.meta]
        for left in values:
            same = [right for right in values if same_value(left, right)]
            assert same == [right for right in values if described(left) == described(right)]
        assert facts.now() == facts.before


# Each with the arguments behind the source, which has sizes (rows, 4), and the sizes of what it returns first.
VIEW_COPIES: dict[str, tuple[Any, tuple[Any, ...], Callable[[Any], tuple[Any, ...]]]] = {
    "permute": (ATEN.permute_copy.default, ([1, 0],), lambda rows: (4, rows)),
    "transpose": (ATEN.transpose_copy.int, (0, 1), lambda rows: (4, rows)),
    "t": (ATEN.t_copy.default, (), lambda rows: (4, rows)),
    "flat": (ATEN.view_copy.default, ([-1],), lambda rows: (4 * rows,)),
    "turned": (ATEN.view_copy.default, ([4, -1],), lambda rows: (4, rows)),
    "halved": (ATEN.view_copy.default, ([-1, 2],), lambda rows: (2 * rows, 2)),
    "expand": (ATEN.expand_copy.default, ([2, -1, -1],), lambda rows: (2, rows, 4)),
    "unsqueeze": (ATEN.unsqueeze_copy.default, (1,), lambda rows: (rows, 1, 4)),
    "squeeze": (ATEN.squeeze_copy.dims, ([1],), lambda rows: (rows, 4)),
    "select": (ATEN.select_copy.int, (1, 2), lambda rows: (rows,)),
    "slice": (ATEN.slice_copy.Tensor, (1, 1, 3), lambda rows: (rows, 2)),
    "narrow": (ATEN.narrow_copy.default, (1, 0, 3), lambda rows: (rows, 3)),
    "split": (ATEN.split_copy.Tensor, (3, 1), lambda rows: (rows, 3)),
    "split_sizes": (ATEN.split_with_sizes_copy.default, ([1, 3], 1), lambda rows: (rows, 1)),
    "unbind": (ATEN.unbind_copy.int, (1,), lambda rows: (rows,)),
    "unfold": (ATEN.unfold_copy.default, (1, 2, 1), lambda rows: (rows, 3, 2)),
    "alias": (ATEN.alias_copy.default, (), lambda rows: (rows, 4)),
    "detach": (ATEN.detach_copy.default, (), lambda rows: (rows, 4)),
}


@pytest.mark.parametrize("name", VIEW_COPIES)
@pytest.mark.parametrize("is_handle", [False, True])
def test_copies_of_views_with_dynamic_sizes(name: str, is_handle: bool) -> None:
    """torch compares dynamic strides to infer these, which would fix sizes; the results are row-major in any case."""
    target, rest, sizes_of = VIEW_COPIES[name]
    editor = GraphEditor(sample("sizes"))
    facts, output = ShapeFacts(editor), editor.graph.output_node()
    with editor.transaction("prepare"):
        copied = editor.call(ATEN.t_copy.default, (node(editor.program, "cat"),), before=output)
        turned = editor.call(ATEN.permute.default, (copied, [1, 0]), before=output)
        assert turned.meta["val"].stride(0) == 1
        made = editor.call(edge_operator(target) if is_handle else target, (turned, *rest), before=output)
    value = made.meta["val"][0] if isinstance(made.meta["val"], list | tuple) else made.meta["val"]
    sizes = sizes_of(turned.meta["val"].shape[0])
    assert described(tuple(value.shape)) == described(sizes)
    assert described(value.stride()) == described(contiguous_stride(sizes))
    assert facts.now() == facts.before


@pytest.mark.parametrize("name", VIEW_COPIES)
def test_copies_of_views_are_row_major_in_torch(name: str) -> None:
    target, rest, sizes_of = VIEW_COPIES[name]
    value = target(torch.ones(4, 7).t(), *rest)
    value = value[0] if isinstance(value, list | tuple) else value
    assert value.shape == sizes_of(7)
    assert value.is_contiguous()


@pytest.mark.parametrize("sizes", [[3, -1], [32], [-1, 0], [-1, -1], [-2, 2], [8, 4]])
def test_views_that_hold_for_some_sizes_only(sizes: list[int]) -> None:
    editor = GraphEditor(sample("sizes"))
    facts, cat = ShapeFacts(editor), node(editor.program, "cat")
    with pytest.raises(ModelError):
        editor.call(ops.edge.aten.view_copy.default, (cat, sizes), before=editor.graph.output_node())
    assert facts.now() == facts.before


class TestDataDependentSizes:
    @pytest.fixture
    def editor(self) -> GraphEditor:
        return GraphEditor(sample("data"))

    def symbols(self, editor: GraphEditor) -> dict[str, str]:
        return {
            name: str(node(editor.program, name).meta["val"].shape[0]) for name in ("nonzero", "masked_select", "ones")
        }

    def test_they_stay_when_their_operator_is_run_again(self, editor: GraphEditor) -> None:
        before, symbols = recorded(editor.program), self.symbols(editor)
        with editor.transaction("pass") as transaction:
            for one in editor.graph.nodes:
                if one.op == "call_function":
                    editor.refresh(one)
        assert not transaction.modified
        assert recorded(editor.program) == before
        assert len(set(symbols.values())) == 3
        assert self.symbols(editor) == symbols

    def test_edges_keep_them(self, editor: GraphEditor) -> None:
        symbols = self.symbols(editor)
        with editor.transaction("pass"):
            for name in ("nonzero", "masked_select"):
                one = node(editor.program, name)
                editor.retarget(one, getattr(ops.edge.aten, name).default)
        assert self.symbols(editor) == symbols
        assert set(node(editor.program, "nonzero").meta["unbacked_bindings"]) == {
            node(editor.program, "nonzero").meta["val"].shape[0].node.expr
        }

    def test_the_rest_of_the_value_follows(self, editor: GraphEditor) -> None:
        """Another dtype in, another dtype out, the same number of rows."""
        symbols = self.symbols(editor)
        with editor.transaction("pass"), editor.fake_mode:
            editor.set_value(node(editor.program, "x"), torch.empty(3, 4, dtype=torch.float16))
        assert node(editor.program, "masked_select").meta["val"].dtype is torch.float16
        assert node(editor.program, "mul_3").meta["val"].dtype is torch.float16
        assert self.symbols(editor) == symbols
        assert str(node(editor.program, "mul_3").meta["val"].shape[0]) == symbols["masked_select"]

    def test_a_retarget_can_end_them(self, editor: GraphEditor) -> None:
        nonzero = node(editor.program, "nonzero")
        before = exact(editor.program)
        with suppress(PlannedError), editor.transaction("pass"):
            editor.retarget(nonzero, ATEN.relu.default)
            editor.propagate()
            assert nonzero.meta["val"].shape == (3, 4)
            assert not nonzero.meta["unbacked_bindings"]
            assert node(editor.program, "add_5").meta["val"].shape == (3, 4)
            fail()
        assert exact(editor.program) == before

    def test_new_calls_say_which_they_introduce(self, editor: GraphEditor) -> None:
        relu, output = node(editor.program, "relu"), editor.graph.output_node()
        with editor.transaction("pass"):
            made = editor.call(ATEN.nonzero.default, (relu,), before=output)
            user = editor.call(ATEN.neg.default, (made,), before=output)
        symbol = made.meta["val"].shape[0].node.expr
        assert list(made.meta["unbacked_bindings"]) == [symbol]
        assert "unbacked_bindings" not in user.meta
        assert not editor.fake_mode.shape_env.pending_fresh_unbacked_symbols  # type: ignore[union-attr]
        with editor.transaction("pass"), editor.fake_mode:
            editor.set_value(relu, torch.empty(5, 5, 5))
        assert made.meta["val"].shape[0].node.expr == symbol
        assert user.meta["val"].shape[1] == 3

    def test_a_call_that_takes_a_value_over_takes_its_symbols_over(self, editor: GraphEditor) -> None:
        nonzero = node(editor.program, "nonzero")
        with editor.transaction("pass"):
            other = editor.call(
                ops.edge.aten.nonzero.default, nonzero.args, before=nonzero, origins=nonzero, val=nonzero.meta["val"]
            )
            editor.replace(nonzero, other)
            editor.erase(nonzero)
        assert set(other.meta["unbacked_bindings"]) == {other.meta["val"].shape[0].node.expr}

    def test_symbols_of_others_in_the_making_are_left_alone(self, editor: GraphEditor) -> None:
        env: Any = editor.fake_mode.shape_env
        pending = env.create_unbacked_symint()
        editor.call(ATEN.nonzero.default, (node(editor.program, "relu"),), before=editor.graph.output_node())
        assert env.pending_fresh_unbacked_symbols == [pending.node.expr]
        env.pending_fresh_unbacked_symbols.clear()


def test_rejected_calls_leave_no_log(editor: GraphEditor, caplog: pytest.LogCaptureFixture) -> None:
    relu = node(editor.program, "relu")
    names = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")
    with caplog.at_level(logging.DEBUG), pytest.raises(ModelError):
        editor.call(ATEN.mm.default, (relu, relu), before=relu.next)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not any(logging.getLogger(name).disabled for name in names)


def test_values_are_told_apart_by_what_decides_them(editor: GraphEditor) -> None:
    """Results are remembered by arguments; arguments that are equal to Python must not be mistaken for each other."""
    relu, output = node(editor.program, "relu"), editor.graph.output_node()

    def dtype_of(target: Any, *args: Any, **kwargs: Any) -> torch.dtype:
        made: Node = editor.call(target, args, kwargs, before=output)
        dtype: torch.dtype = made.meta["val"].dtype
        return dtype

    full = ATEN.full.default
    assert [dtype_of(full, [2], fill) for fill in (1, 1.0, True)] == [torch.int64, torch.float32, torch.bool]
    assert dtype_of(ATEN.sum.default, relu, dtype=torch.float64) is torch.float64
    assert dtype_of(ATEN.sum.default, relu) is torch.float32
    strides = [
        editor.call(ATEN.clone.default, (one,), before=output).meta["val"].stride()
        for one in editor.graph.nodes
        if one.name in ("permute", "permute_1", "relu")
    ]
    assert strides == [(4, 1), (1, 4), (1, 4)]

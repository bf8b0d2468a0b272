"""Merging of equal nodes: what is equal, what is not, and that results stay the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowering import edge_program
from tests.passes.lowering import run as run_graph
from tests.passes.programs import Function, apply, exported, outputs, targets
from torch.export import Dim, ExportedProgram

from exirkit import FoldConstants, MergeEqualNodes, to_edge
from exirkit.ir import GraphEditor
from exirkit.passes import GenerateDebugHandles, MergeReport
from exirkit.runtime_ref import Runtime

X = torch.randn(3, 4)


class Holder(Function):
    """A function of a module with stored tensors."""

    def __init__(self, function: Any, **tensors: torch.Tensor) -> None:
        super().__init__(function)
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def merged(program: ExportedProgram, *inputs: Any) -> MergeReport:
    """Merge in place, check that results are the same and that a second run does nothing, and return the report."""
    before = outputs(program, *inputs)
    one = MergeEqualNodes()
    apply(one, program)
    program.validate()
    for old, new in zip(before, outputs(program, *inputs), strict=True):
        torch.testing.assert_close(new, old, rtol=0, atol=0, equal_nan=True)
    return one.reports[0]


def calls(function: Any, *inputs: Any) -> MergeReport:
    """Return what is merged in a function."""
    return merged(exported(function, *inputs), *inputs)


def test_equal_calls_become_one() -> None:
    program = exported(lambda x: torch.relu(x) + torch.relu(x), X)
    report = merged(program, X)
    assert report.calls == (("relu_1", "relu"),)
    assert targets(program) == ["aten.relu.default", "aten.add.Tensor"]


def test_equality_goes_on_to_what_comes_after() -> None:
    program = exported(lambda x: torch.exp(torch.relu(x)) - torch.exp(torch.relu(x)) * 2, X)
    assert len(merged(program, X).calls) == 2
    assert len(targets(program)) == 4


def _scalars(left: Any, right: Any) -> int:
    """Return how many of two sums with these literals are merged."""

    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ops.aten.add.Scalar(x, left), torch.ops.aten.add.Scalar(x, right)

    return len(calls(model, X).calls)


@pytest.mark.parametrize("scalar", [0, 1, 1.5, -0.0, math.nan, math.inf, True, 1 + 2j])
def test_equal_scalars(scalar: Any) -> None:
    assert _scalars(scalar, scalar) == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, 1.0), (1, True), (1.0, True), (0, False), (0.0, -0.0), (1, 2), (1.0, 1 + 0j), (0j, -0j), (math.nan, math.inf)],
)
def test_scalars_that_differ(left: Any, right: Any) -> None:
    assert _scalars(left, right) == 0
    assert _scalars(right, left) == 0


def test_defaults_may_be_written_or_not() -> None:
    add = torch.ops.aten.add.Tensor
    program = exported(lambda x: tuple(add(x, x) for _ in range(4)), X)
    # Tracing drops what equals a default, so it is put back.
    for node, alpha in zip(program.graph.find_nodes(op="call_function", target=add), (None, 1, 1.0, 2), strict=True):
        node.kwargs = {} if alpha is None else {"alpha": alpha}
    assert merged(program, X).calls == (("add_1", "add"),)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda x: x.to(torch.float64), lambda x: x.to(torch.float16)),
        (
            lambda x: x.view(1, 1, 3, 4).clone(memory_format=torch.channels_last),
            lambda x: x.view(1, 1, 3, 4).clone(memory_format=torch.contiguous_format),
        ),
        (lambda x: x.sum(0), lambda x: x.sum(0, keepdim=True)),
        (lambda x: x.sum(0), lambda x: x.sum(1)),
        (lambda x: torch.full((2,), 1.0), lambda x: torch.full((2,), 1.0, dtype=torch.float64)),
        (torch.relu, torch.neg),
        (lambda x: x - x.t().t(), lambda x: x.t().t() - x),
    ],
)
def test_arguments_that_differ(left: Any, right: Any) -> None:
    program = exported(lambda x: (left(x), right(x)), X)
    merged(program, X)
    first, second = program.graph.output_node().args[0]
    assert first is not second


def test_random_numbers_stay() -> None:
    program = exported(lambda x: torch.rand_like(x) + torch.rand_like(x), X)
    assert not apply(MergeEqualNodes(), program).modified


def test_sizes_that_depend_on_data_stay() -> None:
    program = exported(lambda x: (x.nonzero().sum(), x.nonzero() + 1), X)
    assert merged(program, X).calls == ()


def test_control_flow_stays() -> None:
    def model(x: torch.Tensor) -> Any:
        one = torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))
        two = torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))
        return one + two

    program = exported(model, X)
    assert len(merged(program, X).calls) == 2
    assert len([name for name in targets(program) if "cond" in name]) == 2


def test_nothing_is_merged_across_a_write() -> None:
    def model(x: torch.Tensor) -> Any:
        y = x * 2
        z = x * 2
        first = y.sum()
        y.add_(1)
        second = y.sum()
        y.view(12).mul_(2)
        return first, second, y.sum(), z, z * 3, x.sum(), x.sum()

    # Only what has nothing to do with `y`.
    assert calls(model, X).calls == (("sum_5", "sum_4"),)


def test_symbolic_sizes() -> None:
    class Sized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.new_zeros(x.shape[0] * 2), x.new_zeros(x.shape[0] * 2), x.view(-1) + x.shape[0]

    program = exported(Sized(), X, dynamic_shapes={"x": {0: Dim("n", min=2, max=9)}})
    inputs = (torch.randn(7, 4),)
    report = merged(program, *inputs)
    assert "new_zeros_1" in dict(report.calls)
    assert len(targets(program)) <= 6


def test_empty_tensors() -> None:
    program = exported(lambda x: torch.cat([x[:0] * 2, x[:0] * 2, x]), X)
    assert len(merged(program, X).calls) == 2


def test_equal_constants_become_one() -> None:
    tensors = {
        "a": torch.arange(4.0),
        "b": torch.arange(4.0),
        "c": torch.arange(4),
        "d": torch.arange(4.0).view(1, 4),
        "e": torch.tensor([0.0, 1.0, 2.0, math.nan]),
        "f": torch.tensor([0.0, 1.0, 2.0, math.nan]),
        "g": torch.tensor([-0.0, 1.0, 2.0, 3.0]),
        "h": torch.zeros(0),
        "i": torch.zeros(0),
    }

    def model(m: Any, x: torch.Tensor) -> Any:
        total = x
        for name in "abcdefg":
            total = total + getattr(m, name)
        return total, m.h.sum() + m.i.sum()

    program = exported(Holder(model, **tensors), X)
    report = merged(program, X)
    assert report.constants == (("b_b", "b_a"), ("b_f", "b_e"), ("b_i", "b_h"))
    assert sorted(program.state_dict) == ["a", "c", "d", "e", "g", "h"]


def test_large_constants_that_differ_in_the_middle() -> None:
    a, b, c = torch.zeros(1000), torch.zeros(1000), torch.zeros(1000)
    b[500] = 1
    program = exported(Holder(lambda m, x: x.sum() + m.a + m.b + m.c, a=a, b=b, c=c), X)
    assert merged(program, X).constants == (("b_c", "b_a"),)


def test_parameters_are_not_merged_with_buffers() -> None:
    model = Holder(lambda m, x: x + m.a + m.w, a=torch.ones(4))
    model.w = torch.nn.Parameter(torch.ones(4))
    assert merged(exported(model, X), X).constants == ()


@pytest.mark.parametrize("lower", [False, True])
def test_buffers_that_are_written_are_not_merged(lower: bool) -> None:
    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.a.add_(1)
        return x + m.a + m.b

    program = (edge_program if lower else exported)(Holder(model, a=torch.zeros(4), b=torch.zeros(4)), X)
    one = MergeEqualNodes()
    apply(one, program)
    assert one.reports[0].constants == ()


class Counts(torch.nn.Module):
    """Writes to two buffers what it also returns."""

    first: torch.Tensor
    second: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros(3, 4))
        self.register_buffer("second", torch.zeros(3, 4))

    def forward(self, x: torch.Tensor) -> Any:
        old = self.first * 2
        self.first.copy_(torch.relu(x) + self.first)
        self.second.copy_(torch.neg(x))
        return old, torch.relu(x), torch.neg(x), old + self.first * 2, torch.relu(x) + 1


def test_results_that_are_written_back() -> None:
    program = edge_program(Counts(), X)
    edge = to_edge(exported(Counts(), X))
    one = MergeEqualNodes()
    changed = edge.transform([one])
    assert one.report is not None
    assert len(one.report.calls) == 2
    kinds = {spec.kind.name for spec in changed.exported_program().graph_signature.output_specs}
    assert kinds == {"BUFFER_MUTATION", "USER_OUTPUT"}
    methods = [
        Runtime.get().load_program(each.to_executorch().buffer).load_method("forward") for each in (edge, changed)
    ]
    state = {name: tensor.clone() for name, tensor in program.state_dict.items()}
    for x in (X, X + 1, -X):
        plain, better = (method.execute([x]) for method in methods)
        for left, right in zip(plain, better, strict=True):
            torch.testing.assert_close(left, right, rtol=0, atol=0)
    assert run_graph(program, [X], state)


def test_one_value_may_be_returned_twice() -> None:
    model = Holder(lambda m, x: (torch.relu(x), torch.relu(x), m.a, m.b), a=torch.ones(2), b=torch.ones(2))
    edge = to_edge(exported(model, X))
    one = MergeEqualNodes()
    changed = edge.transform([one])
    assert one.report is not None
    assert (len(one.report.calls), len(one.report.constants)) == (1, 1)
    program = Runtime.get().load_program(changed.to_executorch().buffer)
    for got, wanted in zip(
        program.load_method("forward").execute([X]), outputs(edge.exported_program(), X), strict=True
    ):
        torch.testing.assert_close(got, wanted)


def test_provenance_is_united() -> None:
    program = exported(lambda x: torch.relu(x) + torch.relu(x) * torch.relu(x), X)
    GenerateDebugHandles().run(GraphEditor(program))
    relus = program.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    handles = tuple(node.meta["debug_handle"] for node in relus)
    origins = [origin for node in relus for origin in node.meta.get("from_node", ())]
    merged(program, X)
    assert relus[0].meta["debug_handle"] == handles
    assert relus[0].meta.get("from_node", []) == list(dict.fromkeys(origins))


def test_more_can_be_folded_after_merging() -> None:
    program = edge_program(Holder(lambda m, x: (x @ m.w.t(), x * 2 @ m.w.t()), w=torch.randn(4, 4)), X)
    assert not FoldConstants().run(GraphEditor(program)).modified
    merged(program, X)
    assert FoldConstants().run(GraphEditor(program)).modified


def test_many_equal_nodes_take_no_time() -> None:
    program = exported(lambda x: sum(torch.relu(x) for _ in range(200)), X)
    report = MergeEqualNodes().run(GraphEditor(program))
    assert report.erased == 199
    assert report.seconds < 3


_OPS = (torch.relu, torch.neg, lambda t: t + 1, lambda t: t + 1.0, lambda t: t * 2, lambda t: t.t().t())


@settings(max_examples=12)
@given(
    steps=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=20),
    writes=st.booleans(),
    lower=st.booleans(),
)
def test_random_programs(steps: list[tuple[int, int, int]], writes: bool, lower: bool) -> None:
    def model(m: Any, x: torch.Tensor) -> Any:
        values = [x, m.a, m.b, m.state * 1]
        for step, (op, left, right) in enumerate(steps):
            first, second = values[left % len(values)], values[right % len(values)]
            values.append(_OPS[op](first) if op < len(_OPS) else (torch.add, torch.mul)[op - len(_OPS)](first, second))
            if writes and step % 5 == 2:
                m.state.add_(values[-1].sum())
                values.append(m.state * 1)
        return tuple(values[4:])

    tensors = {name: torch.ones(3, 4) for name in ("a", "b", "state")}
    program = (edge_program if lower else exported)(Holder(model, **tensors), X)
    state = [{name: tensor.clone() for name, tensor in program.state_dict.items()} for _ in range(2)]
    before = [run_graph(program, [x], state[0]) for x in (X, -X)]
    MergeEqualNodes().run(GraphEditor(program))
    program.graph.lint()
    after = [run_graph(program, [x], state[1]) for x in (X, -X)]
    torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)
    assert not MergeEqualNodes().run(GraphEditor(program)).modified

"""Folding of constants: what is folded, what is not, what it costs, and that results stay the same."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowering import edge_program
from tests.passes.programs import Function, apply, exported, outputs, targets
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from exirkit import FoldConstants, to_edge
from exirkit.ir import GraphEditor, UsageError
from exirkit.passes import FoldReport
from exirkit.runtime_ref import Runtime

X = torch.randn(4, 4)


class Holder(Function):
    """A function of a module with two weights and a buffer."""

    b: torch.Tensor

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self.w = torch.nn.Parameter(torch.randn(4, 4))
        self.v = torch.nn.Parameter(torch.randn(4, 4))
        self.register_buffer("b", torch.arange(4.0))
        self.register_buffer("state", torch.zeros(4))

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def stored(program: ExportedProgram) -> list[str]:
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    return [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind in kinds]


def folded(program: ExportedProgram, *inputs: Any, **options: Any) -> FoldReport:
    """Fold in place, check that results are the same and that a second run does nothing, and return the report."""
    before = outputs(program, *inputs)
    one = FoldConstants(**options)
    apply(one, program)
    program.validate()
    for old, new in zip(before, outputs(program, *inputs), strict=True):
        torch.testing.assert_close(new, old, rtol=0, atol=0, equal_nan=True)
    report = one.reports[0]
    if (budget := one.byte_budget) is not None:
        assert report.nbytes_after - report.nbytes_before <= budget
    return report


def aten(function: Any, *inputs: Any, **options: Any) -> ExportedProgram:
    return exported(Holder(function), *inputs, **options)


def test_a_permuted_weight_replaces_the_weight() -> None:
    program = aten(lambda m, x: x @ m.w.t() + m.b, X)
    report = folded(program, X)
    assert report.folded == ("t",)
    assert report.nbytes_before == report.nbytes_after
    assert targets(program) == ["aten.matmul.default", "aten.add.Tensor"]
    assert "p_w" not in stored(program)


@pytest.mark.parametrize("second", [lambda m, x: x @ m.w, lambda m, x: m.w.clone().add_(x)])
def test_a_weight_that_is_used_otherwise_is_growth(second: Any) -> None:
    def model(m: Any, x: torch.Tensor) -> Any:
        return x @ m.w.t(), second(m, x)

    report = folded(aten(model, X), X)
    assert report.folded == ()
    assert "t" in report.kept
    assert folded(aten(lambda m, x: (x @ m.w.t(), x @ m.w), X), X, byte_budget=63).folded == ()
    assert folded(aten(lambda m, x: (x @ m.w.t(), x @ m.w), X), X, byte_budget=64).folded == ("t",)
    assert folded(aten(lambda m, x: (x @ m.w.t(), x @ m.w), X), X, byte_budget=None).folded == ("t",)


def test_only_results_of_cones_are_stored() -> None:
    program = aten(lambda m, x: x + (m.w * m.v + m.b).t().exp(), X)
    report = folded(program, X)
    assert report.folded == ("exp",)
    assert targets(program) == ["aten.add.Tensor"]
    assert len([name for name in stored(program) if name.startswith("c_")]) == 1


def test_what_is_shared_is_dropped_when_all_that_comes_from_it_is_stored() -> None:
    program = aten(lambda m, x: (x[:2] @ m.w[:, :2], x @ m.w[:, 2:]), X)
    report = folded(program, X)
    assert len(report.folded) == 2
    assert report.nbytes_before == report.nbytes_after
    assert "p_w" not in stored(program)


def test_one_result_that_grows_does_not_keep_the_others() -> None:
    program = aten(lambda m, x: (x @ m.w.t(), x @ m.v.t(), x @ m.v), X)
    report = folded(program, X)
    assert (report.folded, report.kept) == (("t",), ("t_1",))


def test_savings_pay_for_growth() -> None:
    model = Holder(lambda m, x: (x @ m.v.t(), x @ m.v, x * m.big.sum()))
    model.register_buffer("big", torch.ones(32))
    report = folded(exported(model, X), X)
    assert report.folded == ("t", "sum_1")
    assert report.nbytes_after == report.nbytes_before - 128 + 64 + 4


class Tied(torch.nn.Module):
    """One tensor under two names."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.second = torch.nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def test_tied_weights() -> None:
    grows = exported(Tied(lambda m, x: x @ m.first.weight.t() + x @ m.second.weight), X)
    assert folded(grows, X).folded == ()
    fits = exported(Tied(lambda m, x: x @ m.first.weight.t() + x @ (m.second.weight[:0].t().sum() + x)), X)
    assert len(folded(fits, X, byte_budget=4).folded) == 2
    assert not [name for name in stored(fits) if name.startswith("p_")]


def test_weights_that_share_memory_are_not_lost() -> None:
    model = Holder(lambda m, x: x @ m.w.t() + m.part)
    model.register_buffer("part", model.w.detach()[0])
    assert folded(exported(model, X), X).folded == ("t",)


def test_another_name_of_a_weight_is_the_weight() -> None:
    program = aten(lambda m, x: x @ m.w.detach().view(4, 4) + m.w.t().t()[:, :], X)
    folded(program, X, byte_budget=None)
    assert stored(program).count("p_w") == 1
    assert [name for name in stored(program) if name.startswith("c_")] == []


def test_random_numbers_are_not_folded() -> None:
    program = exported(Holder(lambda m, x: x + torch.rand_like(m.w) + torch.nn.functional.dropout(m.w, 0.5, True)), X)
    one = FoldConstants(None)
    assert not apply(one, program).modified


def test_memory_without_contents_is_not_folded() -> None:
    program = exported(Holder(lambda m, x: x.add(torch.empty_like(m.w).fill_(2.0))), X)
    assert folded(program, X, byte_budget=None).folded == ()


@pytest.mark.parametrize("lower", [False, True])
def test_buffers_that_are_written_are_not_constants(lower: bool) -> None:
    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        shifted = m.state * 2
        m.state.add_(1)
        return x + shifted + m.state.view(1, 4) * 3 + m.b * 2

    program = (edge_program if lower else exported)(Holder(model), X)
    one = FoldConstants()
    apply(one, program)
    assert len(one.reports[0].folded) == 1
    assert one.reports[0].kept == ()


def test_constants_that_are_written_later_stay_computed() -> None:
    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        fresh = m.w * 2
        view = fresh.view(16)
        view.add_(x.view(16))
        return fresh

    program = aten(model, X)
    report = folded(program, X, byte_budget=None)
    assert report.folded == ()
    for _ in range(2):
        torch.testing.assert_close(outputs(program, X)[0], program.state_dict["w"] * 2 + X)


def test_control_flow_stays_and_its_captures_are_constants() -> None:
    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        scale = m.w * 2
        result: torch.Tensor = torch.cond(x.sum() > 0, lambda y: y + scale, lambda y: y - scale, (x,))
        return result

    program = aten(model, X)
    assert folded(program, X).folded == ("mul",)
    assert any("cond" in name for name in targets(program))


def test_operators_with_several_results() -> None:
    def model(m: Any, x: torch.Tensor) -> Any:
        first, second = torch.split(m.w, 2)
        values, indices = torch.sort(m.b)
        return x[:2] + first, x[2:] * second, x + values, indices

    program = aten(model, X)
    report = folded(program, X, byte_budget=32)
    assert len(report.folded) == 4
    assert operator.getitem not in [node.target for node in program.graph.nodes]


def test_quantization_is_kept_unless_asked_for() -> None:
    import torch.ao.quantization.fx._decomposed

    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        narrow = torch.ops.quantized_decomposed.quantize_per_tensor(m.w, 0.1, 0, -128, 127, torch.int8)
        wide: torch.Tensor = torch.ops.quantized_decomposed.dequantize_per_tensor(narrow, 0.1, 0, -128, 127, torch.int8)
        return x + wide

    assert folded(aten(model, X), X, byte_budget=None).folded == ()
    report = folded(aten(model, X), X, fold_quantization=True)
    assert len(report.folded) == 1


def test_tensors_from_literals_alone() -> None:
    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(4.0) + m.b * torch.full((4,), 2.0) + torch.ones(400).sum()

    program = aten(model, X)
    assert folded(program, X, byte_budget=None).folded == ("mul",)
    report = folded(aten(model, X), X, byte_budget=None, creation_nbytes=16)
    assert len(report.folded) == 3
    assert folded(aten(model, X), X, creation_nbytes=16).folded == ("mul",)


def test_empty_tensors() -> None:
    program = aten(lambda m, x: torch.cat([x, m.w[:0] * 2]), X)
    assert len(folded(program, X).folded) == 1


def test_dynamic_sizes_around_constants() -> None:
    class Sized(Holder):
        def forward(self, x: torch.Tensor) -> Any:
            return x @ self.w.t() + self.b.expand(x.shape[0], 4) + self.v.sum()

    program = exported(Sized(None), X, dynamic_shapes={"x": {0: Dim("n", min=2, max=9)}})
    assert folded(program, torch.randn(7, 4)).folded == ("t", "sum_1")


def test_what_does_not_compute_stays() -> None:
    program = aten(lambda m, x: x + m.b[m.b.long() + 9].exp() * m.w.neg().sum(), X)
    one = FoldConstants()
    apply(one, program)
    assert one.reports[0].folded == ("add", "sum_1")
    assert one.reports[0].kept == ("index",)


def test_layout_is_kept() -> None:
    model = Holder(lambda m, x: x + m.image.contiguous(memory_format=torch.channels_last) * 2)
    model.register_buffer("image", torch.randn(1, 3, 2, 2))
    x = torch.randn(1, 3, 2, 2).to(memory_format=torch.channels_last)
    program = exported(model, x)
    assert len(folded(program, x).folded) == 1
    assert outputs(program, x)[0].is_contiguous(memory_format=torch.channels_last)


def test_expanded_constants_are_stored_densely() -> None:
    program = aten(lambda m, x: x + m.b.expand(4, 4), X)
    assert folded(program, X).folded == ()
    assert folded(program, X, byte_budget=48).folded == ("expand",)


def test_a_result_may_be_a_constant() -> None:
    edge = to_edge(exported(Holder(lambda m, x: (m.w.t() * 2, x + m.b)), X))
    one = FoldConstants()
    changed = edge.transform([one])
    assert one.report is not None
    assert one.report.nbytes_after <= one.report.nbytes_before
    wanted = outputs(edge.exported_program(), X)
    got = Runtime.get().load_program(changed.to_executorch().buffer).load_method("forward").execute([X])
    for left, right in zip(got, wanted, strict=True):
        torch.testing.assert_close(left, right)


def test_edge_programs_run_the_same_and_are_not_changed_themselves() -> None:
    linear = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    edge = to_edge(exported(linear, X))
    before = str(edge.exported_program().graph), list(edge.exported_program().state_dict)
    one = FoldConstants()
    changed = edge.transform([one])
    assert (str(edge.exported_program().graph), list(edge.exported_program().state_dict)) == before
    assert one.report is not None
    assert len(one.report.folded) == 2
    assert not [name for name in targets(changed.exported_program()) if "permute" in name]
    got = Runtime.get().load_program(changed.to_executorch().buffer).load_method("forward").execute([X])
    torch.testing.assert_close(got[0], linear(X))


def test_apply_leaves_its_argument_alone() -> None:
    program = aten(lambda m, x: x @ m.w.t(), X)
    text = str(program.graph)
    changed, report = FoldConstants().apply(program)
    assert report.modified
    assert str(program.graph) == text != str(changed.graph)
    assert "w" in program.state_dict
    assert "w" not in changed.state_dict


@pytest.mark.parametrize("options", [{"byte_budget": -1}, {"creation_nbytes": -1}])
def test_negative_numbers_of_bytes(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="EK443"):
        FoldConstants(**options)


def test_long_chains_take_no_time() -> None:
    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.w
        for _ in range(300):
            y = y * 0.999
            x = x + y
        return x

    program = aten(model, X)
    report = FoldConstants().run(GraphEditor(program))
    assert report.seconds < 3
    assert not report.modified


_UNARY = (torch.neg, torch.sin, torch.relu, lambda t: t.t(), lambda t: t * 2, lambda t: t[:, :2].repeat(1, 2))
_BINARY = (torch.add, torch.mul, torch.maximum, torch.matmul)


@settings(max_examples=15)
@given(
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12),
    kept=st.lists(st.integers(0, 30), min_size=1, max_size=3),
    budget=st.sampled_from([0, 16, 64, 200, None]),
    lower=st.booleans(),
)
def test_random_programs(steps: list[tuple[int, int, int]], kept: list[int], budget: int | None, lower: bool) -> None:
    def model(m: Any, x: torch.Tensor) -> Any:
        values = [x, m.w, m.v, m.b.expand(4, 4)]
        for op, left, right in steps:
            first, second = values[left % len(values)], values[right % len(values)]
            values.append(_UNARY[op](first) if op < len(_UNARY) else _BINARY[op - len(_UNARY)](first, second))
        return tuple(values[index % len(values)] + 1 for index in kept), values[-1] * x

    program = (edge_program if lower else exported)(Holder(model), X)
    before = outputs(program, X)
    one = FoldConstants(budget)
    one.run(GraphEditor(program))
    program.graph.lint()
    for old, new in zip(before, outputs(program, X), strict=True):
        torch.testing.assert_close(new, old, equal_nan=True)
    report = one.reports[0]
    assert budget is None or report.nbytes_after - report.nbytes_before <= budget
    if budget in (0, None):
        assert not FoldConstants(budget).run(GraphEditor(program)).modified

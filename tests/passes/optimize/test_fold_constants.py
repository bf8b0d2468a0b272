"""Folding of constants, beyond the fixtures: shared memory, what does not compute, time, and random programs."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowering import edge_program
from tests.passes.programs import Holder, apply, exported, outputs
from torch.export import ExportedProgram

from exirkit import ExecutorchBackendConfig, FoldConstants, to_edge
from exirkit.ir import GraphEditor
from exirkit.passes import FoldReport

X = torch.randn(4, 4)


def weights(function: Any, **more: torch.Tensor) -> Holder:
    made = Holder(function, b=torch.arange(4.0), **more)
    made.w, made.v = (torch.nn.Parameter(torch.randn(4, 4)) for _ in range(2))
    return made


def folded(program: ExportedProgram, **options: Any) -> FoldReport:
    """Fold in place, check that results are the same and that a second run does nothing, and return the report."""
    before = outputs(program, X)
    one = FoldConstants(**options)
    apply(one, program)
    program.validate()
    torch.testing.assert_close(outputs(program, X), before, rtol=0, atol=0, equal_nan=True)
    return one.reports[0]


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
    assert folded(grows).folded == ()
    fits = exported(Tied(lambda m, x: x @ m.first.weight.t() + x @ (m.second.weight[:0].t().sum() + x)), X)
    assert len(folded(fits, byte_budget=4).folded) == 2
    assert not [spec for spec in fits.graph_signature.input_specs if spec.arg.name.startswith("p_")]


def test_weights_that_share_memory_are_not_lost() -> None:
    model = weights(lambda m, x: x @ m.w.t() + m.part)
    model.register_buffer("part", torch.as_tensor(model.w).detach()[0])
    assert folded(exported(model, X)).folded == ("t",)


def test_a_copy_in_another_layout_is_another_tensor() -> None:
    made = Holder(lambda m, x: x + m.turned.clone(memory_format=torch.contiguous_format), turned=torch.randn(4, 4).t())
    program = exported(made, X)
    assert folded(program).folded == ("clone",)
    (added,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    assert all(one.meta["val"].is_contiguous() for one in added.all_input_nodes)


def test_tables_that_are_read_at_known_places_are_not_spread() -> None:
    places = torch.randint(8, (64, 64))
    model = Holder(lambda m, x: x + m.table(m.places).permute(2, 0, 1), places=places)
    model.table = torch.nn.Embedding(8, 8)
    program = to_edge(torch.export.export(model, (torch.randn(8, 64, 64),)))
    sizes = [len(program.to_executorch(ExecutorchBackendConfig(optimization_level=level)).buffer) for level in (0, 1)]
    # 130 KB, permuted or not, are more than `fold-constants` may add, so that no rule adds them either.
    assert sizes[1] <= sizes[0]


def test_what_does_not_compute_stays() -> None:
    program = exported(weights(lambda m, x: x + m.b[m.b.long() + 9].exp() * m.w.neg().sum()), X)
    one = FoldConstants()
    apply(one, program)
    assert one.reports[0].folded == ("add", "sum_1")
    assert one.reports[0].kept == ("index",)


def test_long_chains_take_no_time() -> None:
    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.w
        for _ in range(300):
            y = y * 0.999
            x = x + y
        return x

    report = FoldConstants().run(GraphEditor(exported(weights(model), X)))
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

    program = (edge_program if lower else exported)(weights(model), X)
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

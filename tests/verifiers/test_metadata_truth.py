"""Recorded values against what operators make of their arguments, where sizes are dynamic or depend on data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.programs import Function
from tests.verifiers.corruption_programs import call_in
from torch.export import Dim, ExportedProgram

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.ir import functional_variant
from exirkit.verifiers import check_metadata, recorded_values


def exported(function: Any, *inputs: torch.Tensor, dynamic: Any = None) -> ExportedProgram:
    with torch.no_grad():
        return torch.export.export(Function(function), inputs, dynamic_shapes=dynamic, strict=False)


def codes(program: ExportedProgram, **options: bool) -> list[tuple[str, str | None]]:
    return [(one.code, one.location.node) for one in check_metadata(program, **options)]


def test_nothing_is_wrong_with_dynamic_sizes() -> None:
    rows = Dim("rows", min=2, max=9)
    program = exported(
        lambda x, y: (torch.cat([x, y])[1:].view(-1, 2), x.t() @ y), torch.ones(4, 4), torch.ones(4, 4),
        dynamic=(({0: rows}, {0: rows}),),
    )  # fmt: skip
    assert codes(program) == []
    edge = to_edge(program)
    assert codes(edge.exported_program()) == []
    assert codes(edge.to_executorch(ExecutorchBackendConfig()).exported_program(), layouts=True) == []


def test_nothing_is_wrong_with_sizes_that_depend_on_data() -> None:
    program = exported(lambda x: x.nonzero().sum(0) + x.sum().to(torch.int64).item(), torch.ones(3))
    before = [str(node.meta.get("val")) for node in program.graph.nodes]
    assert codes(program) == codes(program) == []
    assert [str(node.meta.get("val")) for node in program.graph.nodes] == before


def test_symbols_of_branches_are_those_of_the_graph_around(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(x: torch.Tensor) -> Any:
        branches = (lambda y: torch.unique(y).sum(), lambda y: y.amax() - 1)
        return torch.unique(x), torch.cond(x.sum() > 0, *branches, (x,))

    program = exported(model, torch.tensor([3.0, 1, 3]))
    # As after tens of thousands of calls: nothing is remembered of those that were found in order.
    monkeypatch.setattr(recorded_values, "_MOST", 1)
    assert [codes(program) for _ in range(3)] == [[], [], []]
    assert [codes(to_edge(program).exported_program()) for _ in range(2)] == [[], []]


def test_a_wrong_number_is_found() -> None:
    program = exported(lambda x: x.new_ones((x.shape[0] + 1,)), torch.ones(3), dynamic=(({0: Dim("n", max=9)},),))
    node = call_in(program.graph_module, "add")
    node.meta["val"] = node.meta["val"] + 1
    assert ("EK316", f"%{node.name}") in codes(program)


def test_what_follows_is_judged_by_what_is_recorded() -> None:
    """One wrong record is found at its node and where it is used, not everywhere behind."""
    program = exported(lambda x: x.relu().sin().cos(), torch.ones(3))
    node = call_in(program.graph_module, "relu")
    with node.meta["val"].fake_mode:
        node.meta["val"] = torch.empty(3, dtype=torch.float64)
    assert codes(program) == [("EK315", "%relu"), ("EK315", "%sin")]


def test_layouts_are_compared_on_demand() -> None:
    program = exported(lambda x: x.relu(), torch.ones(2, 3, 4, 5))
    node = call_in(program.graph_module, "relu")
    with node.meta["val"].fake_mode:
        node.meta["val"] = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert codes(program) == []
    assert codes(program, layouts=True) == [("EK317", "%relu")]


def test_the_layout_that_a_call_names_is_compared_in_every_dialect() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float64, memory_format=torch.channels_last)

    program = to_edge(exported(forward, torch.ones(2, 1, 3, 2))).exported_program()
    assert codes(program) == []
    node = call_in(program.graph_module, "_to_dim_order_copy")
    # The strides of one channel fit both orders.
    for named, found in (([0, 2, 3, 1], []), ([0, 2, 1, 3], [("EK317", f"%{node.name}")])):
        node.kwargs = {**node.kwargs, "dim_order": named}
        assert codes(program) == found


@pytest.mark.parametrize(
    ("out", "functional"),
    [
        ("add.out", "add.Tensor"), ("max.dim_max", "max.dim"), ("view_copy.out", "view_copy.default"),
        ("split_copy.Tensor_out", "split_copy.Tensor"), ("_to_copy.out", "_to_copy.default"),
        ("sum.IntList_out", "sum.dim_IntList"), ("where.self_out", "where.self"), ("full.out", "full.default"),
    ],
)  # fmt: skip
def test_functional_variants(out: str, functional: str) -> None:
    def found(name: str) -> Any:
        base, _, overload = name.partition(".")
        return getattr(getattr(torch.ops.aten, base), overload)

    assert functional_variant(found(out)) is found(functional)

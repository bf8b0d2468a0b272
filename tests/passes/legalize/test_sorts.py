"""Sorting without a kernel that sorts: values and positions as torch gives them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.models.case import EXACT, Function
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs
from torch.export import Dim

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.patterns import read_target
from exirkit.runtime_ref import Runtime

NAN = float("nan")
ODD = torch.tensor([[3.0, NAN, 1, 1, -0.0, 0.0, NAN, torch.inf], [2, 2, 2, NAN, -torch.inf, 1, 3, 3]])


def few_values(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Return numbers among which many are equal."""
    return torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.executorch
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("x", "dim"),
    [
        (ODD, -1),
        (ODD, 0),
        (few_values(5, 7, 3), 1),
        (few_values(57, dtype=torch.uint8), 0),
        (few_values(40, dtype=torch.float16), 0),
        (few_values(5, 9, dtype=torch.bool), 1),
        (few_values(2, 3, 4, 5, dtype=torch.float32).to(memory_format=torch.channels_last), 1),
        (torch.tensor([2**62 + 1, 2**62, 2**62 + 3, -(2**62)]), 0),
        (torch.ones(3, 1), 1),
        (torch.ones(3, 0), 1),
        (torch.tensor(3.0), 0),
    ],
    ids=["nan", "columns", "middle", "uint8", "half", "bool", "channels-last", "great", "one", "none", "number"],
)
def test_stable_sort(x: torch.Tensor, dim: int, descending: bool, official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, positions = torch.sort(x, stable=True, dim=dim, descending=descending)
        return values, positions

    assert_runs(model, [[x]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("dim", [0, 1, 3])
def test_what_is_sorted_keeps_its_layout(dtype: torch.dtype, dim: int, official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *torch.sort(x, dim=dim), torch.sort(-x.int(), dim=dim)[1]

    x = few_values(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last)
    assert_runs(model, [[x]], official_runtime, tolerance=EXACT)
    program = to_edge(torch.export.export(Function(model), (x,), strict=False)).to_executorch()
    found = Runtime.get().load_program(program.buffer).load_method("forward").execute([x])
    assert [one.stride() for one in found] == [one.stride() for one in model(x)]
    assert all(one.is_contiguous(memory_format=torch.channels_last) for one in found)


def test_zeros_of_both_signs_keep_their_places() -> None:
    x = torch.tensor([0.0, -0.0, 0.0, -0.0, -1.0])
    assert_runs(lambda x: tuple(1.0 / one for one in torch.sort(x, stable=True)), [[x]], tolerance=EXACT)


@pytest.mark.executorch
def test_sizes_that_vary(official_runtime: OfficialRuntime) -> None:
    calls = [[few_values(3, size)] for size in (7, 2, 20, 3)]
    shapes = ({1: Dim("n", min=2, max=20)},)
    assert_runs(lambda x: torch.sort(x, stable=True), calls, official_runtime, dynamic_shapes=shapes, tolerance=EXACT)


def test_stable_sorts_stay_stable_before_they_are_legalized() -> None:
    """A delegate or a runtime with kernels of its own sees that equal elements keep their order."""
    x = few_values(3, 40)
    edge = to_edge(torch.export.export(Function(_stable), (x,), strict=False))
    for made, wanted in zip(edge.exported_program().module()(x), _stable(x), strict=True):
        assert torch.equal(made, wanted)
    file = edge.to_executorch(ExecutorchBackendConfig(target="any")).executorch_program
    assert {one.overload for one in file.execution_plan[0].operators if one.name == "aten::sort"} == {"values_stable"}


def _stable(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.argsort(x, dim=1, stable=True), torch.sort(x, stable=True, descending=True)[1]


def operators(model: Callable[..., object], x: torch.Tensor, **config: object) -> set[str]:
    """Return the operators of a lowered program, without overloads."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return model(x)

    program = to_edge(torch.export.export(Model(), (x,), strict=False))
    lowered = program.to_executorch(ExecutorchBackendConfig(**config))  # type: ignore[arg-type]
    return {one.name for one in lowered.executorch_program.execution_plan[0].operators}


def test_values_alone_need_one_call() -> None:
    assert operators(lambda x: torch.sort(x)[0], ODD) == {"aten::topk"}


def test_targets_that_sort_keep_the_operator() -> None:
    target = read_target("official_host")
    registry = target.registry.model_copy(update={"operators": {"aten::sort.values": ()}})  # type: ignore[union-attr]
    sorting = target.model_copy(update={"registry": registry})
    assert "aten::sort" in operators(torch.sort, ODD, target=sorting)
    assert "aten::sort" in operators(torch.sort, ODD, target="any")
    assert "aten::sort" not in operators(torch.sort, ODD)

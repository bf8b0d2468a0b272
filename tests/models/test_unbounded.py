"""Tensors whose sizes have no bound: the reference runtime finds memory and frees it, the official one cannot."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from torch import nn
from torch.export import Dim

import exirkit
from exirkit import ExecutorchBackendConfig, ExecutorchProgramManager
from exirkit.emit import FreeCall, read_program
from exirkit.ir import ModelError, TensorShapeDynamism
from exirkit.passes import DynamicMemoryPlanningMode, MemoryPlanningPass
from exirkit.runtime_ref import Runtime
from exirkit.verifiers import check_memory_plan, check_program

AT_RUN_TIME = DynamicMemoryPlanningMode.SYMBOLIC


class Finding(nn.Module):
    """Sizes of an input, sizes that data decide, views of both, and a branch and a loop over them."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        where = torch.nonzero(x)
        found = x[x > 1] * 2
        total = (found.reshape(-1, 1) + 1).sum()
        chosen = torch.cond(y.sum() > 0, lambda one: one * 2, lambda one: (one + 1) * 3, (found,))
        return where * 2 + 1, total, x.reshape(-1) + y.sum(), chosen, torch.cat([x, x]).sum(0)


def given(rows: int, sign: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.arange(rows * 3.0) % 5 - 1).reshape(rows, 3), torch.ones(2) * sign


CALLS = [given(4), given(100, -1), given(2), given(0), given(300)]


@cache
def edge() -> exirkit.EdgeProgramManager:
    with torch.no_grad():
        program = torch.export.export(Finding(), given(4), dynamic_shapes={"x": {0: Dim("rows")}, "y": None})
    return exirkit.to_edge(program)


@cache
def lowered(level: int = 1, **options: Any) -> ExecutorchProgramManager:
    config = ExecutorchBackendConfig(
        optimization_level=level,
        dynamic_memory_planning_mode=AT_RUN_TIME,
        memory_planning_pass=MemoryPlanningPass(**options),
    )
    return edge().to_executorch(config)


@pytest.mark.parametrize(
    ("level", "options"),
    [(0, {}), (1, {}), (2, {}), (1, {"schedule": True, "in_place": True}), (1, {"alloc_graph_output": False})],
)
def test_as_eager_with_more_and_less(level: int, options: dict[str, Any]) -> None:
    made = lowered(level, **options)
    for knowing in (False, True):
        program = Runtime.get().load_program(
            made.buffer, sanitize=knowing, views=made.view_bases, in_place=options.get("in_place", False)
        )
        method = program.load_method("forward")
        for call in CALLS:
            for mine, eager in zip(method.execute(call), Finding()(*call), strict=True):
                assert torch.equal(mine, eager)


def test_memory_is_counted_and_given_back() -> None:
    method = Runtime.get().load_program(lowered().buffer).load_method("forward")
    assert method.allocated_nbytes == 0
    results = method.execute(given(100))
    returned = sum(one.nbytes for one in results if one.dim())
    # What is left are the results; the sum over rows has a place in an arena.
    assert method.allocated_nbytes == returned - results[-1].nbytes
    assert method.allocated_nbytes < method.peak_allocated_nbytes
    method.execute(given(1000))
    peak = method.peak_allocated_nbytes
    assert peak > 9 * returned
    method.execute(given(2))
    assert method.peak_allocated_nbytes == peak


def test_a_tensor_that_is_freed_too_early_is_missed() -> None:
    file = read_program(lowered().buffer)
    (plan,) = file.program.execution_plan
    (chain,) = plan.chains
    frees = [number for number, one in enumerate(chain.instructions) if isinstance(one.instr_args, FreeCall)]
    assert frees
    first = frees[0]
    steps = list(chain.instructions)
    # One instruction earlier: its last reader finds nothing.
    steps[first - 1], steps[first] = steps[first], steps[first - 1]
    early = plan.model_copy(update={"chains": [chain.model_copy(update={"instructions": steps})]})
    file.program = file.program.model_copy(update={"execution_plan": [early]})
    for knowing in (False, True):
        method = Runtime.get().load_program(file, sanitize=knowing).load_method("forward")
        with pytest.raises(ModelError, match=r"EK652|EK66"):
            method.execute(given(50))


def test_the_dialect_is_right() -> None:
    program = lowered(0).exported_program()
    assert check_program(program, "executorch", debug_handles=True) == []
    assert check_memory_plan(program.graph_module, program.graph_signature) == []
    kinds = {value.val.shape_dynamism for value in _tensors(lowered(0))}
    assert TensorShapeDynamism.DYNAMIC_UNBOUND in kinds


def _tensors(made: ExecutorchProgramManager) -> list[Any]:
    (plan,) = read_program(made.buffer).program.execution_plan
    return [value for value in plan.values if hasattr(value.val, "shape_dynamism")]


def test_without_the_option_they_are_rejected() -> None:
    with pytest.raises(ModelError, match="unlike the official one") as caught:
        edge().to_executorch()
    assert {one.code for one in caught.value.diagnostics} == {"EK433", "EK434"}


@pytest.mark.executorch
def test_the_official_runtime_cannot(official_runtime: OfficialRuntime) -> None:
    result = official_runtime.run(lowered().buffer, [list(given(4))])
    assert result.failure is not None
    assert "Fully dynamic tensor shapes not yet supported" in result.failure.text

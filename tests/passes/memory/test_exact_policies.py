"""`planner: exact` of a memory policy with two pools, from the model to both runtimes."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime

import exirkit
from exirkit import ExecutorchBackendConfig, MemoryPlanningPass
from exirkit.ir import TensorSpec
from exirkit.passes import PlannedValue, PlanningProblem, Pool, parse_memory_policy, solve_planning_problem
from exirkit.program import ExecutorchProgramManager
from exirkit.runtime_ref import Runtime

pytestmark = pytest.mark.filterwarnings("default:the exact planner is not tested")


@pytest.fixture(scope="module", autouse=True)
def _solver() -> None:
    if importlib.util.find_spec("ortools") is None:
        warnings.warn("the exact planner is not tested: OR-tools is not installed (exirkit[planning])", stacklevel=1)
        pytest.skip("the exact planner is not tested: OR-tools is not installed (exirkit[planning])")


# Bytes of values, and the first and last step that needs them: where the portfolio has to send one to another pool, a
# pool of 272 bytes, which is what is live at once, holds them all.
ROWS = (
    (48, 3, 4), (64, 1, 3), (48, 0, 3), (48, 2, 4), (16, 3, 4), (48, 0, 2), (64, 4, 4), (48, 0, 0), (48, 2, 3),
    (16, 4, 4), (80, 4, 4), (48, 0, 1),
)  # fmt: skip


class Steps(torch.nn.Module):
    """Makes values of these sizes at their first steps, and reads them at their last ones; sums are doubles."""

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        values: dict[int, torch.Tensor] = {}
        total = torch.zeros(1, dtype=torch.float64)
        for step in range(5):
            for place, (_, first, _) in enumerate(ROWS):
                if first == step:
                    values[place] = inputs[place] * (place + 2)
            for place, (_, _, last) in enumerate(ROWS):
                if last == step:
                    total = total * 3 + values.pop(place).sum(dtype=torch.float64)
        return total


class Branches(torch.nn.Module):
    """Convolutions of odd sizes side by side, whose results meet."""

    def __init__(self) -> None:
        super().__init__()
        self.left = torch.nn.Conv2d(3, 7, 3, padding=1)
        self.right = torch.nn.Conv2d(3, 5, 5, padding=2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = self.left(x).relu(), self.right(x)
        narrow = torch.nn.functional.max_pool2d(left, 2)
        return torch.cat([narrow * 2, right.sigmoid(), narrow[:, :2].sin()], 1).sum((2, 3)) + right.mean()


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[torch.Tensor, ...], int]] = {
    "steps": (Steps, tuple(torch.arange(1.0, rows // 4 + 1) for rows, _, _ in ROWS), 272),
    "branches": (Branches, (torch.linspace(-1, 1, 3 * 12 * 10).view(1, 3, 12, 10),), 3456),
}


def policy(planner: str, limit: int) -> Any:
    return parse_memory_policy(
        f"policy: 1\nplanner: {planner}\npools: [{{name: fast, limit: {limit}}}, {{name: slow}}]\n"
        "inputs: provided\nrules: [{dtype: f64, pool: slow}]\n"
    )


def lowered(name: str, planner: str) -> ExecutorchProgramManager:
    make, inputs, limit = MODELS[name]
    torch.manual_seed(0)
    edge = exirkit.to_edge(torch.export.export(make().eval(), inputs))
    planning = MemoryPlanningPass(policy=policy(planner, limit))
    # The order of the model is the order of the plan.
    config = ExecutorchBackendConfig(memory_planning_pass=planning, optimization_level=0)
    return edge.to_executorch(config)


def problem_of(manager: ExecutorchProgramManager) -> PlanningProblem:
    """Return what was to be placed, with the pools that were chosen."""
    specs: dict[TensorSpec, None] = {}
    for node in manager.exported_program().graph.nodes:
        found = node.meta.get("spec")
        for spec in found if isinstance(found, (list, tuple)) else [found]:
            if isinstance(spec, TensorSpec) and spec.mem_offset is not None and spec.storage_base is None:
                specs[spec] = None
    values = [
        PlannedValue(spec.nbytes(), spec.lifetime[0] or 0, spec.lifetime[1] or 0, pool=spec.mem_id or 0)
        for spec in specs
    ]
    return PlanningProblem(values, dict.fromkeys((1, 2), Pool(alignment=16)))


@pytest.mark.executorch
@pytest.mark.parametrize("name", MODELS)
def test_each_pool_is_proved_to_be_smallest_and_right(name: str, official_runtime: OfficialRuntime) -> None:
    make, inputs, limit = MODELS[name]
    manager = lowered(name, "exact")
    sizes = manager.executorch_program.execution_plan[0].non_const_buffer_sizes
    assert 0 < sizes[1] <= limit
    assert sizes[2] > 0
    result = solve_planning_problem(problem_of(manager), "exact")
    assert result.is_proved_smallest
    assert result.pool_nbytes == {1: sizes[1], 2: sizes[2]}
    torch.manual_seed(0)
    expected = make().eval()(*inputs)
    (got,) = Runtime.get().load_program(manager.buffer, sanitize=True).load_method("forward").execute(list(inputs))
    torch.testing.assert_close(got, expected)
    ((theirs,),) = official_runtime.run(manager.buffer, [list(inputs)]).unwrap()
    torch.testing.assert_close(theirs, expected)


def test_a_pool_holds_what_the_portfolio_finds_no_place_for() -> None:
    inside = {}
    for planner in ("portfolio", "exact"):
        values = problem_of(lowered("steps", planner)).values
        inside[planner] = sorted(value.nbytes for value in values if value.pool == 1)
    assert inside["exact"] == sorted(nbytes for nbytes, _, _ in ROWS)
    assert len(inside["portfolio"]) < len(ROWS)

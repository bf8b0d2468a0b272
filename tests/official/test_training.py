"""Programs that return gradients train in the official training module as their models do in torch."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from tests.official.oracle import ROOT
from tests.official.training_worker import MODELS
from tests.thoroughness import TRIES_ALL
from torch.export.experimental import _export_forward_backward

from exirkit import ExecutorchBackendConfig, to_edge

pytestmark = [pytest.mark.executorch]


def answers(*names: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.official.training_worker", *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]


def check(found: list[dict[str, Any]]) -> None:
    for one in found:
        if "level" in one:
            assert one["ours"] == pytest.approx(one["torch"], abs=1e-5), one["name"]
            assert one["torch"][-1] < one["torch"][0]
            assert max(one["runtimes"]) < 1e-5
            assert one["external"] == pytest.approx([one["torch"][0]] * 2, abs=1e-5)


# torch's joint export asks for tree specs in a way that torch deprecates.
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_result_is_not_the_parameter_that_is_trained(level: int) -> None:
    class ReturnsItsWeight(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            seen = self.weight.detach()
            return (self.weight * x).sum(), seen, seen.view(3, 1), seen.unsqueeze(0).transpose(0, 1), seen[:2]

    joint = _export_forward_backward(torch.export.export(ReturnsItsWeight(), (torch.ones(3),)))
    lowered = to_edge(joint).to_executorch(ExecutorchBackendConfig(optimization_level=level))
    outputs = lowered.executorch_program.execution_plan[0].outputs
    # Loss, weight, three views of it, gradient, and the parameter, which a trainer changes in place.
    assert len(set(outputs)) == len(outputs) == 7
    plan = lowered.executorch_program.execution_plan[0]
    tensors: list[Any] = [plan.values[at].val for at in outputs]
    spans = [
        (one.allocation_info.memory_id, one.allocation_info.memory_offset_low, 4 * math.prod(one.sizes))
        for one in tensors
    ]
    arena, start, nbytes = spans[-1]
    assert not any(one == arena and at < start + nbytes and start < at + size for one, at, size in spans[:-1])


def test_a_perceptron_is_trained() -> None:
    found = answers("mlp")
    assert [one.get("level") for one in found] == [0, 1, 2, None]
    check(found)
    assert found[-1]["official"] == pytest.approx(found[0]["ours"], abs=1e-5)


def test_all_models_are_trained() -> None:
    others = [name for name in MODELS if name != "mlp"][:: 1 if TRIES_ALL else 3]
    found = answers(*others)
    assert sorted({one["name"] for one in found}) == sorted(others)
    assert len(found) == 4 * len(others)
    check(found)

"""Values of instructions against eager PyTorch, and which step of the lowering is blamed for a difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch._higher_order_ops import while_loop

import exirkit.fuzz.comparison.eager_gap
from exirkit.fuzz import LoweringChoices, MethodGap, TracedRuntime, gap_to_eager, lower_in_steps, with_debug_handles
from exirkit.fuzz.comparison.traced_runs import trace_runs
from exirkit.passes import ExecutorchBackendConfig
from exirkit.patterns import parse_book

BOTH = [TracedRuntime.REFERENCE, pytest.param(TracedRuntime.OFFICIAL, marks=pytest.mark.executorch)]


def gap(model: torch.nn.Module, inputs: tuple[Any, ...], *, rules: str = "", **options: Any) -> MethodGap:
    program = with_debug_handles(torch.export.export(model.eval(), inputs, strict=False))
    book = parse_book(f"rulebook: 1\nrules:\n{rules}", "own.yaml").rules if rules else ()
    level = ExecutorchBackendConfig(optimization_level=options.pop("level", 1))
    steps = lower_in_steps({"forward": program}, LoweringChoices(rules=tuple(book), config=level))
    return gap_to_eager("forward", steps, list(inputs), **options)


class SmallBranch(torch.nn.Module):
    """A branch whose difference does not reach the output."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(7, 5), torch.nn.Linear(5, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(torch.nn.functional.gelu(self.first(x))) * 1e-6


GELU = """- id: wrong.gelu
  doc: An approximation.
  vars: {x: "f32 [*S]"}
  match: return aten.gelu.default(x)
  replace: return aten.gelu.default(x, approximate='tanh')
"""


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_difference_that_does_not_reach_the_output(level: int) -> None:
    torch.manual_seed(0)
    found = gap(SmallBranch(), (torch.randn(3, 7) * 2,), rules=GELU, level=level)
    assert not any(one.is_bad for one in found.outputs)
    assert found.wrong[0].operator == "gelu.default"
    assert found.step is not None
    assert found.step.application is not None
    assert (found.step.application.rule, found.followed) == ("wrong.gelu", "gelu")
    assert gap(SmallBranch(), (torch.randn(3, 7) * 2,), level=level).ok


class Hides(torch.nn.Module):
    """A difference that is multiplied by zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        return torch.maximum(y, x + 100) - y.sign() * 0


RELU = """- id: wrong.relu
  doc: The sign is lost.
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(x)
  replace: return aten.abs.default(x)
"""


@pytest.mark.parametrize("runtime", BOTH)
def test_an_operand_that_no_result_shows(runtime: TracedRuntime) -> None:
    found = gap(Hides(), (torch.linspace(-1, 1, 11),), rules=RELU, level=0, runtime=runtime)
    assert not any(one.is_bad for one in found.outputs)
    assert found.step is not None
    assert found.step.application is not None
    assert (found.step.application.rule, found.followed) == ("wrong.relu", "relu")


class Loop(torch.nn.Module):
    def forward(self, n: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def goes_on(i: torch.Tensor, y: torch.Tensor, n: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return i < n

        def body(i: torch.Tensor, y: torch.Tensor, n: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return i + 1, torch.tanh(y) + x, n.clone(), x.clone()

        start = (torch.zeros((), dtype=torch.int64), x.clone(), n.clone(), x.clone())
        made = while_loop(goes_on, body, start)
        return made[0], torch.exp(made[1])


@pytest.mark.parametrize("runtime", BOTH)
def test_loops_and_values_after_them(runtime: TracedRuntime) -> None:
    found = gap(Loop(), (torch.tensor(40), torch.randn(64)), runtime=runtime)
    assert found.ok, found.wrong
    assert "exp.default" in {one.operator for one in found.instructions}


class State(torch.nn.Module):
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        self.total.add_(x)
        return self.total * 2, x.shape[0]


def test_state_and_numbers() -> None:
    found = gap(State(), (torch.arange(5.0),))
    assert found.ok, (found.wrong, found.outputs)
    assert found.instructions


def test_a_kernel_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of the lowering is right, and the runtime computes something else."""

    def disturbed(data: bytes, method: str, inputs: Sequence[Any], **options: Any) -> Any:
        return trace_runs(data, method, [one * 1.01 for one in inputs], **options)

    monkeypatch.setattr(exirkit.fuzz.comparison.eager_gap, "trace_runs", disturbed)
    found = gap(SmallBranch(), (torch.randn(3, 7),))
    assert not found.ok
    assert found.wrong
    assert (found.step, found.followed) == (None, None)

"""What the official runtime makes of shared values, of state, and of outputs that are something else as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.emit.emission import emitted, file_of, planned_program
from tests.official.oracle import OfficialRuntime
from torch.export import Dim

from exirkit.emit import emit_program

pytestmark = [pytest.mark.executorch]

SIDES = [(True, True), (False, True), (True, False), (False, False)]
IDS = ["planned", "inputs unplanned", "outputs unplanned", "both unplanned"]


def check(
    runtime: OfficialRuntime,
    model: torch.nn.Module,
    steps: Sequence[tuple[Any, ...]],
    alloc: tuple[bool, bool] = (True, True),
    **options: Any,
) -> None:
    """Run consecutive calls on the runtime and in eager mode, and compare all results."""
    example = [one.clone() if isinstance(one, torch.Tensor) else one for one in steps[0]]
    file = file_of(emitted(model, *example, alloc=alloc, **options))
    answers = runtime.run(file, [list(step) for step in steps]).unwrap()
    with torch.no_grad():
        for step, ours in zip(steps, answers, strict=True):
            theirs = torch.utils._pytree.tree_leaves(model(*(one.clone() for one in step)))
            for left, right in zip(ours, theirs, strict=True):
                torch.testing.assert_close(left, right)


class Everything(torch.nn.Module):
    """Returns an input, a constant, a result twice, views of all of these, and old and new state."""

    state: torch.Tensor
    zeros: torch.Tensor
    fixed: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.tensor([1.0, -0.0, 3.0]))
        self.register_buffer("zeros", torch.zeros(3))
        self.register_buffer("fixed", torch.tensor([7.0, 8.0, 9.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2.0
        old = self.state.clone()
        self.state += x
        self.zeros += 1.0
        views = (x.view(3, 1), self.fixed.view(1, 3), y.view(3, 1), y.unsqueeze(0))
        return x, self.fixed, y, y, *views, old, self.state.clone(), 1.0 / old, self.zeros * 1.0


@pytest.mark.parametrize("alloc", SIDES, ids=IDS)
def test_outputs_that_are_inputs_constants_state_and_each_other(
    alloc: tuple[bool, bool], official_runtime: OfficialRuntime
) -> None:
    steps = [(torch.tensor([1.0, 2.0, 3.0]) * step,) for step in (1.0, 10.0, -5.0)]
    check(official_runtime, Everything(), steps, alloc)


class InnerViews(torch.nn.Module):
    """Views of an input and of an output, of which only what is computed from them is returned."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2.0
        return y, y.view(6) + 1.0, x.view(3, 2) @ torch.ones(2, 1), y.unsqueeze(0).view(3, 2).sum(0)


@pytest.mark.parametrize("alloc", SIDES, ids=IDS)
def test_views_of_what_the_caller_places(alloc: tuple[bool, bool], official_runtime: OfficialRuntime) -> None:
    check(official_runtime, InnerViews(), [(torch.rand(2, 3),)] * 2, alloc)


class Swap(torch.nn.Module):
    first: torch.Tensor
    second: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.tensor([1.0]))
        self.register_buffer("second", torch.tensor([2.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old = self.first.clone()
        self.first.copy_(self.second)
        self.second.copy_(old)
        return self.first + x, old


def test_swapped_buffers(official_runtime: OfficialRuntime) -> None:
    check(official_runtime, Swap(), [(torch.zeros(1),)] * 3)


class Sizes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, columns = x.shape
        flat = (x * 2.0).view(rows * columns)
        third = torch.arange(rows * columns // 3) - (rows - columns) % 5
        return flat + (rows % 3), third, x.unsqueeze(0) * 1.0, x.view(columns, rows) + max(rows, columns)


@pytest.mark.parametrize("alloc", SIDES, ids=IDS)
def test_dynamic_sizes(alloc: tuple[bool, bool], official_runtime: OfficialRuntime) -> None:
    shapes = ({0: Dim("rows", min=2, max=12), 1: Dim("columns", min=2, max=9)},)
    steps = [(torch.rand(sizes),) for sizes in ((6, 4), (12, 9), (2, 2), (7, 9))]
    check(official_runtime, Sizes(), steps, alloc, dynamic_shapes=shapes)


class Found(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = x.nonzero()
        return places, places * 2 + 1


def test_counts_that_data_decide(official_runtime: OfficialRuntime) -> None:
    steps = [(torch.tensor(rows),) for rows in ([[0.0, 1, 2], [3, 0, 0]], [[1.0, 1, 1], [1, 1, 1]], [[0.0] * 3] * 2)]
    check(official_runtime, Found(), steps)


class Read(torch.nn.Module):
    """Reads a number out of a tensor and makes sizes of it."""

    def forward(self, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count = n.item()
        torch._check(count >= 1)
        torch._check(count <= 9)
        return torch.ones(count, 2), torch.arange(count * 2 - 1) % 3  # type: ignore[arg-type]


def test_numbers_read_from_tensors(official_runtime: OfficialRuntime) -> None:
    check(official_runtime, Read(), [(torch.tensor(count),) for count in (4, 9, 1)])


class Shared(torch.nn.Module):
    """Uses the same numbers and lists in many places, also for sizes that are computed."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = x.sum(1), x.sum(1, keepdim=True), x.mean(1), x.amax(1), x.argmax(1)
        two = torch.ones(x.shape[0], 1), torch.full((x.shape[0], 1), 1), torch.zeros(1, x.shape[0])
        return (*one, *two, x.flip(1), x.cumsum(1), torch.cat([x, x], 1), *torch.split(x, 1, 1))


def test_shared_values(official_runtime: OfficialRuntime) -> None:
    shapes = ({0: Dim("rows", min=2, max=6)},)
    check(official_runtime, Shared(), [(torch.rand(size, 3),) for size in (4, 2, 6)], dynamic_shapes=shapes)


def test_results_that_are_numbers(official_runtime: OfficialRuntime) -> None:
    class Kinds(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
            return x + 1.0, 3, 2.5, True, None, x.shape[0] * 2

    file = file_of(emitted(Kinds(), torch.rand(3), dynamic_shapes=({0: Dim("size", min=2, max=9)},)))
    ((_, *rest),) = official_runtime.run(file, [[torch.rand(7)]]).unwrap()
    assert rest == [3, 2.5, True, None, 14]


def test_numbers_as_inputs_have_their_traced_value(official_runtime: OfficialRuntime) -> None:
    class Times(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: int, nothing: None) -> torch.Tensor:
            return x * n

    file = file_of(emitted(Times(), torch.ones(2), 3, None))
    assert official_runtime.run(file, [[torch.ones(2), 3, None]]).unwrap()[0][0].tolist() == [3.0, 3.0]  # type: ignore[union-attr]
    rejected = official_runtime.run(file, [[torch.ones(2), 4, None]]).failure
    assert rejected is not None
    assert "should have the same value" in rejected.text


def test_constant_methods(official_runtime: OfficialRuntime) -> None:
    value = {"length": 128, "scale": 0.5, "on": True, "weights": torch.tensor([[1.0, 2.0]])}
    file = file_of(emit_program(planned_program(lambda x: x + 1.0, torch.rand(2)), config_methods={"facts": value}))
    (answer,) = official_runtime.run(file, [[]], method="facts").unwrap()
    assert answer[:3] == [128, 0.5, True]
    assert answer[3].tolist() == [[1.0, 2.0]]  # type: ignore[union-attr]


def test_several_results_and_optional_arguments(official_runtime: OfficialRuntime) -> None:
    class Mixed(torch.nn.Module):
        def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
            normed = torch.nn.functional.layer_norm(x, (4,))
            return (*torch.topk(normed, 2), x[:, i], *x.max(1), torch.div(x, 0.3, rounding_mode="floor"), *x.unbind(1))

    check(official_runtime, Mixed(), [(torch.rand(3, 4), torch.tensor([2, 0]))])

"""Levels of optimization: what they may change, how much memory they may take, and what is rejected."""

from __future__ import annotations

import pytest
import torch

from exirkit import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    GraphEditor,
    ModelError,
    Pass,
    UsageError,
    ops,
    to_edge,
)
from exirkit.ir import underlying
from exirkit.passes import LiveBytes, peak_nbytes, planned_nbytes
from exirkit.patterns import KernelCost, Target
from exirkit.runtime_ref import Runtime


class Convolutions(torch.nn.Module):
    """Dense, depthwise and pointwise convolutions with batch norms."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, 2, 1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
            torch.nn.Conv2d(16, 16, 3, 1, 1, groups=16), torch.nn.ReLU(), torch.nn.Conv2d(16, 24, 1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


class Layers(torch.nn.Module):
    """Two linear layers, whose weights to_edge permutes at run time."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


def edge_of(module: torch.nn.Module, *inputs: torch.Tensor) -> EdgeProgramManager:
    return to_edge(torch.export.export(module.eval(), inputs))


def lowered(edge: EdgeProgramManager, level: int, **choices: object) -> ExecutorchProgramManager:
    return edge.to_executorch(ExecutorchBackendConfig(optimization_level=level, **choices))  # type: ignore[arg-type]


def kernels(program: ExecutorchProgramManager) -> list[str]:
    return [operator.name for operator in program.executorch_program.execution_plan[0].operators]


def arena(program: ExecutorchProgramManager) -> int:
    return planned_nbytes(program.exported_program())


def answer(program: ExecutorchProgramManager, *inputs: torch.Tensor) -> torch.Tensor:
    result = Runtime.get().load_program(program.buffer).load_method("forward").execute(list(inputs))[0]
    assert isinstance(result, torch.Tensor)
    return result


def test_constants_are_not_permuted_at_run_time() -> None:
    edge, x = edge_of(Layers(), torch.randn(2, 64)), torch.randn(2, 64)
    plain, exact = lowered(edge, 0), lowered(edge, 1)
    assert "aten::permute_copy" in kernels(plain)
    assert kernels(exact) == ["aten::addmm", "aten::relu"]
    assert arena(exact) * 10 < arena(plain)
    assert torch.equal(answer(plain, x), answer(exact, x))


def test_the_first_level_is_the_usual_one() -> None:
    edge = edge_of(Layers(), torch.randn(2, 64))
    assert edge.to_executorch().buffer == lowered(edge, 1).buffer


def test_the_second_level_chooses_kernels_by_the_target() -> None:
    edge, x = edge_of(Convolutions(), torch.randn(1, 3, 24, 24)), torch.randn(1, 3, 24, 24)
    plain, fast = lowered(edge, 0), lowered(edge, 2)
    assert "aten::convolution" in kernels(plain)
    assert "aten::convolution" not in kernels(fast)
    torch.testing.assert_close(answer(fast, x), answer(plain, x), rtol=1e-4, atol=1e-5)
    slow_products = Target(
        target=1,
        name="slow_products",
        kernels={"aten.convolution.default": KernelCost(mac_ns=1), "aten.bmm.default": KernelCost(mac_ns=2)},
    )
    assert "aten::convolution" in kernels(lowered(edge, 2, target=slow_products))


def test_a_program_for_size_needs_no_more_memory() -> None:
    edge, x = edge_of(Convolutions(), torch.randn(1, 3, 48, 48)), torch.randn(1, 3, 48, 48)
    plain, fast, small = lowered(edge, 0), lowered(edge, 2), lowered(edge, 2, optimize_for="size")
    assert arena(small) <= arena(plain) < arena(fast)
    torch.testing.assert_close(answer(small, x), answer(plain, x), rtol=1e-4, atol=1e-5)


class Heads(torch.nn.Module):
    """A transposition of blocks, which slices do faster, and something else that needs more memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.relu(x.repeat(1, 16, 1)).sum(1, keepdim=True)
        return torch.relu(x + wide).reshape(1, 64, 4, 16).transpose(1, 2) * 2.0


def test_a_program_for_size_has_no_more_calls() -> None:
    edge, x = edge_of(Heads(), torch.randn(1, 64, 64)), torch.randn(1, 64, 64)
    exact, fast, small = lowered(edge, 1), lowered(edge, 2), lowered(edge, 2, optimize_for="size")
    assert "aten::permute_copy" in kernels(small)
    assert "aten::permute_copy" not in kernels(fast)
    assert len(small.buffer) <= len(exact.buffer) < len(fast.buffer)
    assert torch.equal(answer(small, x), answer(fast, x))


def test_a_program_for_speed_needs_at_most_twice_the_memory_unless_it_is_asked_to() -> None:
    # Its windows, gathered at once, are nine times its input.
    model = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, 1, 1, groups=8), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
    edge, x = edge_of(model, torch.randn(1, 8, 32, 32)), torch.randn(1, 8, 32, 32)
    exact, fast, wide = lowered(edge, 1), lowered(edge, 2), lowered(edge, 2, arena_limit=1 << 40)
    assert arena(fast) <= 2 * arena(exact) < arena(wide)
    assert "aten::bmm" in kernels(fast)
    torch.testing.assert_close(answer(fast, x), answer(exact, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_memory_between_small_and_fast_is_used(share: float) -> None:
    edge, x = edge_of(Convolutions(), torch.randn(1, 3, 48, 48)), torch.randn(1, 3, 48, 48)
    least, most = arena(lowered(edge, 2, optimize_for="size")), arena(lowered(edge, 2, arena_limit=1 << 40))
    limit = int(least + share * (most - least))
    program = lowered(edge, 2, arena_limit=limit)
    assert arena(program) <= limit
    torch.testing.assert_close(answer(program, x), answer(lowered(edge, 0), x), rtol=1e-4, atol=1e-5)


def test_too_little_memory_is_rejected_and_changes_nothing() -> None:
    edge = edge_of(Convolutions(), torch.randn(1, 3, 24, 24))
    before = edge.exported_program().graph_module.code
    with pytest.raises(ModelError) as caught:
        lowered(edge, 2, arena_limit=1000)
    assert caught.value.code == "EK707"
    assert edge.exported_program().graph_module.code == before


@pytest.mark.parametrize("choices", [{"optimize_for": "beauty"}, {"arena_limit": -1}])
def test_choices_that_are_none(choices: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        lowered(edge_of(Layers(), torch.randn(2, 64)), 1, **choices)
    assert caught.value.code == "EK706"


def test_optimized_programs_are_the_same_every_time() -> None:
    first, second = (lowered(edge_of(Convolutions(), torch.ones(1, 3, 24, 24)), 2).buffer for _ in range(2))
    assert first == second


def test_what_is_alive_is_bounded_by_its_peak() -> None:
    program = edge_of(Convolutions(), torch.randn(1, 3, 24, 24)).exported_program()
    living = LiveBytes(frozenset(program.graph_signature.user_inputs))
    alive = [living(node) for node in program.graph.nodes if hasattr(underlying(node.target), "_schema")]
    assert alive[0] == 3 * 24 * 24 * 4
    # The last convolution, beside its input.
    assert peak_nbytes(program) == max(alive) + 24 * 12 * 12 * 4


class LeavesDeadCalls(Pass):
    """Replaces calls of `relu`, and leaves them where they are, without users."""

    name = "leaves-dead-calls"

    def edit(self, editor: GraphEditor) -> None:
        for node in editor.graph.find_nodes(op="call_function", target=ops.edge.aten.relu.default):
            editor.replace(node, editor.call(ops.edge.aten.clamp.default, (node.args[0], 0), before=node, origins=node))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_dead_calls_that_a_pass_leaves_are_not_in_the_file_of_an_optimized_program(level: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    edge = to_edge(torch.export.export(model, (torch.randn(2, 3),))).transform([LeavesDeadCalls()])
    lowered = edge.to_executorch(ExecutorchBackendConfig(optimization_level=level)).exported_program()
    calls = [str(underlying(node.target)) for node in lowered.graph.nodes]
    assert any("clamp" in one for one in calls)
    assert any("relu" in one for one in calls) == (level == 0)

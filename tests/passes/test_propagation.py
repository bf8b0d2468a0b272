"""Propagations as passes: programs compute what they did, on copies, with provenance, or are left as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.diagnostics.provocations.patterns.propagations import LAYOUT, MEMORY
from torch import nn
from torch.export import Dim, ExportedProgram, export

from exirkit import to_edge
from exirkit.ir import ContractError, ModelError, operator_name
from exirkit.passes import Pipeline, PropagationPass
from exirkit.runtime_ref import Runtime

CHANNELS_LAST, PERMUTES = "layout.channels-last", "layout.permutes"
COPY = "dim_order_ops._to_dim_order_copy.default"
aten = torch.ops.aten


class Blocks(nn.Module):
    """Convolutions with a residual, a concatenation, pooling, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.third, self.last = nn.Conv2d(16, 4, 1), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.first(x))
        z = torch.cat([torch.sigmoid(self.second(y)) + y, y], 1)
        z = nn.functional.max_pool2d(self.third(z), 2)
        return self.last(z.mean([2, 3])), z.softmax(1)


class Permuting(nn.Module):
    """What backends leave whose layers take channels last: permutations around every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 8), nn.Linear(9, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        y = torch.relu(y) + 1.5
        y = torch.cat([y, y.mean(1, keepdim=True)], 1).softmax(1)[:, :, 1:]
        y = self.second(y.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return y.sum((2, 3)) + y.amax(1).sum()


def edge(model: nn.Module, *inputs: torch.Tensor, **options: Any) -> ExportedProgram:
    with torch.no_grad():
        return to_edge(export(model.eval(), inputs, **options)).exported_program()


def operators(program: ExportedProgram) -> list[str]:
    return [operator_name(node.target) for node in program.graph.nodes if node.op == "call_function"]


def check_results(model: nn.Module, program: ExportedProgram, *inputs: torch.Tensor) -> None:
    torch.testing.assert_close(program.module()(*inputs), model(*inputs))


def test_least_conversions_of_a_small_net() -> None:
    model, x = Blocks().eval(), torch.randn(2, 3, 12, 10)
    program = edge(model, x)
    before = str(program.graph)
    one = PropagationPass(CHANNELS_LAST)
    made, report = one.apply(program)
    assert report.modified
    assert str(program.graph) == before
    assert operators(made).count(COPY) == 2
    check_results(model, made, x)
    assert one.report is not None
    # The image, and the pooled values for the softmax.
    assert (one.report.conversions, one.report.cost, one.report.stored) == (2, 2 * 3 * 12 * 10 + 2 * 4 * 6 * 5, 0)
    assert one.report.around_every_call == (6, 10_560)


class NormThenPermute(nn.Module):
    """A group norm between convolutions, and a permutation behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(self.first(x))).permute(0, 2, 3, 1) + 1


def test_norms_keep_a_layout_and_permutations_read_either() -> None:
    model, x = NormThenPermute().eval(), torch.randn(2, 3, 12, 10)
    one = PropagationPass(CHANNELS_LAST)
    made, _ = one.apply(edge(model, x))
    check_results(model, made, x)
    assert one.report is not None
    # The image alone: what the permutation makes is row-major already.
    assert (one.report.conversions, one.report.cost) == (1, x.numel())


def test_new_nodes_know_where_they_come_from() -> None:
    made, _ = PropagationPass(CHANNELS_LAST).apply(edge(Blocks(), torch.randn(2, 3, 12, 10)))
    for node in made.graph.nodes:
        if operator_name(node.target) == COPY:
            assert node.meta["stack_trace"]
            assert "nn_module_stack" in node.meta


def test_the_whole_chain_takes_it() -> None:
    model, x = Blocks().eval(), torch.randn(2, 3, 12, 10)
    lowered = to_edge(export(model, (x,))).transform([PropagationPass(CHANNELS_LAST)]).to_executorch()
    found = Runtime.get().load_program(lowered.buffer).load_method("forward").execute((x,))
    torch.testing.assert_close(tuple(found), model(x))


def test_permutations_cancel_through_calls_between_them() -> None:
    model, x = Permuting().eval(), torch.randn(2, 3, 6, 5)
    program = edge(model, x)
    made, _ = PropagationPass(PERMUTES).apply(program)
    check_results(model, made, x)

    def permuted(one: ExportedProgram) -> int:
        return sum(
            tuple(node.args[1]) in ((0, 2, 3, 1), (0, 3, 1, 2)) for node in one.graph.nodes if "permute" in node.name
        )

    # The image comes with channels first; all that follows stays with channels last.
    assert (permuted(program), permuted(made)) == (4, 1)


def test_a_second_run_finds_nothing_to_do() -> None:
    for name, model, shape in ((CHANNELS_LAST, Blocks(), (2, 3, 12, 10)), (PERMUTES, Permuting(), (2, 3, 6, 5))):
        made, _ = PropagationPass(name).apply(edge(model, torch.randn(shape)))
        again, report = PropagationPass(name).apply(made)
        assert operators(again) == operators(made), name
        assert name == PERMUTES or not report.modified


def run(model: nn.Module, *inputs: torch.Tensor, name: str = CHANNELS_LAST, **options: Any) -> ExportedProgram:
    """Apply a propagation to a model, and compare results."""
    made, _ = PropagationPass(name).apply(edge(model.eval(), *inputs, **options))
    check_results(model, made, *inputs)
    return made


class OneConvolution(nn.Module):
    def __init__(self, after: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.register_buffer("kept", torch.randn(1, 3, 4, 5))
        self.after = after

    def forward(self, x: torch.Tensor) -> Any:
        return self.after(self.conv(x), self.kept)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "after",
    [
        lambda y, k: (y, y),
        lambda y, k: y + y,
        lambda y, k: (y + k, k * 2, k),
        lambda y, k: y + torch.ones(5),
        lambda y, k: y * 2 - torch.tensor(3.0),
        lambda y, k: (y.view(-1), y.relu().sigmoid()),
        lambda y, k: torch.where(y > 0, y, k),
        lambda y, k: y.max(1),
        lambda y, k: y[:0],
        lambda y, k: torch.split(y, 1, 1)[1].relu() + k,
        lambda y, k: (y.amax((0, 2), keepdim=True), y.mean((1, 2, 3)), y.amax((2, 3), keepdim=True)),
        lambda y, k: y.to(torch.float16).relu().to(torch.int32) + 1,
        lambda y, k: torch.cat([y, y[:, :0]], 1).relu(),
        lambda y, k: torch.cond(y.sum() > 0, lambda a: torch.relu(a) + 1, lambda a: a * 2, (y,)).relu(),
    ],
)
def test_adversarial_users_of_a_convolution(after: Callable[..., Any]) -> None:
    with torch.no_grad():
        run(OneConvolution(after), torch.randn(2, 3, 4, 5))


@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (2, 3, 1, 5)])
def test_sizes_for_which_layouts_are_one(shape: tuple[int, ...]) -> None:
    run(OneConvolution(lambda y, k: (y.relu() + y[:, :1], y.amax((2, 3), keepdim=True).sigmoid())), torch.randn(shape))


def test_conversions_inside_branches() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda a: self.conv(torch.relu(self.conv(a))), torch.sin, (x,))

    one = PropagationPass(CHANNELS_LAST)
    model, x = Branches().eval(), torch.randn(2, 3, 4, 5)
    made, _ = one.apply(edge(model, x))
    check_results(model, made, x)
    check_results(model, made, -x.abs())
    assert one.report is not None
    assert one.report.conversions == 2
    assert len(one.reports) == 1


def test_sizes_that_vary() -> None:
    model, x = Blocks().eval(), torch.randn(2, 3, 12, 10)
    shapes = ({0: Dim("n", max=8), 2: Dim("h", min=4, max=64) * 2},)
    for name in (CHANNELS_LAST, PERMUTES):
        made, _ = PropagationPass(name).apply(edge(model, x, dynamic_shapes=shapes))
        for size in ((2, 3, 12, 10), (5, 3, 20, 10), (1, 3, 8, 10)):
            check_results(model, made, torch.randn(size))


def test_inputs_that_are_channels_last_need_no_conversion() -> None:
    model, x = Blocks().eval(), torch.randn(2, 3, 12, 10).contiguous(memory_format=torch.channels_last)
    one = PropagationPass(CHANNELS_LAST)
    made, _ = one.apply(edge(model, x))
    check_results(model, made, x)
    assert one.report is not None
    assert one.report.cost == 0


def test_stored_tensors_are_converted_while_lowering() -> None:
    model = OneConvolution(lambda y, k: (y + k).amax((2, 3)))
    one = PropagationPass(CHANNELS_LAST)
    x = torch.randn(1, 3, 4, 5)
    made, _ = one.apply(edge(model, x))
    check_results(model, made, x)
    assert one.report is not None
    assert (one.report.conversions, one.report.stored) == (1, 1)
    kept = [one for one in made.constants.values() if isinstance(one, torch.Tensor) and one.shape == (1, 3, 4, 5)]
    assert [one.is_contiguous(memory_format=torch.channels_last) for one in kept] == [True]


def test_buffers_that_are_written_are_not_folded() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)
            self.register_buffer("sum", torch.zeros(1, 3, 4, 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.sum.add_(self.conv(x))  # type: ignore[operator]
            return self.sum.relu()  # type: ignore[operator]

    x = torch.randn(1, 3, 4, 5)
    made, _ = PropagationPass(CHANNELS_LAST).apply(edge(Counter().eval(), x))
    module, model = made.module(), Counter().eval()
    model.load_state_dict(dict(made.state_dict.items()), strict=False)
    for _ in range(2):
        torch.testing.assert_close(module(x), model(x))


def test_a_wrong_file_is_rejected_before_the_program_is_read(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(LAYOUT.replace("relu.default", "_softmax.default"))
    with pytest.raises(ContractError, match=r"row 1 is wrong for aten\._softmax"):
        PropagationPass(path).apply(edge(Blocks(), torch.randn(2, 3, 12, 10)))
    path.write_text(LAYOUT.replace("result: same", "result: smae"))
    with pytest.raises(ModelError, match="EK291"):
        PropagationPass(path).apply(edge(Blocks(), torch.randn(2, 3, 12, 10)))


def test_a_program_is_as_it_was_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "memory.yaml"
    path.write_text(MEMORY)
    model = OneConvolution(lambda y, k: y.amax((0, 2), keepdim=True))
    program = edge(model, torch.randn(2, 3, 4, 5))
    before = str(program.graph)
    with pytest.raises(ContractError, match="EK297"):
        PropagationPass(path, tries=False).apply(program)
    assert str(program.graph) == before


def test_pipelines_name_it(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "pipeline: 1\nname: layouts\ndialect: {from: edge, to: edge}\nstages:\n"
        "- pass: propagate\n  options: {propagation: layout.channels-last}\n"
    )
    program = edge(Blocks(), torch.randn(2, 3, 12, 10))
    result = Pipeline.from_file(path).run(program)
    assert operators(result.program).count(COPY) == 2
    assert result.reports[0].details.cost == 2 * 3 * 12 * 10 + 2 * 4 * 6 * 5


@pytest.mark.parametrize("solver", ["cut", "forward", "backward", "local"])
def test_every_solver_is_sound(solver: Any) -> None:
    for name, model, shape in ((CHANNELS_LAST, Blocks(), (2, 3, 12, 10)), (PERMUTES, Permuting(), (2, 3, 6, 5))):
        x = torch.randn(shape)
        made, _ = PropagationPass(name, solver=solver).apply(edge(model.eval(), x))
        check_results(model, made, x)

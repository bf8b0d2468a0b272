"""Operators with lists of results, in programs whose sizes vary, called several times with different sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs
from torch.export import Dim

from exirkit import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from exirkit.ir import ModelError
from exirkit.patterns import Registry, Target

# Typed stubs of torch say that these return nothing.
untyped: Any = torch

ROWS = Dim("rows", min=1, max=24)
EVEN = 2 * Dim("half", min=1, max=6)
SIZES = (4, 9, 1, 24)


def halves(x: torch.Tensor) -> Any:
    """Split the rows in the middle, wherever that is."""
    return [part + 1 for part in untyped.split_copy(x, x.shape[0] // 2, 0)]


def in_bodies(x: torch.Tensor) -> torch.Tensor:
    """Split in both bodies of a branch."""

    def last(y: torch.Tensor) -> torch.Tensor:
        return untyped.unbind_copy(y, 1)[-1] * 2

    def middle(y: torch.Tensor) -> torch.Tensor:
        return untyped.split_copy(y, 1, 1)[3][:, 0] + 1

    return torch.cond(x.sum() > 0, last, middle, (x,))


def chosen_rows(x: torch.Tensor) -> Any:
    """Split what as many rows are left of as data decide."""
    return [part * 2 for part in untyped.split_copy(x[x[:, 0] > 0], 4, 1)]


# An operator, what varies, and the sizes of the calls.
CASES: dict[str, tuple[Callable[..., Any], Any, tuple[int, ...]]] = {
    "split_copy": (lambda x: [part + 1 for part in untyped.split_copy(x, 2, 1)], ROWS, SIZES),
    "split_copy, a shorter last part": (lambda x: untyped.split_copy(x, 4, -1), ROWS, SIZES),
    "split_copy, one part": (lambda x: untyped.split_copy(x, 7, 1)[0] + 1, ROWS, SIZES),
    "split_copy, one part used twice": (lambda x: [untyped.split_copy(x, 4, 1)[1]] * 2, ROWS, SIZES),
    "split_copy, the size varies": (halves, EVEN, (4, 10, 2, 12)),
    "split_copy in bodies": (in_bodies, ROWS, SIZES),
    "split_copy of a size that data decide": (chosen_rows, None, (6, 6, 6)),
    "unbind_copy": (lambda x: [part + 1 for part in untyped.unbind_copy(x, 1)], ROWS, SIZES),
    "unbind_copy, from the end": (lambda x: untyped.unbind_copy(x, -1)[1:4:2], ROWS, SIZES),
    "unbind": (lambda x: sum(x.unbind(1)), ROWS, SIZES),
    "split": (lambda x: [part + 1 for part in x.split(4, 1)], ROWS, SIZES),
    "split_with_sizes": (lambda x: [part + 1 for part in x.split([1, 0, 5], 1)], ROWS, SIZES),
    "split_with_sizes_copy": (lambda x: untyped.split_with_sizes_copy(x, [2, 4], 1), ROWS, SIZES),
    "split, the size varies": (lambda x: x.split(x.shape[0] // 2, 0), EVEN, (4, 10, 2, 12)),
    "split_with_sizes, a size varies": (
        lambda x: x.split([1, x.shape[0] - 1], 0),
        Dim("most", min=3, max=24),
        (4, 9, 3, 24),
    ),
    "chunk": (lambda x: [part + 1 for part in x.chunk(4, 1)], ROWS, SIZES),
    "tensor_split": (lambda x: [part + 1 for part in x.tensor_split(4, 1)], ROWS, SIZES),
    "unsafe_split": (lambda x: [part + 1 for part in untyped.unsafe_split(x, 4, 1)], ROWS, SIZES),
    "meshgrid": (lambda x: torch.meshgrid(x[:, 0], x[0], indexing="ij"), ROWS, SIZES),
}


@pytest.mark.executorch
@pytest.mark.parametrize("name", CASES)
def test_sizes_that_vary(name: str, official_runtime: OfficialRuntime) -> None:
    function, rows, sizes = CASES[name]
    torch.manual_seed(0)
    calls = [[torch.randn(size, 6)] for size in sizes]
    # At level 0 nothing but legalization replaces splits.
    assert_runs(function, calls, official_runtime, dynamic_shapes=({0: rows},) if rows else None, levels=(0, 1))


@pytest.mark.parametrize("function", [untyped.split_copy, untyped.unbind_copy])
def test_known_sizes_stay(function: Any) -> None:
    assert written(lambda x: function(x, 1)[0] + 1, None) == {function.__name__}


def test_a_runtime_that_resizes_keeps_them() -> None:
    operators: dict[str, tuple[str, ...]] = {"aten::split_copy.Tensor_out": (), "aten::unbind_copy.int_out": ()}
    target = Target(target=1, name="mine", registry=Registry(base="official_host", operators=operators))
    assert written(lambda x: untyped.unbind_copy(x, 1)[0] + 1, {0: ROWS}, target) == {"unbind_copy"}
    assert written(lambda x: untyped.unbind_copy(x, 1)[0] + 1, {0: ROWS}) == set()


def written(function: Callable[..., Any], varying: Any, target: Any = "official_host") -> set[str]:
    """Return the operators of a lowered program that take tensors apart."""
    exported = torch.export.export(Calling(function), (torch.randn(4, 6),), dynamic_shapes=((varying,),))
    config = ExecutorchBackendConfig(target=target, optimization_level=0)
    program = to_edge(exported).to_executorch(config).executorch_program
    names = {operator.name.removeprefix("aten::") for operator in program.execution_plan[0].operators}
    return {name for name in names if "split" in name or "unbind" in name}


def test_results_that_a_kernel_does_not_resize_are_rejected() -> None:
    aa = torch.ops.aten._upsample_bilinear2d_aa.default
    exported = torch.export.export(
        Calling(lambda x: aa(x, [4, 4], False)), (torch.randn(2, 1, 8, 8),), dynamic_shapes=(({0: ROWS},),)
    )
    edge = to_edge(exported, compile_config=EdgeCompileConfig(preserve_ops=[aa]))
    with pytest.raises(ModelError, match=r"EK360.*\n.*") as caught:
        edge.to_executorch(ExecutorchBackendConfig(optimization_level=0))
    assert caught.value.diagnostics[0].expected == "fixed(out)"


class Calling(torch.nn.Module):
    """A model of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)

"""Decompositions that compute with sizes: these are solved for, or computed from, the sizes of the arguments."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from exirkit import to_edge
from exirkit.ir import GraphEditor, copy_program
from exirkit.passes import decomposition_passes, run_passes
from exirkit.runtime_ref import Runtime


class RollByMore(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, -1, 0)


class RollOfDerived(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(torch.cat([x, x, x[:1]]), 2, 0)


class PadOfDerived(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.pad(torch.cat([x, x, x[:1]]).transpose(0, 1), [0, 2], mode="reflect")


@pytest.mark.parametrize("model", [RollByMore(), RollOfDerived(), PadOfDerived()])
def test_sizes_are_computed(model: nn.Module) -> None:
    program = export(model, (torch.randn(4, 3),), dynamic_shapes=({0: Dim("rows", min=3, max=9)},))
    copied = copy_program(program)
    # Would raise WholeGraphNeededError where a size cannot be told from those of the arguments.
    run_passes(GraphEditor(copied), decomposition_passes())
    method = Runtime.get().load_program(to_edge(program).to_executorch().buffer).load_method("forward")
    for rows in (3, 4, 7, 9):
        given = torch.randn(rows, 3)
        (got,) = method.execute([given])
        assert torch.equal(got, model(given)), rows

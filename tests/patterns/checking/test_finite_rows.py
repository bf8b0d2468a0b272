"""`finite.softmax-of-scores`: what a mask leaves of each row decides whether the precaution is needed."""

from __future__ import annotations

import pytest
import torch

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.runtime_ref import Runtime

TORCH = torch.nn.functional


class Attention(torch.nn.Module):
    """Attention under a mask that is stored."""

    mask: torch.Tensor

    def __init__(self, mask: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return TORCH.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)


def lowered(mask: torch.Tensor, level: int) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    """Return the operators of a program, what it computes, and what torch does."""
    model, x = Attention(mask).eval(), torch.randn(1, 2, 4, 8)
    edge = to_edge(torch.export.export(model, (x,)))
    program = edge.to_executorch(ExecutorchBackendConfig(optimization_level=level))
    names = [str(node.target) for node in program.exported_program().graph.nodes]
    (found,) = Runtime.get().load_program(program.buffer).load_method("forward").execute([x])
    return names, found, model(x)


def causal() -> torch.Tensor:
    return torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)


def test_a_mask_that_leaves_something_of_every_row_needs_no_precaution() -> None:
    names, found, expected = lowered(causal(), 2)
    assert not any("where" in name or "logical_not" in name for name in names)
    torch.testing.assert_close(found, expected)
    assert any("where" in name for name in lowered(causal(), 1)[0])


@pytest.mark.parametrize("row", [0, 3])
def test_a_mask_of_an_empty_row_is_left_alone(row: int) -> None:
    mask = causal()
    mask[row] = -torch.inf
    names, found, expected = lowered(mask, 2)
    assert any("where" in name for name in names)
    torch.testing.assert_close(found, expected)
    assert not bool(found.isnan().any())

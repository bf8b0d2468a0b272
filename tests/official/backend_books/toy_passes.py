"""Passes of the official kind for the comparison with rules, of which some are wrong."""

from __future__ import annotations

from typing import Any

import torch
from executorch.exir.dialects._ops import ops
from executorch.exir.pass_base import ExportPass

# Named by campaigns.
__all__ = ["ForgetsAlpha", "Idle", "KeepsAlpha", "NeedsScale", "Stops", "models", "scaled"]

NEG, SUB, ADD = ops.edge.aten.neg.default, ops.edge.aten.sub.Tensor, ops.edge.aten.add.Tensor


class ForgetsAlpha(ExportPass):  # type: ignore[misc]
    """x - y becomes x + (-y), whatever alpha is."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op != SUB:
            return super().call_operator(op, args, kwargs, meta)
        negated = super().call_operator(NEG, (args[1],), {}, meta)
        return super().call_operator(ADD, (args[0], negated), {}, meta)


class KeepsAlpha(ExportPass):  # type: ignore[misc]
    """x - alpha * y becomes x + (-alpha) * y."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op != SUB:
            return super().call_operator(op, args, kwargs, meta)
        return super().call_operator(ADD, args, {"alpha": -kwargs.get("alpha", 1)}, meta)


class Stops(ExportPass):  # type: ignore[misc]
    """Raises at a subtraction."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op == SUB:
            raise IndexError("no such operand")
        return super().call_operator(op, args, kwargs, meta)


class Idle(ExportPass):  # type: ignore[misc]
    """Changes nothing."""


class NeedsScale(ExportPass):  # type: ignore[misc]
    """Takes an argument that is not the program."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale


def scaled() -> ExportPass:
    """Return a pass with its argument."""
    return NeedsScale(2.0)


def models() -> dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
    """Return two models."""

    class Difference(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.sub(torch.relu(x), y, alpha=2)

    return {
        "difference": (Difference(), (torch.ones(2, 3), torch.ones(2, 3))),
        "linear": (torch.nn.Linear(3, 2), (torch.ones(4, 3),)),
    }

"""Passes of the official kind for the comparison with rules, of which some are wrong."""

from __future__ import annotations

from typing import Any

import torch
from executorch.exir.dialects._ops import ops
from executorch.exir.pass_base import ExportPass
from torch.fx.passes.infra.pass_base import PassResult

# Named by campaigns.
__all__ = ["ForgetsAlpha", "Idle", "KeepsAlpha", "NeedsScale", "Stops", "TwiceNegated", "models", "negations", "scaled"]

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


class TwiceNegated(ExportPass):  # type: ignore[misc]
    """neg(neg(x)) becomes x, for float32 only."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        for node in list(graph_module.graph.find_nodes(op="call_function", target=NEG)):
            inner = node.args[0]
            if inner.target is NEG and node.meta["val"].dtype is torch.float32:
                node.replace_all_uses_with(inner.args[0])
        graph_module.graph.eliminate_dead_code()
        graph_module.recompile()
        return PassResult(graph_module, True)


def negations() -> dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
    """Return models with negations of negations, of several dtypes, forms and permutations."""

    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.neg(torch.neg(torch.relu(x)))
            return y + 1, torch.sub(x, y, alpha=2)

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.sub(x, y, alpha=3)

    return {
        "matrix": (Twice(), (torch.rand(2, 3),)),
        "vector": (Twice(), (torch.rand(5),)),
        "doubles": (Twice(), (torch.rand(4, dtype=torch.float64),)),
        "scaled": (Scaled(), (torch.rand(4, 2), torch.rand(4, 2))),
        "vectors": (Scaled(), (torch.rand(7), torch.rand(7))),
    }

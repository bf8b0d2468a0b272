"""Lowerings to be reported: programs, and what is done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from exirkit import to_edge
from exirkit.passes import ApplyRules, ExecutorchBackendConfig
from exirkit.patterns import load_book
from exirkit.program import EdgeProgramManager, ExecutorchProgramManager


class Layers(torch.nn.Module):
    """Layers, state, and calls that rules rewrite."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 4))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        y = torch.nn.functional.silu(self.first(x))
        z = (self.second(y) * 1.0 + 0.0).reshape(-1).view(4, -1)
        return z.t(), self.count * 2


class Branches(torch.nn.Module):
    """Control flow, whose graphs are shown below that of the program."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def yes(x: torch.Tensor) -> torch.Tensor:
            return x.sin() * 2.0

        def no(x: torch.Tensor) -> torch.Tensor:
            return x.cos() + 1.0

        return torch.cond(x.sum() > 0, yes, no, (x,)) + 1


def rename_first(module: torch.fx.GraphModule) -> None:
    """Replace the first call by another node of the same operator, as passes over graphs do."""
    node = next(one for one in module.graph.nodes if one.op == "call_function")
    with module.graph.inserting_after(node):
        copy = module.graph.node_copy(node)
    node.replace_all_uses_with(copy)
    module.graph.erase_node(node)


Transform = Callable[[EdgeProgramManager], EdgeProgramManager]


def algebra(edge: EdgeProgramManager) -> EdgeProgramManager:
    """Apply a shipped book."""
    return edge.transform([ApplyRules(load_book("algebra"))])


@dataclass(frozen=True)
class Lowering:
    """What is lowered, and how.

    Attributes:
        programs: Makes the programs.
        level: Optimization level.
        transform: What is done on Edge.
    """

    programs: Callable[[], dict[str, ExportedProgram]]
    level: int = 1
    transform: Transform = field(default=lambda edge: edge)

    def run(self, programs: dict[str, ExportedProgram]) -> ExecutorchProgramManager:
        """Lower programs."""
        edge = self.transform(to_edge(programs))
        return edge.to_executorch(ExecutorchBackendConfig(optimization_level=self.level))


def layers() -> dict[str, ExportedProgram]:
    """Return one method with state."""
    torch.manual_seed(0)
    return {"forward": torch.export.export(Layers().eval(), (torch.ones(2, 8),))}


def branches() -> dict[str, ExportedProgram]:
    """Return one method with control flow."""
    return {"forward": torch.export.export(Branches(), (torch.ones(2, 3),))}


def two_methods() -> dict[str, ExportedProgram]:
    """Return two methods of the same names, one of them with a size that varies."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 4))
    wide = torch.export.export(model, (torch.ones(3, 4),), dynamic_shapes=({0: Dim("rows", min=1, max=7)},))
    return {"decode": torch.export.export(model, (torch.ones(1, 4),)), "prefill": wide}


def nothing() -> dict[str, ExportedProgram]:
    """Return a method without any call."""

    class Same(torch.nn.Module):
        def forward(self, x: torch.Tensor, _unused: Any) -> torch.Tensor:
            return x

    return {"forward": torch.export.export(Same(), (torch.ones(0, 1), torch.ones(3)))}


LOWERINGS = {
    "layers": Lowering(layers),
    "layers, not optimized": Lowering(layers, level=0),
    "layers, rules": Lowering(layers, level=2, transform=algebra),
    "layers, functions": Lowering(layers, transform=lambda edge: algebra(edge.transform([rename_first]))),
    "branches": Lowering(branches),
    "two methods": Lowering(two_methods, level=2),
    "nothing": Lowering(nothing),
}

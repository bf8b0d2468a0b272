"""Small exported programs to edit; each is exported once, and tests work on copies."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.fx import Node

from exirkit.ir import copy_program

ATEN = torch.ops.aten


class Branchy(torch.nn.Module):
    """State, views, several outputs; one output twice, an input, a None and a number among them."""

    count: torch.Tensor
    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(1))
        self.count: torch.Tensor
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)
        self.unused = torch.nn.Parameter(torch.ones(3))

    def forward(self, input: torch.Tensor, max: torch.Tensor) -> tuple[Any, ...]:
        self.count.add_(1)
        hidden = self.linear(input).relu()
        turned = hidden.permute(1, 0)
        mixed = (turned + max.permute(1, 0)) * torch.tensor(3.0)
        top = mixed.sum(1) * self.scale
        return top, hidden, top, max, None, 7, self.count + 1


class Sizes(torch.nn.Module):
    """Dynamic sizes, also as numbers that are returned."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
        both = torch.cat([x, y], dim=0)
        flat = both.reshape(both.shape[0] * 4)
        return (flat * 2.0).view(-1, 4).permute(1, 0).exp(), x.shape[0] + 1, y


class DataDependent(torch.nn.Module):
    """Sizes that only the data decides."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[Any, ...]:
        where = x.nonzero()
        picked = torch.masked_select(x, mask)
        number: Any = mask.sum().item()
        torch._check(number >= 0)
        torch._check(number <= 12)
        return where + 1, picked * 2, torch.ones(number), x.relu()


class Choice(torch.nn.Module):
    """Control flow with a branch inside a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(v: torch.Tensor) -> torch.Tensor:
            return torch.cond(v.sum() > 10, lambda u: u + self.weight, lambda u: u - 1, (v,))

        return torch.cond(x.sum() > 0, inner, lambda v: v * 3, (x,)).relu()


class Writes(torch.nn.Module):
    """Writes to an input."""

    def forward(self, input: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        input.add_(y)
        return input * 2


class Tied(torch.nn.Module):
    """Two linear layers with one weight, and a mutated buffer."""

    last: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(self.first(x))
        self.last.copy_(y.sum(0))
        return y


def _exported(model: torch.nn.Module, inputs: tuple[Any, ...], shapes: Any = None) -> ExportedProgram:
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        program = torch.export.export(model.eval(), inputs, dynamic_shapes=shapes, strict=False)
        return program.run_decompositions({})


@cache
def original(name: str) -> ExportedProgram:
    """Return the program itself; it must not be changed."""
    rows = Dim("rows", min=2, max=64)
    makers: dict[str, Callable[[], ExportedProgram]] = {
        "branchy": lambda: _exported(Branchy(), (torch.randn(3, 4), torch.randn(3, 4))),
        "sizes": lambda: _exported(Sizes(), (torch.randn(3, 4), torch.randn(5, 4)), ({0: rows}, {0: Dim("more")})),
        "data": lambda: _exported(DataDependent(), (torch.randn(3, 4), torch.ones(3, 4, dtype=torch.bool))),
        "choice": lambda: _exported(Choice(), (torch.randn(4),)),
        "tied": lambda: _exported(Tied(), (torch.ones(2, 4),)),
        "linear": lambda: _exported(torch.nn.Linear(4, 4), (torch.ones(2, 4),)),
        "writes": lambda: _exported(Writes(), (torch.randn(3), torch.randn(3))),
    }
    return makers[name]()


def sample(name: str) -> ExportedProgram:
    """Return a copy of a program to edit."""
    return copy_program(original(name))


def node(program: ExportedProgram, name: str) -> Node:
    """Return the node of that name."""
    return next(one for one in program.graph_module.graph.nodes if one.name == name)


def calls(program: ExportedProgram, target: Any) -> list[Node]:
    """Return the calls of an operator, in order."""
    found: list[Node] = program.graph_module.graph.find_nodes(op="call_function", target=target)
    return found

"""Control flow that stays in the program: branches, alone and several at once, and loops over rows."""

from __future__ import annotations

import torch
from tests.models.case import EXACT, ROUNDING, Built, Call, Family, Function, single
from torch import nn

family = Family("control")


class Branch(nn.Module):
    """One of two layers answers, by the sign of the sum of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 3)
        self.right = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen: torch.Tensor = torch.cond(x.sum() > 0, self.left, self.right, (x,))
        return torch.relu(chosen) + 1.0


@family.case(ROUNDING)
def branch() -> Built:
    return single(Branch(), Call(torch.ones(2, 4)), Call(-torch.ones(2, 4)), Call(torch.randn(2, 4)))


def two_branches(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Take two branches one after the other, with both results alive at the end."""
    first = torch.cond(x.sum() > 0, lambda y: (y * 2.0).sin(), lambda y: (y - 1.0).cos(), (x,))
    second = torch.cond(x.amax() > 1, lambda y: (y + 3.0).abs() * y, lambda y: -y * 4.0, (x,))
    return first + second, first


@family.case(ROUNDING, official_defect="branches of two conditions share memory: the first result is overwritten")
def branches_in_a_row() -> Built:
    calls = (torch.tensor(values) for values in ([0.5, 0.25], [2.0, -3.0], [-2.0, 0.5], [3.0, 1.0]))
    return single(Function(two_branches), *map(Call, calls))


def nested(x: torch.Tensor) -> torch.Tensor:
    """Take a branch within a branch."""

    def inner(y: torch.Tensor) -> torch.Tensor:
        chosen: torch.Tensor = torch.cond(y[0] > 1, lambda z: z * 2.0, lambda z: z * 3.0, (y,))
        return chosen + 0.5

    chosen: torch.Tensor = torch.cond(x.sum() > 0, inner, lambda y: y - 10.0, (x,))
    return chosen * chosen


@family.case(EXACT)
def branch_in_a_branch() -> Built:
    calls = ([2.0, 1.0], [0.5, 1.0], [-2.0, 1.0])
    return single(Function(nested), *(Call(torch.tensor(values)) for values in calls))


def only_branch(flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Do nothing but take a branch."""
    chosen: torch.Tensor = torch.cond(flag, lambda y: y + y, lambda y: y * y, (x,))
    return chosen


@family.case(EXACT)
def branch_alone() -> Built:
    x = torch.tensor([3.0, -1.0])
    return single(Function(only_branch), Call(torch.tensor(True), x), Call(torch.tensor(False), x))


class Rows(nn.Module):
    """Maps a layer over the rows of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.map import map as map_rows

        def answer(row: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.linear(row))

        mapped: torch.Tensor = map_rows(answer, x)  # type: ignore[arg-type]
        return mapped.sum(0)


@family.case(ROUNDING)
def mapped_rows() -> Built:
    return single(Rows(), Call(torch.randn(4, 2, 3)), Call(torch.randn(4, 2, 3)))

"""Small models whose branches and loops make constants, return what they are given, and write to what is not theirs."""

from __future__ import annotations

from typing import Any

import torch
from tests.models.control_flow.programs import COUNTED, NO, YES, model, numbers, while_loop
from torch import nn

FLAGS = ((YES, numbers(3)), (NO, numbers(3)), (YES, numbers(3) + 4))


@model(*FLAGS)
def odd_results_of_branches(flag: Any, x: Any) -> Any:
    def constants(y: Any) -> Any:
        return y + torch.tensor([1.0, 2, 3]), y * torch.tensor(2.0), torch.arange(3)

    def others(y: Any) -> Any:
        return y * torch.tensor([4.0, 5, 6]), torch.zeros(3), torch.tensor([7, 8, 9])

    def inputs(y: Any) -> Any:
        double = y * 2
        return y, y.view(3, 1).squeeze(1), double, double

    def places(y: Any) -> Any:
        z = y - 1
        z.mul_(3)
        z[0] = 5
        return z, y.clone().zero_(), y, y + 1

    return (
        torch.cond(flag, constants, others, (x,)),
        torch.cond(flag, inputs, places, (x,)),
        torch.cond(flag, lambda a, b: a + b * 2, lambda a, b: a - b * 3, (x, x)),
        while_loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a + b, b * 2), (torch.tensor(0), x, x)),
    )


class Counting(nn.Module):
    """Buffers, and a row of one."""

    count: torch.Tensor
    rows: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("rows", torch.zeros(2, 3))


@model(*FLAGS)
class buffers_written_in_branches(Counting):  # noqa: N801
    def forward(self, flag: torch.Tensor, x: torch.Tensor) -> Any:
        before = self.rows * 1

        def yes(y: Any) -> Any:
            self.count.add_(1)
            self.rows[1].copy_(y + self.count)
            return self.rows.sum(0)

        def inner(y: Any) -> Any:
            self.rows.mul_(2)
            return y + self.rows[0]

        def no(y: Any) -> Any:
            self.rows[0].add_(y)
            return torch.cond(self.count > 0, inner, lambda z: z * 1, (y,))

        chosen = torch.cond(flag, yes, no, (x,))
        return before, chosen, self.count + 0, self.rows[0] - self.rows[1]


@model(*COUNTED)
class buffers_written_in_a_loop(Counting):  # noqa: N801
    def forward(self, count: torch.Tensor, x: torch.Tensor) -> Any:
        def step(i: Any, y: Any) -> Any:
            self.count.add_(1)
            row = torch.cond(y.sum() > 3, lambda z: z - 9, lambda z: z * 2 + self.count, (y,))
            self.rows[1].add_(row)
            return i - 1, row

        _, last = while_loop(lambda i, y: i > self.count * 0, step, (count, x))
        self.rows[0].sub_(1)
        return last, self.count * 2, self.rows.clone()

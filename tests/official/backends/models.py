"""Small models with what XNNPACK takes and what it leaves, and inputs for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export


class Convolutions(nn.Module):
    """Batch norms that are folded, a residual, and a pooling with two results."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = nn.functional.max_pool2d(x + nn.functional.hardtanh(self.second(x)), 2)
        return torch.softmax(self.head(x.mean((2, 3))), -1)


class Attention(nn.Module):
    """Attention, a norm that stays outside, and an embedding that XNNPACK does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.join = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        words = self.words(x)
        query, key, value = (
            part.view(1, -1, 2, 8).transpose(1, 2) for part in self.join(self.norm(words)).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        result = self.out(mixed.transpose(1, 2).reshape(1, -1, 16)) + words
        return result, nn.functional.gelu(result).argmax(-1)


class Recurrent(nn.Module):
    """Layers that are written out step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.lstm(x)[0]
        return result


class Counting(nn.Module):
    """State between two delegates."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.total: Tensor
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        self.total.add_(y.sum(0))
        return torch.sigmoid(self.linear(y) * 2 + self.total) * self.total


class Choosing(nn.Module):
    """A branch."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.cond(x.sum() > 0, lambda one: one.sin(), lambda one: one.cos() * 2, (x,))
        return y + x


class Branching(nn.Module):
    """A delegate, and a branch that computes with numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        made: Tensor = torch.cond(y.sum() > 0, lambda one: one * 2.5, lambda one: one - 3, (y,))
        return made


class Squashing(nn.Module):
    """Calls that are written down here, so that diagnostics name this line."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) * x


def perceptron() -> nn.Module:
    """Return a few layers that become one delegate."""
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...], Any]]] = {
    "any-batch": lambda: (perceptron(), (torch.randn(3, 6),), ({0: Dim("batch", min=2, max=8)},)),
    "convolutions": lambda: (Convolutions(), (torch.randn(1, 3, 8, 8),), None),
    "attention": lambda: (Attention(), (torch.randint(0, 11, (1, 7)),), None),
    "without-bias": lambda: (
        nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 2, bias=False)),
        (torch.randn(3, 4),),
        None,
    ),
    "recurrent": lambda: (Recurrent(), (torch.randn(1, 3, 4),), None),
    "counting": lambda: (Counting(), (torch.randn(2, 4),), None),
    "branching": lambda: (Branching(), (torch.randn(2, 4),), None),
}

# For diagnostics only.
PROVOKING: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...], Any]]] = {
    "choosing": lambda: (Choosing(), (torch.randn(3),), None),
    "squashing": lambda: (Squashing(), (torch.randn(3),), None),
}


def exported(name: str, then: nn.Module | None = None) -> ExportedProgram:
    """Return a model with the weights that it always has, and maybe a module behind it."""
    torch.manual_seed(7)
    model, inputs, sizes = {**MODELS, **PROVOKING}[name]()
    if then is not None:
        model, sizes = nn.Sequential(model, then), sizes and {"input": sizes[0]}
    with warnings.catch_warnings():
        # torch warns of how its own LSTM is exported.
        warnings.simplefilter("ignore")
        return export(model.eval().requires_grad_(False), inputs, dynamic_shapes=sizes)

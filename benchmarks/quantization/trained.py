"""Three models trained on small generated data: their values are spread like those of real models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
from torch import nn

Sample = tuple[torch.Tensor]
Data = Callable[[torch.Generator, int], tuple[torch.Tensor, torch.Tensor]]


class Spirals(nn.Module):
    """Tells three spirals in a plane apart."""

    def __init__(self) -> None:
        super().__init__()
        widths = (2, 48, 48, 32, 32, 16)
        pairs = pairwise(widths)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairs))
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x))


def spirals(generator: torch.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points and the spirals that they are on."""
    labels = torch.randint(0, 3, (count,), generator=generator)
    way = torch.rand(count, generator=generator)
    angle = 5 * way + labels * (2 * torch.pi / 3)
    points = torch.stack([way * angle.cos(), way * angle.sin()], 1)
    return points + 0.02 * torch.randn(count, 2, generator=generator), labels


class Block(nn.Module):
    """A convolution with batch norm beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)) + x)


class Pictures(nn.Module):
    """Tells pictures of lines, boxes and crosses apart."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.last = Block(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(torch.relu(self.stem(x)))
        x = self.last(torch.relu(self.down(x)))
        return self.head(torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def pictures(generator: torch.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return pictures of 12 by 12 and what is on them."""
    labels = torch.randint(0, 3, (count,), generator=generator)
    made = 0.3 * torch.randn(count, 1, 12, 12, generator=generator)
    for picture, label in zip(made, labels.tolist(), strict=True):
        row, column = torch.randint(2, 8, (2,), generator=generator).tolist()
        if label == 0:
            picture[0, row, 1:11] += 1
        elif label == 1:
            picture[0, row : row + 3, column : column + 3] += 1
        else:
            picture[0, row, :] += 0.7
            picture[0, :, column] += 0.7
    return made, labels


class Attention(nn.Module):
    """Attention with one head and a feed-forward part, both beside shortcuts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        weights = torch.softmax(self.query(y) @ self.key(y).transpose(1, 2) * 0.25, -1)
        x = x + self.out(weights @ self.value(y))
        return x + self.narrow(torch.relu(self.wide(self.second(x))))


class Sequences(nn.Module):
    """Says which of two symbols a sequence has more of, or that both are as many."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 16)
        self.layers = nn.Sequential(Attention(16), Attention(16))
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.table(x)).mean(1))


def sequences(generator: torch.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sequences of 10 of 4 symbols, and which of the first two is more frequent."""
    made = torch.randint(0, 4, (count, 10), generator=generator)
    balance = (made == 0).sum(1) - (made == 1).sum(1)
    return made, balance.sign() + 1


@dataclass(frozen=True)
class Trained:
    """A trained model with its data.

    Attributes:
        model: The model, ready for inference.
        data: Makes inputs and labels.
    """

    model: nn.Module
    data: Data

    def samples(self, count: int, seed: int) -> list[Sample]:
        """Return batches of 16."""
        generator = torch.Generator().manual_seed(seed)
        return [(self.data(generator, 16)[0],) for _ in range(count)]

    def accuracy(self, module: Callable[[torch.Tensor], torch.Tensor]) -> float:
        """Return the share of 512 fresh inputs for which a module gives the right label."""
        inputs, labels = self.data(torch.Generator().manual_seed(99), 512)
        batches = zip(inputs.split(16), labels.split(16), strict=True)
        with torch.no_grad():
            right = sum(int((module(x).argmax(1) == y).sum()) for x, y in batches)
        return right / len(labels)


KINDS: dict[str, tuple[Callable[[], nn.Module], Data, int]] = {
    "spirals": (Spirals, spirals, 600),
    "pictures": (Pictures, pictures, 120),
    "sequences": (Sequences, sequences, 300),
}
"""Models, their data, and steps of training, by name."""


@cache
def trained(name: str) -> Trained:
    """Return a model of `KINDS`, trained for a few seconds; the same each time."""
    make, data, steps = KINDS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make()
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for inputs, labels in _batches(data, generator, steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return Trained(model.eval(), data)


def _batches(data: Data, generator: torch.Generator, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for _ in range(steps):
        yield data(generator, 128)

"""Views, slices, gathers and scatters, aliases between inputs and outputs, and shapes with no or zero dimensions."""

from __future__ import annotations

import torch
from tests.models.case import EXACT, ROUNDING, Built, Call, Family, Function, single
from torch import nn
from torch.nn import functional

family = Family("odd_indexing")


def slices(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Slice with negative bounds, steps, ellipses and new dimensions."""
    return (
        x[:, 1:-1], x[..., -3:], x[-1], x[:, ::2], x[:, None, 1, :3], x[0, ..., 2:100], x[:, -2:, ::3],
        x.narrow(2, 1, 3), x.select(1, -2), *torch.split(x, [1, 3], dim=1), *x.chunk(3, dim=2), *x.unbind(0),
        x.diagonal(dim1=1, dim2=2), x[:, 3:1], x.movedim(0, -1).contiguous(),
    )  # fmt: skip


@family.case(EXACT, "views")
def slicing() -> Built:
    return single(Function(slices), Call(torch.randn(2, 4, 6)))


def rearranged(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Pad, flip, roll, repeat, tile and stack."""
    return (
        functional.pad(x, (1, 2)),
        functional.pad(x, (0, 1, 0, 2), value=0.5),
        functional.pad(x, (1, 1), mode="replicate"),
        functional.pad(x, (2, 1), mode="reflect"),
        torch.flip(x, (0, 2)),
        torch.roll(x, 2, dims=1),
        torch.roll(x, (1, -1), dims=(0, 2)),
        x.repeat(2, 1, 3),
        x.repeat_interleave(2, dim=1),
        x.tile(2),
        torch.stack([x, x * 2], dim=1),
        torch.cat([x, x[:, :1], x.new_zeros(2, 0, 5)], dim=1),
        x.expand(3, 2, 4, 5).reshape(6, 20),
        torch.rot90(x, 1, (1, 2)),
        functional.one_hot(x[0, 0].argmax(), 5).float(),
    )


@family.case(EXACT, "views")
def pad_flip_roll() -> Built:
    return single(Function(rearranged), Call(torch.randn(2, 4, 5)))


def gathered(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Read and write at indices."""
    rows, columns = index[0], index[1]
    return (
        torch.gather(x, 1, index),
        x.scatter(1, index, source),
        x.scatter(1, index, 3.0),
        x.scatter_add(1, index, source),
        x[rows % 3],
        x[rows % 3, columns],
        x[:, columns],
        x.index_select(1, columns),
        x.index_put((rows % 3, columns), torch.tensor(9.0)),
        x.index_put((rows % 3,), source[:1, :1].expand(3, 4), accumulate=True),
        x[[2, 0]],
        torch.take_along_dim(x[:2], index, dim=1),
    )


@family.case(EXACT, "indexing")
def gather_and_scatter() -> Built:
    index = torch.tensor([[0, 2, 1], [3, 0, 2]])
    return single(Function(gathered), Call(torch.randn(3, 4), index, torch.randn(2, 3)))


def written(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Write into slices of a copy."""
    z = x.clone()
    z[1:3, ::2] = y
    z[-1] += 1.0
    z[:, 1].mul_(2.0)
    z[0, 0] = 5.0
    w = torch.zeros(4, 4)
    w[:2] = z[2:]
    return z, w


@family.case(EXACT, "indexing", "views")
def slice_assignment() -> Built:
    return single(Function(written), Call(torch.randn(4, 4), torch.randn(2, 2)))


class Embedded(nn.Module):
    """Looks up words, adds positions, and picks out one position of every row."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4, padding_idx=1)
        self.register_buffer("places", torch.arange(6).flip(0))
        self.positions = nn.Embedding(6, 4)

    places: torch.Tensor

    def forward(self, words: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.positions(self.places[: words.shape[1]])
        picked: torch.Tensor = x[torch.arange(words.shape[0]), last]
        return picked


@family.case(EXACT, "indexing")
def embedding_and_index() -> Built:
    calls = (Call(torch.randint(0, 10, (3, 5)), torch.randint(0, 5, (3,))) for _ in range(2))
    return single(Embedded(), *calls)


def same_twice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return one value at several places, and views of it."""
    y = x * 2.0
    return y, y, y.view(-1), y.t(), y


@family.case(EXACT, "outputs", "aliasing")
def same_output_twice() -> Built:
    return single(Function(same_twice), Call(torch.randn(2, 3)))


def input_views(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return views of inputs, an input twice, and nothing computed."""
    return x.view(6), y, x[0], y, x.transpose(0, 1)


@family.case(EXACT, "outputs", "aliasing", "views")
def views_of_inputs() -> Built:
    return single(Function(input_views), Call(torch.randn(2, 3), torch.randn(2)))


def no_dimensions(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Compute with tensors that have no dimensions."""
    return x + 1, x * n, x.reshape(1, 1), x.expand(3), torch.stack([x, x]), n + 1, x.sum(), x[None].max(), x.square()


@family.case(EXACT, "scalars")
def zero_dimensional() -> Built:
    calls = (Call(torch.tensor(2.5), torch.tensor(3)), Call(torch.tensor(-1.0), torch.tensor(0)))
    return single(Function(no_dimensions), *calls)


def no_elements(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Compute with tensors that have no elements."""
    return torch.cat([x, y]), x * 2, x.sum(0), x @ y.t(), torch.cat([y, x, y], dim=0) + 1, x.reshape(3, 0), y.sum()


@family.case(EXACT, "empty")
def zero_sized() -> Built:
    return single(Function(no_elements), Call(torch.randn(0, 3), torch.ones(2, 3)))


class Constants(nn.Module):
    """Equal constants, constants that are views of one storage, an expanded one and one made in `forward`."""

    whole: torch.Tensor
    row: torch.Tensor
    column: torch.Tensor
    same: torch.Tensor
    wide: torch.Tensor
    turned: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        storage = torch.arange(12.0)
        self.register_buffer("whole", storage.view(3, 4))
        self.register_buffer("row", storage.view(3, 4)[1])
        self.register_buffer("column", storage.view(3, 4)[:, 2])
        self.register_buffer("same", storage.view(3, 4).clone())
        self.register_buffer("wide", torch.tensor([[1.0], [2.0], [3.0]]).expand(3, 4))
        self.register_buffer("turned", storage.view(4, 3).t())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = torch.tensor([4.0, 3.0, 2.0, 1.0])
        read = [x + buffer for buffer in (self.whole, self.row, self.same, self.wide, self.turned)]
        return *read, x.t() + self.column, x + made, torch.full((2,), 0.5), torch.arange(3), torch.ones(2, 2)


@family.case(EXACT, "constants")
def constant_storages() -> Built:
    return single(Constants(), Call(torch.randn(3, 4)))


class Tied(nn.Module):
    """Two layers, the embedding at the input and the head at the output, share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.embedding(words))
        return logits


@family.case(ROUNDING, "constants")
def tied_weights() -> Built:
    return single(Tied(), *(Call(torch.randint(0, 7, (2, 3))) for _ in range(2)))


class PlainValues(nn.Module):
    """Takes a number, a flag and nothing, and returns such things beside a tensor."""

    def forward(self, x: torch.Tensor, n: int, flag: bool, nothing: None) -> tuple[object, ...]:
        return x * n if flag else x, n, nothing, flag, 0.5, x.shape[0]


@family.case(EXACT, "inputs", "outputs", "scalars")
def plain_values() -> Built:
    return single(PlainValues(), Call(torch.randn(2, 2), 3, True, None), Call(torch.randn(2, 2), 3, True, None))

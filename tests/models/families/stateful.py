"""Models that change their buffers: consecutive calls on one loaded method must see the state of the call before."""

from __future__ import annotations

import torch
from tests.models.case import EXACT, ROUNDING, SHALLOW, Built, Call, Family, single
from torch import nn

family = Family("stateful")


class Decoder(nn.Module):
    """One attention layer that keeps keys and values of earlier positions in buffers."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, width: int = 16, heads: int = 2, length: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.length = length
        self.embedding = nn.Embedding(20, width)
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, 20)
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = self.embedding(token)
        query, key, value = (
            part.view(1, 1, self.heads, -1).transpose(1, 2) for part in self.project(x).chunk(3, dim=-1)
        )
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        scores = query @ self.keys.transpose(-2, -1) / key.shape[-1] ** 0.5
        future = torch.arange(self.length) > position
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        answer: torch.Tensor = self.output((weights @ self.values).transpose(1, 2).reshape(1, 1, -1))
        return answer


@family.case(SHALLOW, "attention", "decoder")
def kv_cache() -> Built:
    steps = [Call(torch.randint(0, 20, (1, 1)), torch.tensor([position])) for position in range(5)]
    return single(Decoder(), *steps)


class SlicedCache(nn.Module):
    """A cache that moves its window to the left and writes at the end, through a slice."""

    window: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.zeros(2, 6, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.window.copy_(torch.roll(self.window, -1, dims=1))
        self.window[:, -1] = x
        return self.window.amax(dim=1)


@family.case(EXACT, "views")
def sliding_window() -> Built:
    return single(SlicedCache(), *(Call(torch.randn(2, 3)) for _ in range(8)))


class Counter(nn.Module):
    """Counts its calls in an int64 buffer and sums its inputs in a float one."""

    calls: torch.Tensor
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)
        self.total.add_(x)
        return self.total / self.calls, self.calls.clone()


@family.case(ROUNDING)
def counter() -> Built:
    return single(Counter(), *(Call(torch.randn(3)) for _ in range(4)))


class Swap(nn.Module):
    """Two buffers change places in every call; a write-back of one before the other is read loses a value."""

    first: torch.Tensor
    second: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros(3))
        self.register_buffer("second", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old = self.first.clone()
        self.first.copy_(self.second)
        self.second.copy_(old)
        self.first.add_(x)
        return self.first.clone(), self.second.clone()


@family.case(EXACT)
def buffers_swapped() -> Built:
    return single(Swap(), *(Call(torch.arange(3.0) + step) for step in range(5)))


class PureSwap(nn.Module):
    """Two buffers change places and nothing else happens to them."""

    first: torch.Tensor
    second: torch.Tensor

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros(2))
        self.register_buffer("second", torch.zeros(2))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old_first, old_second = self.first.clone(), self.second.clone()
        fresh = self.calls.eq(0.0).to(x.dtype)
        self.calls.add_(1.0)
        self.first.copy_(old_second + fresh * x)
        self.second.copy_(old_first)
        return old_first + 0.0, old_second + 0.0


@family.case(EXACT)
def buffers_rotated() -> Built:
    return single(PureSwap(), *(Call(torch.tensor([1.0, 2.0]) * step) for step in range(1, 6)))


class OldValue(nn.Module):
    """Returns a buffer as it was before this call, and uses the new value as well."""

    previous: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("previous", torch.zeros(2, 2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.previous.clone()
        self.previous.copy_(x)
        return before, x - before


@family.case(EXACT)
def buffer_read_after_write() -> Built:
    return single(OldValue(), *(Call(torch.randn(2, 2)) for _ in range(4)))


class Twice(nn.Module):
    """Writes one buffer twice in a call and reads it in between, through views of it."""

    board: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("board", torch.zeros(3, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.board[0].add_(x)
        middle = self.board.sum(dim=0)
        self.board[1:, 1:3].copy_(middle[:2])
        return middle, self.board * 2.0


@family.case(ROUNDING, "views")
def buffer_written_twice() -> Built:
    return single(Twice(), *(Call(torch.randn(4)) for _ in range(4)))


class MovingAverage(nn.Module):
    """Normalises with statistics that it keeps up to date, as batch normalisation does when training."""

    mean: torch.Tensor
    variance: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.lerp_(x.mean(0), 0.1)
        self.variance.mul_(0.9).add_(0.1 * x.var(0, correction=0))
        return (x - self.mean) * torch.rsqrt(self.variance + 1e-3)


@family.case(SHALLOW)
def moving_average() -> Built:
    return single(MovingAverage(), *(Call(torch.randn(6, 4)) for _ in range(3)))


class Streaming(nn.Module):
    """A recurrent cell that keeps its hidden state between calls."""

    hidden: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 6)
        self.register_buffer("hidden", torch.zeros(1, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden.copy_(self.cell(x, self.hidden))
        return self.hidden.clone()


@family.case(SHALLOW, "recurrent")
def streaming_gru() -> Built:
    return single(Streaming(), *(Call(torch.randn(1, 4)) for _ in range(4)))


@family.case(SHALLOW, "recurrent", official_defect="fails if a changed buffer was traced with gradients on")
def traced_with_gradients() -> Built:
    return single(Streaming(), *(Call(torch.randn(1, 4)) for _ in range(3)), grad_mode=True)


class StartsAtOne(nn.Module):
    """A buffer that does not start at zero."""

    product: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("product", torch.tensor([1.0, -2.0, 0.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.product.mul_(x)
        return self.product.clone()


@family.case(EXACT, official_defect="the initial value of a changed buffer is not in the file: it starts at zero")
def buffer_with_initial_value() -> Built:
    return single(StartsAtOne(), *(Call(torch.tensor([2.0, 3.0, -4.0])) for _ in range(3)))


class Ring(nn.Module):
    """Overwrites the oldest of four entries, found by a counter that is itself a buffer."""

    entries: torch.Tensor
    position: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("entries", torch.zeros(4, 2))
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.entries.index_put_((self.position,), x)
        self.position.copy_((self.position + 1) % 4)
        return self.entries.clone()


@family.case(EXACT, "indexing")
def ring_buffer() -> Built:
    return single(Ring(), *(Call(torch.full((1, 2), float(step))) for step in range(6)))


class InputMutated(nn.Module):
    """Writes into its argument; the caller's outputs must be those of the written value."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x * 2.0


@family.case(EXACT, "inputs", official_defect="answers with the changed argument as an extra, first output")
def input_mutated() -> Built:
    return single(InputMutated(), *(Call(torch.randn(3), torch.randn(3)) for _ in range(2)))

"""Models traced with symbolic sizes and run at several of them: smallest, largest, between, and back again."""

from __future__ import annotations

import torch
from tests.models.case import DEEP, EXACT, ROUNDING, SHALLOW, Built, Call, Family, single
from tests.models.families.text import EAGER, Masked, Unmasked, llama_sizes, tokens
from torch import nn
from torch.export import Dim
from torch.nn import functional

family = Family("dynamic")

SCHEDULE = (2, 12, 7, 8, 3, 12)


@family.case(SHALLOW)
def dynamic_batch() -> Built:
    module = nn.Sequential(nn.Linear(6, 10), nn.LayerNorm(10), nn.SiLU(), nn.Linear(10, 3))
    calls = [Call(torch.randn(size, 6)) for size in SCHEDULE]
    return single(module, *calls, example=Call(torch.randn(5, 6)), dynamic_shapes=({0: Dim("batch", max=12)},))


@family.case(DEEP, "vision")
def dynamic_batch_convolution() -> Built:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    calls = [Call(torch.randn(size, 3, 8, 8)) for size in (1, 4, 2)]
    batch = Dim("batch", min=1, max=4)
    return single(module, *calls, example=Call(torch.randn(3, 3, 8, 8)), dynamic_shapes=({0: batch},))


@family.case(DEEP, "vision")
def dynamic_picture() -> Built:
    module = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1), nn.Sigmoid())
    calls = [Call(torch.randn(1, 1, 2 * height, 2 * width)) for height, width in ((2, 6), (8, 8), (5, 3))]
    sizes = {2: 2 * Dim("height", min=2, max=8), 3: 2 * Dim("width", min=2, max=8)}
    return single(module, *calls, example=Call(torch.randn(1, 1, 10, 12)), dynamic_shapes=(sizes,))


@family.case(DEEP, "attention", "text")
def dynamic_sequence() -> Built:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=96,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        **EAGER,
    )

    def call(length: int) -> Call:
        return Call(input_ids=tokens(2, length), attention_mask=torch.ones(2, length, dtype=torch.int64))

    length = Dim("length", min=2, max=12)
    shapes = {"input_ids": {1: length}, "attention_mask": {1: length}}
    model = Masked(BertModel(config), "last_hidden_state")
    return single(model, *map(call, SCHEDULE), example=call(6), dynamic_shapes=shapes)


@family.case(DEEP, "attention", "decoder", "text")
def dynamic_llama() -> Built:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(**llama_sizes(attn_implementation="eager") | {"num_hidden_layers": 1})
    model = Unmasked(LlamaModel(config), "last_hidden_state", use_cache=False)
    calls = [Call(tokens(1, length)) for length in SCHEDULE]
    shapes = ({1: Dim("length", min=2, max=12)},)
    return single(model, *calls, example=Call(tokens(1, 6)), dynamic_shapes=shapes)


class Pairs(nn.Module):
    """Folds an even number of rows into pairs: the size is twice a symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pairs = x.reshape(x.shape[0] // 2, 6)
        answer: torch.Tensor = self.linear(pairs)
        return answer, x[: x.shape[0] // 2] - x[x.shape[0] // 2 :]


@family.case(SHALLOW)
def derived_twice() -> Built:
    half = Dim("half", min=2, max=8)
    calls = [Call(torch.randn(2 * size, 3)) for size in (2, 8, 4, 3)]
    return single(Pairs(), *calls, example=Call(torch.randn(10, 3)), dynamic_shapes=({0: 2 * half},))


class Differences(nn.Module):
    """Takes a sequence and its longer neighbour: one size is another plus one."""

    def forward(self, x: torch.Tensor, longer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return longer[1:] - x, longer.cumsum(0)


@family.case(ROUNDING)
def derived_plus_one() -> Built:
    size = Dim("size", min=2, max=9)

    def call(size: int) -> Call:
        return Call(torch.randn(size, 2), torch.randn(size + 1, 2))

    shapes = ({0: size}, {0: size + 1})
    return single(Differences(), *map(call, (2, 9, 5)), example=call(4), dynamic_shapes=shapes)


class TwoSymbols(nn.Module):
    """Concatenates along one symbolic size and multiplies along another."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = torch.cat([x, y], dim=0)
        return both @ both.transpose(0, 1), torch.nn.functional.pad(both, (1, 2)).flatten()


@family.case(SHALLOW)
def two_symbols() -> Built:
    rows, columns = Dim("rows", min=1, max=5), Dim("columns", min=2, max=7)

    def call(rows: int, columns: int) -> Call:
        return Call(torch.randn(rows, columns), torch.randn(3, columns))

    shapes = ({0: rows, 1: columns}, {1: columns})
    calls = [call(1, 7), call(5, 2), call(5, 7), call(3, 5)]
    return single(TwoSymbols(), *calls, example=call(4, 6), dynamic_shapes=shapes)


class Positions(nn.Module):
    """Builds positions and a causal mask out of the length, and returns the length itself."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        length = x.shape[1]
        positions = torch.arange(length)
        mask = positions[:, None] >= positions[None, :]
        scores = torch.where(mask, x @ x.transpose(1, 2), -1.0e4)
        return x + self.table(positions), functional.softmax(scores, dim=-1), length * 2 + 1


@family.case(SHALLOW, "outputs")
def dynamic_positions() -> Built:
    calls = [Call(torch.randn(2, length, 4)) for length in SCHEDULE]
    shapes = ({1: Dim("length", min=2, max=12)},)
    return single(Positions(), *calls, example=Call(torch.randn(2, 6, 4)), dynamic_shapes=shapes)


class Running(nn.Module):
    """State of fixed size, inputs of changing size."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return x - self.total


@family.case(ROUNDING, "stateful")
def dynamic_with_state() -> Built:
    calls = [Call(torch.randn(size, 3)) for size in (2, 6, 4, 1)]
    shapes = ({0: Dim("size", min=1, max=6)},)
    return single(Running(), *calls, example=Call(torch.randn(5, 3)), dynamic_shapes=shapes)


class Layouts(nn.Module):
    """Views, transpositions and copies whose sizes are symbols."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, length = x.shape[0], x.shape[1]
        heads = x.view(batch, length, 2, 3).permute(0, 2, 1, 3)
        flat = heads.reshape(batch * 2, length, 3)
        return flat, heads.flip(2), x[:, -1], x.expand(2, batch, length, 6).sum(0), x.unsqueeze(1).squeeze(1)


@family.case(EXACT, "views")
def dynamic_views() -> Built:
    calls = [Call(torch.randn(batch, length, 6)) for batch, length in ((1, 8), (4, 2), (4, 8), (3, 5))]
    shapes = ({0: Dim("batch", min=1, max=4), 1: Dim("length", min=2, max=8)},)
    return single(Layouts(), *calls, example=Call(torch.randn(3, 6, 6)), dynamic_shapes=shapes)

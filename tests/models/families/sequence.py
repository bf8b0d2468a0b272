"""Recurrent networks, attention layers of PyTorch itself, routing, and other sequence models."""

from __future__ import annotations

import torch
from tests.models.case import DEEP, SHALLOW, Built, Call, Family, single
from torch import nn
from torch.nn import functional

family = Family("sequence")


@family.case(SHALLOW, "recurrent")
def lstm() -> Built:
    module = nn.LSTM(6, 8, num_layers=2, batch_first=True)
    return single(module, *(Call(torch.randn(2, 5, 6)) for _ in range(2)))


@family.case(SHALLOW, "recurrent")
def lstm_bidirectional() -> Built:
    module = nn.LSTM(6, 5, bidirectional=True)
    return single(module, Call(torch.randn(4, 2, 6), (torch.randn(2, 2, 5), torch.randn(2, 2, 5))))


@family.case(SHALLOW, "recurrent")
def gru() -> Built:
    module = nn.GRU(6, 8, num_layers=2)
    return single(module, *(Call(torch.randn(5, 2, 6), torch.randn(2, 2, 8)) for _ in range(2)))


@family.case(SHALLOW, "recurrent")
def elman() -> Built:
    return single(nn.RNN(4, 7, nonlinearity="relu", batch_first=True), Call(torch.randn(3, 4, 4)))


class Tagger(nn.Module):
    """Words to tags: embedding, recurrent cells unrolled by hand, a linear layer, log probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 8, padding_idx=0)
        self.cell = nn.LSTMCell(8, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        hidden = cell = torch.zeros(words.shape[0], 8)
        answers = []
        for position in range(words.shape[1]):
            hidden, cell = self.cell(x[:, position], (hidden, cell))
            answers.append(functional.log_softmax(self.head(hidden), dim=-1))
        return torch.stack(answers, dim=1)


@family.case(SHALLOW, "recurrent")
def tagger() -> Built:
    return single(Tagger(), *(Call(torch.randint(0, 30, (2, 4))) for _ in range(2)))


@family.case(SHALLOW, "attention")
def transformer_encoder_layer() -> Built:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True, activation="gelu")
    return single(layer, *(Call(torch.randn(2, 6, 16)) for _ in range(2)))


@family.case(SHALLOW, "attention")
def transformer_decoder_layer() -> Built:
    return single(nn.TransformerDecoderLayer(16, 2, 32), Call(torch.randn(5, 2, 16), torch.randn(7, 2, 16)))


class CrossAttention(nn.Module):
    """Multi-head attention with weights returned and keys masked out."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, kdim=12, vdim=10, batch_first=True)

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        answer: tuple[torch.Tensor, torch.Tensor] = self.attention(query, key, value, key_padding_mask=hidden)
        return answer


@family.case(SHALLOW, "attention")
def cross_attention() -> Built:
    hidden = torch.tensor([[False, False, False, True], [False, False, True, True]])
    return single(CrossAttention(), Call(torch.randn(2, 3, 16), torch.randn(2, 4, 12), torch.randn(2, 4, 10), hidden))


class MixtureOfExperts(nn.Module):
    """Every token is answered by its two best experts, weighted; a dense form that has no data-dependent shape."""

    def __init__(self, width: int = 12, experts: int = 4, chosen: int = 2) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.grow = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.shrink = nn.Parameter(torch.randn(experts, 2 * width, width) / width**0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.softmax(self.router(x), dim=-1)
        weights, indices = torch.topk(scores, self.chosen, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        gates = torch.zeros_like(scores).scatter(-1, indices, weights)
        hidden = functional.silu(torch.einsum("td,edh->eth", x, self.grow))
        answers = torch.einsum("eth,ehd->etd", hidden, self.shrink)
        return torch.einsum("etd,te->td", answers, gates), indices


@family.case(SHALLOW, "routing")
def mixture_of_experts() -> Built:
    return single(MixtureOfExperts(), *(Call(torch.randn(5, 12)) for _ in range(2)))


class Gathered(nn.Module):
    """Routing the other way round: the weights of the chosen expert are gathered for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 3)
        self.experts = nn.Parameter(torch.randn(3, 6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores, best = self.router(x).max(dim=-1)
        return torch.bmm(x.unsqueeze(1), self.experts[best]).squeeze(1) * torch.sigmoid(scores).unsqueeze(-1)


@family.case(SHALLOW, "routing", "indexing")
def switch_routing() -> Built:
    return single(Gathered(), *(Call(torch.randn(5, 6)) for _ in range(2)))


class TopK(nn.Module):
    """Scores, and the best and the worst of them."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 20)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scores = self.head(x)
        best, where = torch.topk(scores, 3, dim=-1)
        worst, _ = torch.topk(scores, 2, dim=-1, largest=False)
        return best, where, worst


@family.case(SHALLOW, "routing", "outputs")
def top_k() -> Built:
    return single(TopK(), *(Call(torch.randn(3, 8)) for _ in range(2)))


class TemporalConvolution(nn.Module):
    """Causal dilated one-dimensional convolutions with gates and skips, as WaveNet has them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(3, 8, 1)
        self.filters = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**level) for level in range(3))
        self.mix = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(3))
        self.head = nn.Conv1d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        skips = torch.zeros_like(x)
        for level, (conv, mix) in enumerate(zip(self.filters, self.mix, strict=True)):
            y = functional.glu(conv(functional.pad(x, (2**level, 0))), dim=1)
            skips = skips + y
            x = x + mix(y)
        logits: torch.Tensor = self.head(torch.relu(skips))
        return logits


@family.case(DEEP, "convolution")
def wavenet() -> Built:
    return single(TemporalConvolution(), *(Call(torch.randn(2, 3, 16)) for _ in range(2)))


class StateSpace(nn.Module):
    """A diagonal state space layer unrolled over a few steps, as in Mamba without its selective scan kernel."""

    def __init__(self, width: int = 6, states: int = 4) -> None:
        super().__init__()
        self.decay = nn.Parameter(-torch.rand(width, states))
        self.project = nn.Linear(width, 2 * states + width)
        self.states = states
        self.skip = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        into, out, step = torch.split(self.project(x), [self.states, self.states, x.shape[-1]], dim=-1)
        step = functional.softplus(step)
        state = x.new_zeros(x.shape[0], x.shape[2], self.states)
        answers = []
        for time in range(x.shape[1]):
            delta = step[:, time, :, None]
            state = torch.exp(delta * self.decay) * state + delta * into[:, time, None, :] * x[:, time, :, None]
            answers.append((state * out[:, time, None, :]).sum(-1))
        return torch.stack(answers, 1) + x * self.skip


@family.case(SHALLOW, "recurrent")
def state_space() -> Built:
    return single(StateSpace(), *(Call(torch.randn(2, 5, 6)) for _ in range(2)))


class Rotary(nn.Module):
    """Positions are computed where gradients are off, as in Llama, while the rest is traced with gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.rand(1, 4, 1))
        self.projection = nn.Linear(8, 8)

    frequencies: torch.Tensor

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            angles = (self.frequencies.to(torch.float32) @ position[:, None, :].float()).transpose(1, 2)
            both = torch.cat((angles, angles), dim=-1)
            cosine, sine = both.cos().to(x.dtype), both.sin().to(x.dtype)
        y = self.projection(x)
        return y * cosine + torch.cat((-y[..., 4:], y[..., :4]), dim=-1) * sine


@family.case(SHALLOW, "attention")
def rotary_positions() -> Built:
    return single(Rotary(), Call(torch.randn(1, 5, 8), torch.arange(5)[None]), grad_mode=True)

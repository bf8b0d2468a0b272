"""Small networks, among them the two of the public tutorial, and programs with several methods."""

from __future__ import annotations

import torch
from tests.models.case import EXACT, ROUNDING, SHALLOW, Built, Call, Family, Method, single
from torch import nn

family = Family("basic")


@family.case(SHALLOW)
def mlp() -> Built:
    module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4), nn.Softmax(-1))
    return single(module, *(Call(torch.randn(3, 16)) for _ in range(3)))


class SimpleConv(nn.Module):
    """The first model of the tutorial, on a smaller picture."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels=3, out_channels=16, kernel_size=3, padding=1)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a: torch.Tensor = self.conv(x)
        return torch.relu(a)


@family.case(SHALLOW, "vision")
def simple_conv() -> Built:
    return single(SimpleConv(), Call(torch.randn(1, 3, 64, 64)))


class EndToEnd(nn.Module):
    """The last model of the tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.param = nn.Parameter(torch.rand(3, 4))
        self.linear = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x + self.param)
        return y.clamp(min=0.0, max=1.0)


@family.case(ROUNDING)
def end_to_end() -> Built:
    return single(EndToEnd(), Call(torch.randn(3, 4)), Call(torch.randn(3, 4)))


class Autoencoder(nn.Module):
    """Two halves that are lowered as two methods of one program."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Parameter(torch.randn(5, 10))

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.shared.T)

    def decode(self, code: torch.Tensor) -> torch.Tensor:
        return code @ self.shared


class Half(nn.Module):
    """One half of an `Autoencoder`, as a module with a `forward`."""

    def __init__(self, whole: Autoencoder, name: str) -> None:
        super().__init__()
        self.whole = whole
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = getattr(self.whole, self.name)(x)
        return y


@family.case(SHALLOW, "methods")
def encode_decode() -> Built:
    whole = Autoencoder()
    return Built(
        {
            "encode": Method(Half(whole, "encode"), [Call(torch.randn(2, 10)) for _ in range(2)]),
            "decode": Method(Half(whole, "decode"), [Call(torch.randn(2, 5)) for _ in range(2)]),
        }
    )


class Accumulator(nn.Module):
    """A running sum; its variant in another method has a buffer of its own."""

    total: torch.Tensor

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = sign
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x * self.sign)
        return self.total * 1.0


@family.case(EXACT, "methods", "stateful")
def two_stateful_methods() -> Built:
    steps = [Call(torch.arange(4.0) + step) for step in range(3)]
    return Built({"deposit": Method(Accumulator(1.0), steps), "withdraw": Method(Accumulator(-2.0), steps)})


class ManyOutputs(nn.Module):
    """Outputs of several shapes and dtypes in a nested container."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.heads = nn.ModuleList(nn.Linear(8, size) for size in (1, 3, 5))

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        y = torch.relu(self.stem(x))
        logits = self.heads[1](y)
        return {"regression": self.heads[0](y), "class": (logits, logits.argmax(-1)), "rest": [self.heads[2](y), y > 0]}


@family.case(SHALLOW, "outputs")
def multi_output() -> Built:
    return single(ManyOutputs(), Call(torch.randn(2, 8)), Call(torch.randn(2, 8)))


class Named(nn.Module):
    """Takes named arguments, one of them never read."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4))
        self.never_used = nn.Parameter(torch.randn(7))
        self.register_buffer("never_read", torch.randn(3))

    def forward(self, x: torch.Tensor, unused: torch.Tensor, *, bias: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x * self.scale + bias


@family.case(ROUNDING, "inputs")
def unused_inputs() -> Built:
    def call() -> Call:
        return Call(torch.randn(2, 4), torch.randn(3), bias=torch.randn(4), mask=torch.ones(2, 4, dtype=torch.bool))

    return single(Named(), call(), call())


class Passthrough(nn.Module):
    """Returns its input, a constant, a parameter and something computed."""

    fixed: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("fixed", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x, self.fixed, x + self.weight, self.weight


@family.case(EXACT, "outputs", "aliasing")
def returns_input_and_constant() -> Built:
    return single(Passthrough(), Call(torch.randn(2, 3)), Call(torch.randn(2, 3)))

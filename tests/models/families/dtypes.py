"""Models in other dtypes than float32, models that mix dtypes, and numbers in every position of an operator."""

from __future__ import annotations

import torch
from tests.models.case import BRAIN, EXACT, HALF, ROUNDING, SHALLOW, Built, Call, Family, Function, Tolerance, single
from torch import nn

family = Family("dtypes")


def block(dtype: torch.dtype) -> nn.Module:
    """Return a small feed-forward network with normalisation in `dtype`."""
    layers = (nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 5), nn.Softmax(-1))
    return nn.Sequential(*layers).to(dtype)


@family.case(HALF)
def float16() -> Built:
    return single(block(torch.float16), *(Call(torch.randn(3, 12, dtype=torch.float16)) for _ in range(2)))


@family.case(BRAIN)
def bfloat16() -> Built:
    return single(block(torch.bfloat16), *(Call(torch.randn(3, 12, dtype=torch.bfloat16)) for _ in range(2)))


DOUBLE = Tolerance(1e-12, 1e-12, "float64 sums taken in another order")


@family.case(DOUBLE)
def float64() -> Built:
    module = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 5)).double()
    return single(module, Call(torch.randn(3, 12, dtype=torch.float64)))


class HalfConvolution(nn.Module):
    """Convolution in float16 that answers in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1).half()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.conv(x.half())
        return torch.relu(y).float().mean((2, 3))


@family.case(HALF, "convolution")
def float16_inside() -> Built:
    return single(HalfConvolution(), *(Call(torch.randn(1, 2, 6, 6)) for _ in range(2)))


def integer_arithmetic(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Use int64 and int32 arithmetic with signs, division and bits."""
    return (
        x + y * 3,
        x - y,
        torch.div(x, y, rounding_mode="floor"),
        torch.div(x, y, rounding_mode="trunc"),
        x.abs() % y.abs(),
        torch.fmod(x, 4),
        (x & y) | (x ^ 5),
        -x.abs() + torch.sign(y),
        x.sum(1) + y.amax(1),
        torch.clamp(x, -3, 4),
        x.cumsum(1),
    )


def integers(dtype: torch.dtype) -> Call:
    """Return two tensors of small integers, the second without zeros."""
    divisor = torch.randint(1, 6, (2, 5), dtype=dtype) * torch.tensor([1, -1, 1, -1, 1], dtype=dtype)
    return Call(torch.randint(-9, 10, (2, 5), dtype=dtype), divisor)


@family.case(EXACT, "integers")
def int64() -> Built:
    return single(Function(integer_arithmetic), *(integers(torch.int64) for _ in range(2)))


@family.case(EXACT, "integers")
def int32() -> Built:
    return single(Function(integer_arithmetic), *(integers(torch.int32) for _ in range(2)))


def large_integers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Use constants that float32, float64 and int32 cannot hold."""
    return x + 9007199254740993, x * 4294967297, x == 9223372036854775807, x - (1 << 40)


@family.case(EXACT, "integers", "scalars")
def integers_beyond_float() -> Built:
    return single(Function(large_integers), Call(torch.tensor([0, 1, -5, 1 << 33, 9223372036854775807 - (1 << 54)])))


def bytes_and_shorts(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Mix uint8, int8 and int16, with wrap-around where PyTorch defines it."""
    return x + 200, y * 3, z - y, x + y, x > 100, torch.cat([y, z.to(torch.int8)]), x.float() / 255


@family.case(ROUNDING, "integers", "promotion")
def small_integers() -> Built:
    x = torch.tensor([0, 100, 255], dtype=torch.uint8)
    y = torch.tensor([-128, 5, 127], dtype=torch.int8)
    return single(Function(bytes_and_shorts), Call(x, y, torch.tensor([-300, 0, 300], dtype=torch.int16)))


def promotion(i: torch.Tensor, f: torch.Tensor, h: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Meet operands of different dtypes."""
    return i + f, i * b, f - b.float(), h + f, i / 2, i / i.new_full((3,), 4), torch.where(b, i, f), b + b, f * i.sum()


@family.case(ROUNDING, "promotion")
def mixed_dtypes() -> Built:
    def call() -> Call:
        half = torch.randn(3).half()
        return Call(torch.randint(1, 9, (3,)), torch.randn(3), half, torch.tensor([True, False, True]))

    return single(Function(promotion), call(), call())


def logic(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Compare, and combine the answers."""
    above, equal = x > y, x == y
    both = torch.logical_and(above, torch.logical_not(equal))
    either = above | equal
    return above, equal, both, either, above ^ equal, ~above, x.ge(0).any(), (x <= 1).sum(0), y.ne(2), above.any(1)


@family.case(EXACT, "boolean")
def comparisons() -> Built:
    def call() -> Call:
        return Call(torch.randint(-2, 3, (3, 4)).float(), torch.randint(-2, 3, (3, 4)).float())

    return single(Function(logic), call(), call())


def float_scalars(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Put numbers wherever an operator takes one."""
    return (
        x + 1,
        2 * x,
        x / 3,
        x**2,
        x.abs() ** 0.5,
        2**x,
        1 - x,
        torch.add(x, 1, alpha=3),
        torch.sub(x, x, alpha=0.5),
        x.clamp(min=-1),
        x.clamp(0, 1.5),
        3 / (x + 5),
        torch.rsub(x, 2.5, alpha=2),
        x == 0,
        torch.maximum(x, x.new_tensor(0.25)),
    )


@family.case(ROUNDING, "scalars")
def scalar_positions() -> Built:
    exact = torch.tensor([[0.0, 1.0, -1.0], [2.0, 0.5, 4.0]])
    return single(Function(float_scalars), Call(torch.randn(2, 3)), Call(exact))


def integer_scalars(i: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Meet integers with floating-point numbers and booleans with numbers."""
    return i + 0.5, i * 1.5, 2.5 - i, i / 2, i // 2, i % 3, b + 1, b * 2.5, i + True, i > 1.5, torch.where(b, i, 7)


@family.case(ROUNDING, "scalars", "promotion")
def integers_and_scalars() -> Built:
    return single(Function(integer_scalars), Call(torch.tensor([-3, 0, 5]), torch.tensor([True, False, True])))


def nothing_and_infinity(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Carry the values that arithmetic treats specially."""
    return x + float("inf"), x * 0.0, torch.isnan(x), torch.isinf(x), x == x, torch.where(torch.isnan(x), 0.0, x), -x


@family.case(EXACT, "special")
def special_values() -> Built:
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 3.4e38])
    return single(Function(nothing_and_infinity), Call(special))


class Normalised(nn.Module):
    """Turns bytes of a picture into probabilities, as the first and last steps of a real application do."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, picture: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = (picture.to(torch.float32) / 255 - self.mean) / 0.25
        scores = torch.softmax(self.conv(x).mean((2, 3)), dim=1)
        return scores, (scores * 255).round().to(torch.uint8)


@family.case(SHALLOW, "integers", "vision")
def picture_bytes() -> Built:
    return single(Normalised(), Call(torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)))

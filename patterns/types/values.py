"""Values for trials: tensors of every profile and layout, and numbers within bounds."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from exirkit.patterns.types.literals import Interval, ValueSet, fits, rounded
from exirkit.patterns.types.sizes import SizeExpression
from exirkit.patterns.types.variable import Variable

PROFILES = ("normal", "special", "boundary")
"""Ordinary values; infinities, nan, signed zero and denormals among them; mostly values at the limits of the dtype."""

Domain = Interval | ValueSet | None

_SPECIAL_SHARE = {"normal": 0.0, "special": 0.35, "boundary": 0.7}


def make_tensor(
    dtype: torch.dtype,
    sizes: Sequence[int],
    rng: random.Random,
    *,
    profile: str = "normal",
    domain: Domain = None,
    is_constant: bool = False,
    layouts: bool = False,
) -> torch.Tensor:
    """Return a tensor for a trial.

    Args:
        dtype: Its dtype.
        sizes: Its shape.
        rng: Source of chance; the same state gives the same tensor.
        profile: One of `PROFILES`.
        domain: What its elements are.
        is_constant: More often all elements are equal, as guards on constants ask.
        layouts: Every order of dims in memory is as likely as another.
    """
    values = _values(dtype, sizes, rng, profile, domain)
    splat_share = 0.5 if isinstance(domain, ValueSet) else 0.25 if is_constant else 0.03
    if values.numel() and rng.random() < splat_share:
        values = _splat(values, rng, domain, is_constant)
    return _laid_out(values, rng, layouts)


def _values(dtype: torch.dtype, sizes: Sequence[int], rng: random.Random, profile: str, domain: Domain) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.getrandbits(48))
    if isinstance(domain, ValueSet):
        pool = torch.tensor([number for number in domain.numbers if fits(number, dtype)], dtype=dtype)
        return pool[torch.randint(0, len(pool), tuple(sizes), generator=generator)]
    values = _ordinary(dtype, sizes, generator, domain)
    pool = special_values(dtype, profile, domain)
    share = _SPECIAL_SHARE[profile]
    if share and pool.numel():
        chosen = pool[torch.randint(0, len(pool), tuple(sizes), generator=generator)]
        values = torch.where(torch.rand(tuple(sizes), generator=generator) < share, chosen, values)
    return values


def _ordinary(
    dtype: torch.dtype, sizes: Sequence[int], generator: torch.Generator, domain: Interval | None
) -> torch.Tensor:
    sizes = tuple(sizes)
    if dtype == torch.bool and domain is None:
        return torch.randint(0, 2, sizes, generator=generator).to(dtype)
    if dtype.is_complex:
        return torch.randn(sizes, generator=generator, dtype=torch.complex64).to(dtype)
    low, high = (None, None) if domain is None else domain.limits(dtype)
    if not dtype.is_floating_point:
        least, greatest = _integer_range(dtype, low, high)
        return torch.randint(least, greatest + 1, sizes, generator=generator, dtype=torch.int64).to(dtype)
    if low is None and high is None:
        made = torch.randn(sizes, generator=generator)
        # Sometimes halves: they are equal to each other, and rounded to even.
        return (made * 4).round().div(2).to(dtype) if torch.rand((), generator=generator) < 0.1 else made.to(dtype)
    if low is None or high is None or not math.isfinite(high - low):
        spread = torch.randn(sizes, generator=generator).abs()
        made = spread + low if low is not None and math.isfinite(low) else (high or 0.0) - spread
    else:
        made = low + (high - low) * torch.rand(sizes, generator=generator, dtype=torch.float64)
    return made.to(dtype).clamp(low, high)


def _integer_range(dtype: torch.dtype, low: float | None, high: float | None) -> tuple[int, int]:
    limits = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    least = max(limits[0], -(1 << 62), math.ceil(low) if low is not None and math.isfinite(low) else limits[0])
    greatest = min(limits[1], (1 << 62), math.floor(high) if high is not None and math.isfinite(high) else limits[1])
    if least > greatest:
        raise ValueError(f"{dtype} has no integer between {low} and {high}")
    if low is None or not math.isfinite(low):
        least = max(least, min(-8, greatest))
    return least, min(greatest, least + 24) if high is None or greatest > least + 1000 else greatest


def special_values(dtype: torch.dtype, profile: str, domain: Domain = None) -> torch.Tensor:
    """Return the values at which arithmetic of a dtype is special, of those in a domain.

    Args:
        dtype: The dtype.
        profile: `special`, or `boundary`, which leaves out what is not finite.
        domain: What elements are.
    """
    if dtype == torch.bool:
        pool = torch.tensor([False, True])
    elif dtype.is_complex:
        pool = torch.tensor([0.0, 1.0, -1.0, 1.0j], dtype=dtype)
    elif dtype.is_floating_point:
        limits = torch.finfo(dtype)
        numbers = [0.0, -0.0, 1.0, -1.0, limits.tiny, limits.tiny / 2, limits.eps, limits.max, limits.min]
        # What is rounded to even.
        numbers += [0.5, -0.5, 1.5, 2.5, -2.5]
        numbers += [math.inf, -math.inf, math.nan] if profile == "special" else []
        pool = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    else:
        found = torch.iinfo(dtype)
        edges = {found.min, found.max, found.max - 1, found.min + 1, 0, 1, *((-1,) if found.min else ())}
        pool = torch.tensor(sorted(edges), dtype=torch.int64 if found.max < 1 << 63 else dtype).to(dtype)
    if isinstance(domain, Interval):
        low, high = domain.limits(dtype)
        if dtype.is_floating_point:
            pool = torch.cat([pool, torch.tensor([one for one in (low, high) if one is not None]).to(dtype)])
        pool = torch.stack([one for one in pool if domain.holds_for(one)] or [pool[:0].sum().to(dtype)])
        pool = pool if all(domain.holds_for(one) for one in pool) else pool[:0]
    return pool


def _splat(values: torch.Tensor, rng: random.Random, domain: Domain, is_constant: bool) -> torch.Tensor:
    if domain is None and is_constant and rng.random() < 0.8:
        return torch.full_like(values, rng.choice((1, 1, 0)))
    return values.flatten()[rng.randrange(values.numel())].expand(values.shape).clone()


def _laid_out(values: torch.Tensor, rng: random.Random, layouts: bool) -> torch.Tensor:
    rank = values.dim()
    if layouts:
        chance = rng.random()
        if rank == 4 and chance < 0.4:
            return values.contiguous(memory_format=torch.channels_last)
        return values if rank < 2 or chance < 0.6 else _in_order(values, rng.sample(range(rank), rank))
    if rank == 0 or rng.random() > 0.08:
        return values
    if rng.random() < 0.5:
        return _in_order(values, rng.sample(range(rank), rank))
    # Every second element of a tensor that is twice as wide.
    wide = values.new_zeros((*values.shape[:-1], 2 * values.shape[-1]))
    wide[..., ::2] = values
    return wide[..., ::2]


def _in_order(values: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    inverse = [0] * len(order)
    for place, dim in enumerate(order):
        inverse[dim] = place
    return values.permute(tuple(order)).contiguous().permute(tuple(inverse))


# Numbers for trials, within bounds and of a profile


class UnsolvedError(Exception):
    """These choices contradict each other; others may not."""


class ValueMaker:
    """Makes the values that are not tensors.

    Args:
        rng: Source of randomness.
        profile: `normal`, `special` or `boundary`.
        names: Known values and sizes.
        is_symbolic: Sizes are symbols, which are never compared.
    """

    def __init__(
        self, rng: random.Random, profile: str, names: Mapping[str, Any], *, is_symbolic: bool = False
    ) -> None:
        self.rng = rng
        self.profile = profile
        self.names = names
        self.is_symbolic = is_symbolic

    def make(self, variable: Variable) -> Any:
        """Return a value of a type.

        Raises:
            UnsolvedError: There is none for these tensors.
        """
        return variable.draw_symbolic(self) if self.is_symbolic else variable.draw(self)

    def bound(self, expression: SizeExpression | None) -> int | None:
        """Return the value of a bound.

        Raises:
            UnsolvedError: It is not known.
        """
        if expression is None:
            return None
        try:
            value = expression.evaluate(self.names)
        except ArithmeticError:
            raise UnsolvedError from None
        if type(value) is not int:
            raise UnsolvedError
        return value

    def integer(self, low: int | None, high: int | None) -> int:
        """Return an integer between bounds.

        Raises:
            UnsolvedError: There is none.
        """
        if low is None:
            low = -4 if high is None else high - 8
        if high is None:
            high = low + 12
        if high < low:
            raise UnsolvedError
        if self.profile == "boundary" and self.rng.random() < 0.5:
            return self.rng.choice((low, high))
        return self.rng.randint(low, high)

    def floating(self, low: float | None, high: float | None) -> float:
        """Return a float between bounds."""
        if low is None and high is None:
            return self._unbounded()
        edges = [one for one in (low, high) if one is not None]
        if self.rng.random() < (0.5 if self.profile == "boundary" else 0.1):
            return self.rng.choice([*edges, *map(rounded, edges)])
        if low is None or high is None or not math.isfinite(high - low):
            spread = abs(self.rng.gauss(0.0, 2.0))
            return low + spread if low is not None and math.isfinite(low) else (high or 0.0) - spread
        if low > 0 and high / low > 10:
            return min(high, max(low, math.exp(self.rng.uniform(math.log(low), math.log(high)))))
        return self.rng.uniform(low, high)

    def _unbounded(self) -> float:
        usual = (0.0, 1.0, -1.0, 0.5, 2.0, self.rng.gauss(0.0, 3.0))
        special = (math.inf, -math.inf, math.nan, -0.0, 1e-45, 3.4028234663852886e38)
        return self.rng.choice(special if self.profile == "special" and self.rng.random() < 0.4 else usual)


def drawn_length(rng: random.Random, least: int, most: int) -> int:
    """Return the length of a list: mostly a short one, and beyond `most` now and then.

    What decides about long ones is peeked at and not drawn, so that all other draws are the same without them.
    """
    count = rng.randint(least, most)
    ahead = random.Random()
    ahead.setstate(rng.getstate())
    return count if count < most or ahead.random() < 0.75 else most + ahead.randint(1, 5)

"""What an analysis can know of tensors: how facts join, grow in loops, follow from expressions, and are tried."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from exirkit.patterns.functions.grids import Elements, Grid, dequantised, elements_of, quantised
from exirkit.patterns.functions.ranges import (
    Range,
    as_range,
    hull,
    in_dtype,
    range_of_elements,
    widest,
)

from .model import DomainName


class Domain(Protocol):
    """Facts of one kind.

    Attributes:
        word: What rows and rules call to ask for the fact of a tensor.
    """

    word: str

    def unknown(self, value: torch.Tensor) -> Any:
        """Return what is true of every tensor of a dtype and shape."""
        ...

    def of_tensor(self, tensor: torch.Tensor) -> Any:
        """Return the most that can be said of a tensor."""
        ...

    def of_result(self, written: Any, value: torch.Tensor, *, may_be_nan: bool) -> Any:
        """Return the fact that a row writes for a result.

        Raises:
            TypeError: It is not one.
        """
        ...

    def joined(self, one: Any, other: Any) -> Any:
        """Return what is true where one of two facts is."""
        ...

    def widened(self, before: Any, after: Any, value: torch.Tensor) -> Any:
        """Return a fact that follows from both, of which only finitely many follow one another."""
        ...

    def is_lost(self, facts: list[Any]) -> bool:
        """Whether something of arguments goes over to results unless a row says otherwise: here, not being a number."""
        ...

    def drawn(self, tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
        """Return a tensor like one that was drawn, with elements that matter for these facts."""
        ...

    def weaker(self, fact: Any, value: torch.Tensor, rng: random.Random) -> Any:
        """Return a fact that follows from another one."""
        ...

    def problem(self, fact: Any, tensor: torch.Tensor) -> str | None:
        """Return what of a tensor contradicts a fact, or None."""
        ...

    def text(self, fact: Any) -> str:
        """Return a fact as accounts show it."""
        ...


class Ranges:
    """Between which numbers all elements lie."""

    word = "range"

    def unknown(self, value: torch.Tensor) -> Range:
        """Return the range of a dtype."""
        return widest(value.dtype)

    def of_tensor(self, tensor: torch.Tensor) -> Range:
        """Return the least and greatest element."""
        return range_of_elements(tensor)

    def of_result(self, written: Any, value: torch.Tensor, *, may_be_nan: bool) -> Range:
        """Return a range whose ends are numbers of the dtype of the result."""
        one = as_range(written)
        return in_dtype(Range(one.lo, one.hi, one.nan or may_be_nan), value.dtype)

    def joined(self, one: Range, other: Range) -> Range:
        """Return the range of both."""
        return hull(one, other)

    def widened(self, before: Range, after: Range, value: torch.Tensor) -> Range:
        """Return a range without an end where it grows."""
        ends = widest(value.dtype)
        lo = before.lo if before.lo <= after.lo else ends.lo
        hi = before.hi if before.hi >= after.hi else ends.hi
        return Range(lo, hi, before.nan or after.nan)

    def is_lost(self, facts: list[Range]) -> bool:
        """Whether an argument may be not a number."""
        return any(one.nan for one in facts)

    def drawn(self, tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
        """Return other numbers: of all magnitudes, rounded ones, the ends of the dtype, infinite ones, none at all."""
        if tensor.dtype.is_complex or not tensor.numel() or rng.random() < 0.2:
            return tensor
        generator = torch.Generator().manual_seed(rng.getrandbits(32))
        if not tensor.is_floating_point():
            return _integers(tensor, rng, generator)
        numbers = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
        numbers = (
            numbers * 10.0 ** rng.choice((-40, -8, -1, 0, 0, 0, 1, 2, 5, 20)) + rng.choice((0, 0, 1, -3, 100))
        ).to(tensor.dtype)
        if rng.random() < 0.3:
            # Equal elements show what rounding adds to them.
            numbers = numbers.flatten()[0].expand(tensor.shape).clone()
        for one in _ODD if rng.random() < 0.3 else ():
            if rng.random() < 0.4:
                numbers.view(-1)[rng.randrange(numbers.numel())] = one
        return numbers.abs() if rng.random() < 0.3 else numbers

    def weaker(self, fact: Range, value: torch.Tensor, rng: random.Random) -> Range:
        """Return a wider range."""
        if rng.random() < 0.5:
            return fact
        ends = widest(value.dtype)
        wide = [rng.choice((0, 1, 7, abs(end), float("inf"))) for end in (fact.lo, fact.hi)]
        lo, hi = max(ends.lo, fact.lo - wide[0]), min(ends.hi, fact.hi + wide[1])
        is_nan = fact.nan or (ends.nan and rng.random() < 0.5)
        return Range(lo if lo == lo else ends.lo, hi if hi == hi else ends.hi, is_nan)

    def problem(self, fact: Range, tensor: torch.Tensor) -> str | None:
        """Return which element is outside."""
        if tensor.dtype.is_complex or not tensor.numel():
            return None
        found = range_of_elements(tensor)
        if found.nan and not fact.nan:
            return f"there is an element that is not a number, and {fact.text()} is claimed"
        is_all_nan = bool(torch.isnan(tensor).all()) if tensor.is_floating_point() else False
        if not is_all_nan and (found.lo < fact.lo or found.hi > fact.hi):
            return f"elements are in [{found.lo!r}, {found.hi!r}], and {fact.text()} is claimed"
        return None

    def text(self, fact: Range) -> str:
        """Return `[0, 1]`."""
        return fact.text()


_ODD = (float("inf"), float("-inf"), float("nan"), -0.0, 0.0)


def _integers(tensor: torch.Tensor, rng: random.Random, generator: torch.Generator) -> torch.Tensor:
    if tensor.dtype == torch.bool:
        return torch.randint(0, 2, tensor.shape, generator=generator).bool()
    ends = torch.iinfo(tensor.dtype)
    high = min(ends.max, rng.choice((1, 3, 100, 40_000, 3_000_000_000)))
    numbers = torch.randint(max(ends.min, -high), high, tensor.shape, generator=generator).to(tensor.dtype)
    if rng.random() < 0.2:
        numbers.view(-1)[rng.randrange(numbers.numel())] = rng.choice((ends.min, ends.max))
    # Kernels may end the process for the quotient of the least integer and -1, or wrap around as they like.
    return numbers.clamp(min=0) if rng.random() < 0.5 else numbers


def _channels(few: Sequence[Any], count: int, rng: random.Random) -> list[Any]:
    """Return parameters of channels: often in turn, so that tensors share them."""
    if rng.random() < 0.6:
        return [few[at % len(few)] for at in range(count)]
    return [rng.choice(few) for _ in range(count)]


class Grids:
    """With which parameters all elements are quantised without a loss; None where none are known.

    Of stored tensors of one dim the elements are known: they may be the scales of channels.
    """

    word = "grid"

    def unknown(self, value: torch.Tensor) -> None:
        """Return nothing."""
        return

    def of_tensor(self, tensor: torch.Tensor) -> Grid | Elements | None:
        """Return what a trial has drawn a tensor with, or the elements of one with one dim."""
        found: Grid | None = getattr(tensor, _DRAWN, None)
        return elements_of(tensor) if found is None else found

    def of_result(self, written: Any, value: torch.Tensor, *, may_be_nan: bool) -> Grid | None:
        """Return a grid as it is; integers have none."""
        if written is not None and not isinstance(written, Grid):
            raise TypeError(f"a grid or none is needed here, not {type(written).__name__}")
        return written if value.dtype.is_floating_point else None

    def joined(self, one: Grid | Elements | None, other: Grid | Elements | None) -> Grid | Elements | None:
        """Return the grid if both are one."""
        return one if one == other else None

    def widened(
        self, before: Grid | Elements | None, after: Grid | Elements | None, value: torch.Tensor
    ) -> Grid | Elements | None:
        """Return the grid if both are one."""
        return self.joined(before, after)

    def is_lost(self, facts: list[Any]) -> bool:
        """Return False: numbers of a grid are numbers."""
        return False

    def drawn(self, tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
        """Return numbers of a grid; few grids, so that arguments share one."""
        if not tensor.is_floating_point() or rng.random() < 0.1:
            return tensor
        scale, zero, (ints, lo, hi) = rng.choice((0.25, 0.0123)), rng.choice((0, 3)), rng.choice(_INTEGERS)
        grid = Grid(scale, zero, lo, hi, ints)
        if tensor.numel() and tensor.dim() and rng.random() < 0.4:
            axis = rng.randrange(tensor.dim())
            scales, zeros = (_channels(few, tensor.shape[axis], rng) for few in _OF_CHANNELS)
            grid = Grid(tuple(torch.tensor(scales).tolist()), tuple(zeros), lo, hi, ints, axis)
        generator = torch.Generator().manual_seed(rng.getrandbits(32))
        numbers = torch.randint(lo, hi + 1, tensor.shape, generator=generator)
        made = dequantised(numbers, grid, tensor.dtype)
        setattr(made, _DRAWN, grid)
        return made

    def weaker(self, fact: Any, value: torch.Tensor, rng: random.Random) -> Any:
        """Return the grid, or none."""
        return fact if rng.random() < 0.9 else None

    def problem(self, fact: Any, tensor: torch.Tensor) -> str | None:
        """Return which element is beside the grid."""
        if fact is None or not tensor.numel():
            return None
        if isinstance(fact, Elements):
            return None if fact == elements_of(tensor) else "it has other elements"
        if not fact.fits(tensor):
            return f"a tensor of sizes {list(tensor.shape)} does not have the channels of the grid {fact.text()}"
        back = dequantised(quantised(tensor, fact), fact, tensor.dtype)
        wrong = (back != tensor).flatten()
        if not bool(wrong.any()):
            return None
        place = int(wrong.nonzero()[0, 0])
        return f"{float(tensor.flatten()[place])!r} is not a number of the grid {fact.text()}"

    def text(self, fact: Grid | Elements | None) -> str:
        """Return `int8 -128..127, scale 0.25, zero 3`."""
        return "of no known grid" if fact is None else fact.text()


_DRAWN = "_drawn_on_grid"
GRIDS = Grids()
_OF_CHANNELS: tuple[Any, ...] = ((0.25, 0.0123), (0, 3))
_INTEGERS = ((torch.int8, -128, 127), (torch.int8, -128, 127), (torch.uint8, 0, 255))


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor all elements of which are known.

    Attributes:
        tensor: The tensor.
    """

    tensor: torch.Tensor


class Constants:
    """The elements themselves; None where they vary."""

    word = "known"

    def unknown(self, value: torch.Tensor) -> None:
        """Return nothing."""
        return

    def of_tensor(self, tensor: torch.Tensor) -> Constant:
        """Return the tensor."""
        return Constant(tensor.detach())

    def of_result(self, written: Any, value: torch.Tensor, *, may_be_nan: bool) -> None:
        """Raise an error: constants are computed.

        Raises:
            TypeError: Always.
        """
        raise TypeError("constants are computed, not written")

    def joined(self, one: Constant | None, other: Constant | None) -> Constant | None:
        """Return the tensor if both are equal."""
        if one is None or other is None:
            return None
        return one if self.problem(one, other.tensor) is None else None

    def widened(self, before: Constant | None, after: Constant | None, value: torch.Tensor) -> Constant | None:
        """Return the tensor if both are equal."""
        return self.joined(before, after)

    def is_lost(self, facts: list[Any]) -> bool:
        """Return False: results are computed."""
        return False

    def drawn(self, tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
        """Return other numbers, as for ranges."""
        return RANGES.drawn(tensor, rng)

    def weaker(self, fact: Constant, value: torch.Tensor, rng: random.Random) -> Constant | None:
        """Return the tensor, or that it varies."""
        return fact if rng.random() < 0.8 else None

    def problem(self, fact: Constant | None, tensor: torch.Tensor) -> str | None:
        """Return in what a tensor is another one."""
        if fact is None:
            return None
        if (fact.tensor.shape, fact.tensor.dtype) != (tensor.shape, tensor.dtype):
            return f"computed again, the result is {fact.tensor.dtype}{list(fact.tensor.shape)}"
        is_same = (fact.tensor == tensor) | ((fact.tensor != fact.tensor) & (tensor != tensor))
        count = int((~is_same).sum())
        return f"computed again, {count} of {tensor.numel()} elements differ" if count else None

    def text(self, fact: Constant | None) -> str:
        """Return `known, [1, 2, 3]`."""
        if fact is None:
            return "varies"
        numbers = [f"{one:g}" if isinstance(one, float) else str(one) for one in fact.tensor.flatten()[:4].tolist()]
        return f"known, [{', '.join(numbers)}{', ...' if fact.tensor.numel() > 4 else ''}]"


RANGES = Ranges()
DOMAINS: dict[DomainName, Domain] = {"ranges": RANGES, "grids": GRIDS, "constants": Constants()}

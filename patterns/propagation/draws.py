"""Calls of operators for trials: from what a propagation says under `draw`, or from the schema alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from exirkit.patterns.operators.arguments import default_of
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.operators.table import traits_of
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.types.sampling import Sampler, SamplingError

from .compilation import DrawnCall, holds_tensors

SIZES = (1, 2, 3, 4, 5, 7)
_DTYPES = (torch.float32, torch.float32, torch.float32, torch.int32, torch.int64, torch.bool)
_TRIES = 40

FAILURES = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, ArithmeticError, AssertionError)
"""What operators raise for arguments that they do not take."""


Elements = Callable[[torch.Tensor, random.Random], torch.Tensor]


class Drawing(Protocol):
    """What draws need to know of an analysis.

    Attributes:
        draws: How calls of operators are made.
    """

    draws: dict[Operator, DrawnCall]

    @property
    def elements(self) -> Elements | None:
        """What makes elements that matter of those that are drawn."""
        ...

    def covers(self, x: Any) -> bool:
        """Whether it speaks of a tensor."""
        ...


class Tensors:
    """Draws tensors that a propagation speaks of.

    Args:
        made: The propagation.
        rng: Source of chance.
    """

    def __init__(self, made: Drawing, rng: random.Random) -> None:
        self._made = made
        self._rng = rng
        self._elements = made.elements

    def covered(self) -> torch.Tensor | None:
        """Return a tensor that can have other values than the first, row-major; None if none was found."""
        for _ in range(_TRIES):
            rank = self._rng.choice((4, 4, 3, 2, 5, 1, 0))
            one = self.tensor([self._rng.choice(SIZES) for _ in range(rank)], self._rng.choice(_DTYPES))
            if self._made.covers(one):
                return one
        return None

    def tensor(self, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of small multiples of a quarter, with which sums and products are exact."""
        generator = torch.Generator().manual_seed(self._rng.getrandbits(32))
        numbers = torch.randint(-16, 17, shape, generator=generator)
        made = numbers.to(torch.float32) / 4 if dtype.is_floating_point else numbers.to(dtype)
        return made if self._elements is None else self._elements(made, self._rng)

    def beside(self, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor that may broadcast to a shape: mostly of the shape itself."""
        chance = self._rng.random()
        if chance < 0.7:
            return self.tensor(shape, dtype)
        if chance < 0.85:
            return self.tensor([1 if self._rng.random() < 0.5 else size for size in shape], dtype)
        return self.tensor([] if chance < 0.95 else shape[-1:], dtype)


def drawn_calls(made: Drawing, op: Operator, seed: str) -> Iterator[dict[str, Any] | str]:
    """Yield arguments of calls by name, without end; or why there is none this time.

    Args:
        made: The propagation.
        op: Operator.
        seed: The same one gives the same calls.
    """
    rng = random.Random(seed)
    declared = made.draws.get(op)
    yield from _declared(declared, rng) if declared is not None else _of_schema(made, op, rng)


class _Capture(TensorBuilder):
    """Runs calls, and keeps the arguments of the last one."""

    last: tuple[Operator, tuple[Any, ...], dict[str, Any]] | None = None

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.last = (op, args, kwargs)
        return super().call(op, args, kwargs)


def _declared(drawn: DrawnCall, rng: random.Random) -> Iterator[dict[str, Any] | str]:
    sampler = Sampler(drawn.variables, gen=drawn.gen)
    while True:
        builder = _Capture()
        try:
            sample = sampler.sample(rng)
            drawn.call.run({**sample.symbols, **sample.values}, builder)
        except SamplingError as error:
            yield str(error)
            continue
        except FAILURES as error:
            yield first_line(error)
            continue
        except Exception as error:
            # What programs of the language raise carries no common class but this.
            yield first_line(error)
            continue
        assert builder.last is not None
        op, args, kwargs = builder.last
        names = [one.name for one in op._schema.arguments]
        yield _complete(op, {**dict(zip(names, args, strict=False)), **kwargs})


def _of_schema(made: Drawing, op: Operator, rng: random.Random) -> Iterator[dict[str, Any] | str]:
    tensors = Tensors(made, rng)
    while True:
        base = tensors.covered()
        if base is None:
            yield "no tensor was found for which `of` holds"
            continue
        shape, is_mixed = list(base.shape), rng.random() < 0.3
        named: dict[str, Any] = {}
        is_first = True
        for argument in op._schema.arguments:
            if argument.is_out:
                continue
            dtype = rng.choice(_DTYPES) if is_mixed else base.dtype
            named[argument.name] = _argument(argument, op, tensors, shape, dtype, rng, is_first)
            is_first = is_first and not holds_tensors(argument)
        yield _complete(op, {name: value for name, value in named.items() if value is not _LEFT_OUT})


_LEFT_OUT = object()


def _argument(
    argument: Any, op: Operator, tensors: Tensors, shape: list[int], dtype: torch.dtype, rng: random.Random,
    is_first: bool,
) -> Any:  # fmt: skip
    """Return a value for an argument of a type, or that it is left out."""
    kind = str(argument.type)
    # Of arguments that only have names, numbers are factors; the others say what stays: dtypes, devices, layouts.
    is_kept = argument.kwarg_only and kind not in ("number", "Scalar", "float")
    if argument.has_default_value() and (is_kept or rng.random() < 0.3):
        return _LEFT_OUT
    if holds_tensors(argument):
        if kind.startswith("List"):
            return [tensors.tensor(shape, dtype) for _ in range(rng.randint(1, 3))]
        return tensors.tensor(shape, dtype) if is_first and rng.random() < 0.8 else tensors.beside(shape, dtype)
    kind = kind.removeprefix("Optional[").rstrip("]") if kind.startswith("Optional") else kind
    rank = max(1, len(shape))
    if argument.name in traits_of(op).dims or argument.name in ("dim", "dims", "axis"):
        dims = sorted(rng.sample(range(rank), rng.randint(1, rank)))
        return dims if kind.startswith("List") else rng.randrange(rank)
    if kind.startswith("List"):
        return [rng.choice((1, 2, 3)) for _ in range(rng.choice((1, 2, 2, 4)))]
    drawn: dict[str, Any] = {"bool": rng.random() < 0.5, "int": rng.randint(0, 3), "SymInt": rng.randint(0, 3)}
    number = rng.choice((-1.5, 0.5, 2.0, 3.0))
    drawn |= {"float": number, "number": number, "Scalar": number, "str": "none"}
    return drawn.get(kind, _LEFT_OUT)


def _complete(op: Operator, named: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with the defaults of those that are left out."""
    return {
        one.name: named[one.name] if one.name in named else default_of(one)
        for one in op._schema.arguments
        if not one.is_out and (one.name in named or one.has_default_value())
    }


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__

"""Operators that can be links of a chain, and arguments of them for trials."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.patterns.operators.arguments import is_tensor_argument
from exirkit.patterns.operators.table import name_of


@dataclass(frozen=True)
class Link:
    """One call of a chain, without the value that it is called with.

    Attributes:
        op: Operator.
        args: Arguments behind the first one.
        kwargs: Arguments by name.
    """

    op: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None

    def called(self, value: Any, builder: Any) -> Any:
        """Return what the call makes of a value."""
        return builder.call(self.op, (value, *self.args), dict(self.kwargs or {}))


Drawn = tuple[Any, ...] | None
"""Arguments behind the first one; None if there are none for this tensor."""


def drawn_link(op: Any, x: torch.Tensor, rng: random.Random) -> Link | None:
    """Return a call of an operator that a tensor can be given to, or None if there is none."""
    draw = _DRAWS.get(_family(op))
    args = () if draw is None else draw(x, rng)
    return None if args is None else Link(op, args)


def reason_against(op: Any) -> str | None:
    """Return why an operator cannot be a link of a chain, or None if it can."""
    arguments = op._schema.arguments
    tensors = [one for one in arguments if is_tensor_argument(one.type)]
    if not arguments or not is_tensor_argument(arguments[0].type) or len(tensors) != 1:
        return "it does not have one tensor, as its first argument"
    if op._schema.is_mutable:
        return "it writes to its argument"
    if len(op._schema.returns) != 1:
        return "it does not have one result"
    needs = [one.name for one in arguments[1:] if not one.has_default_value()]
    if needs and _family(op) not in _DRAWS:
        return f"trials cannot draw its argument {needs[0]!r}"
    return None


def _family(op: Any) -> str:
    name = name_of(op).removeprefix("aten.")
    base, _, overload = name.rpartition(".")
    return f"{base.removesuffix('_copy').removeprefix('_unsafe_')}.{overload}"


def _sizes(x: torch.Tensor, rng: random.Random) -> Drawn:
    sizes = [int(size) for size in x.shape]
    if rng.random() < 0.3 and x.numel():
        return ([x.numel()],)
    factors = [size for size in sizes if size != 1]
    rng.shuffle(factors)
    while len(factors) > 1 and rng.random() < 0.5:
        factors = [factors[0] * factors[1], *factors[2:]]
    if rng.random() < 0.5:
        factors.insert(rng.randint(0, len(factors)), 1)
    return (factors,)


def _permutation(x: torch.Tensor, rng: random.Random) -> Drawn:
    return (rng.sample(range(x.dim()), x.dim()),)


def _two_dims(x: torch.Tensor, rng: random.Random) -> Drawn:
    return (rng.randrange(x.dim()), rng.randrange(x.dim())) if x.dim() else None


def _new_dim(x: torch.Tensor, rng: random.Random) -> Drawn:
    return (rng.randint(0, x.dim()),)


def _dim(x: torch.Tensor, rng: random.Random) -> Drawn:
    return (rng.randrange(x.dim()),) if x.dim() else None


def _dims(x: torch.Tensor, rng: random.Random) -> Drawn:
    return (sorted(rng.sample(range(x.dim()), rng.randint(0, x.dim()))),)


def _slice(x: torch.Tensor, rng: random.Random) -> Drawn:
    if not x.dim():
        return None
    dim = rng.randrange(x.dim())
    start = rng.randint(0, int(x.shape[dim]))
    return dim, start, rng.randint(start, int(x.shape[dim])), rng.choice((1, 1, 2))


def _select(x: torch.Tensor, rng: random.Random) -> Drawn:
    dims = [dim for dim in range(x.dim()) if x.shape[dim]]
    if not dims:
        return None
    dim = rng.choice(dims)
    return dim, rng.randrange(int(x.shape[dim]))


def _expanded(x: torch.Tensor, rng: random.Random) -> Drawn:
    front = [rng.choice((1, 2))] if rng.random() < 0.3 else []
    return ([*front, *(rng.choice((1, 2, 3)) if size == 1 else int(size) for size in x.shape)],)


def _padding(x: torch.Tensor, rng: random.Random) -> Drawn:
    dims = rng.randint(0, min(2, x.dim()))
    return [rng.randint(0, 2) for _ in range(2 * dims)], rng.choice((0, 1))


def _quantized(x: torch.Tensor, rng: random.Random) -> Drawn:
    if x.dtype != torch.float32:
        return None
    return rng.choice((0.02, 0.1, 1.0)), rng.randint(-5, 5), -128, 127, torch.int8


def _real(x: torch.Tensor, rng: random.Random) -> Drawn:
    return (rng.choice((0.02, 0.1, 1.0)), rng.randint(-5, 5), -128, 127, x.dtype) if x.dtype == torch.int8 else None


_DRAWS: dict[str, Callable[[torch.Tensor, random.Random], Drawn]] = {
    "view.default": _sizes,
    "reshape.default": _sizes,
    "permute.default": _permutation,
    "transpose.int": _two_dims,
    "unsqueeze.default": _new_dim,
    "squeeze.dim": _dim,
    "squeeze.dims": _dims,
    "slice.Tensor": _slice,
    "select.int": _select,
    "expand.default": _expanded,
    "flip.default": _dims,
    "constant_pad_nd.default": _padding,
    "quantized_decomposed.quantize_per_tensor.default": _quantized,
    "quantized_decomposed.dequantize_per_tensor.default": _real,
    "t.default": lambda x, rng: () if x.dim() <= 2 else None,
}
"""Ways to draw arguments behind the first one; every other operator is called with its defaults."""

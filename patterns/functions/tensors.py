"""Words that compute with constant tensors, in `let`: real arithmetic, done once while a program is lowered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from .words import WORDS, Word, dtype_of, word

_LARGEST_NBYTES = 1 << 34


def _either(name: str, on_tensor: Callable[[torch.Tensor], Any]) -> None:
    """Let a word about numbers take tensors too."""
    known = WORDS.get(name)
    on_number: Callable[..., Any]
    if known is not None:
        on_number = known.compute
    else:

        def on_number(x: Any) -> Any:
            # What stands for a number in a proof knows what its functions are.
            if hasattr(x, "computed"):
                return x.computed(name)
            return on_tensor(torch.tensor(float(x), dtype=torch.float64)).item()

    def compute(x: Any, *more: Any) -> Any:
        return on_tensor(x) if isinstance(x, torch.Tensor) and not more else on_number(x, *more)

    WORDS[name] = Word(name, compute, False, known.doc if known else f"torch.{name} of a constant or a number.")


for _name in ("abs", "exp", "log", "floor", "ceil", "round"):
    _either(_name, getattr(torch, _name))
for _name in ("sqrt", "rsqrt", "tanh", "sigmoid", "erf", "reciprocal", "sin", "cos"):
    _either(_name, getattr(torch, _name))


def real(x: Any) -> torch.Tensor:
    """Return a real tensor.

    Raises:
        TypeError: It is none: only constants can be computed with.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError("only constants can be computed with here; say const in the type of the variable")
    return x


def _size(size: Any) -> Any:
    """Return a size as an integer; what stands for one in a proof is left as it is."""
    return size if hasattr(size, "stand_in") else int(size)


@word()
def reshape(x: Any, sizes: Sequence[int]) -> torch.Tensor:
    """The constant with other sizes."""
    return real(x).reshape([_size(size) for size in sizes])


@word()
def permute(x: Any, dims: Sequence[int]) -> torch.Tensor:
    """The constant with its dims in another order, laid out row by row."""
    return real(x).permute([int(dim) for dim in dims]).contiguous()


@word()
def transpose(x: Any, a: int = -2, b: int = -1) -> torch.Tensor:
    """The constant with two dims exchanged, laid out row by row."""
    return real(x).transpose(a, b).contiguous()


@word()
def flip(x: Any, dims: Sequence[int]) -> torch.Tensor:
    """The constant backwards along dims."""
    return real(x).flip([int(dim) for dim in dims])


@word()
def cast(x: Any, dtype: Any) -> torch.Tensor:
    """The constant in another dtype."""
    return real(x).to(dtype_of(dtype))


@word()
def expand(x: Any, sizes: Sequence[int]) -> torch.Tensor:
    """The constant broadcast to sizes."""
    found = real(x)
    made = found.expand([_size(size) for size in sizes])
    if made.numel() * made.element_size() > _LARGEST_NBYTES:
        raise ValueError("a constant of more than 16 GiB")
    return made.contiguous()


@word()
def full(sizes: Sequence[int], value: float, dtype: Any = torch.float32) -> torch.Tensor:
    """A constant of one value."""
    unknown: Any = next((size for size in sizes if hasattr(size, "stand_in")), None)
    if unknown is not None:
        made: torch.Tensor = unknown.filled(sizes, value, dtype_of(dtype))
        return made
    count = 1
    for size in sizes:
        count *= int(size)
    if count > _LARGEST_NBYTES // 8:
        raise ValueError("a constant of more than 16 GiB")
    return torch.full([int(size) for size in sizes], value, dtype=dtype_of(dtype))


@word()
def tensor(values: Any, dtype: Any = None) -> torch.Tensor:
    """A constant with the given elements."""
    return torch.tensor(values, dtype=None if dtype is None else dtype_of(dtype))


@word()
def arange(n: int, dtype: Any = torch.int64) -> torch.Tensor:
    """0, 1, ..., n - 1 as a constant."""
    if not 0 <= n <= 1 << 28:
        raise ValueError("more than 2**28 elements")
    return torch.arange(n, dtype=dtype_of(dtype))


@word("cat")
@word()
def concat(xs: Sequence[Any], dim: int = 0) -> torch.Tensor:
    """Constants one after another."""
    return torch.cat([real(x) for x in xs], dim)


@word("stack")
@word()
def stacked(xs: Sequence[Any], dim: int = 0) -> torch.Tensor:
    """Constants on top of each other, along a new dim."""
    return torch.stack([real(x) for x in xs], dim)


@word()
def narrow(x: Any, dim: int, start: int, length: int) -> torch.Tensor:
    """A piece of a constant."""
    return real(x).narrow(dim, start, length).contiguous()


@word()
def diag(x: Any) -> torch.Tensor:
    """A matrix with these elements on the diagonal."""
    return torch.diag(real(x))


@word()
def matmul(a: Any, b: Any) -> torch.Tensor:
    """Matrix product of constants."""
    return torch.matmul(real(a), real(b))


@word()
def sum_over(x: Any, dims: Sequence[int], keepdim: bool = False) -> torch.Tensor:
    """Sum of a constant over dims."""
    return real(x).sum([int(dim) for dim in dims], keepdim=keepdim)


def known(facts: Any, x: Any) -> Any:
    """Return the real tensor behind a constant of the graph; a number or a real tensor is itself.

    Raises:
        TypeError: The value is not known while the program is lowered.
    """
    if isinstance(x, int | float | bool):
        return x
    return real(facts.value(x) if isinstance(x, Node) else x)


@word(needs_facts=True)
def all_eq(facts: Any, x: Any, value: Any) -> bool:
    """Whether every element of a constant equals a number."""
    found = known(facts, x)
    return bool((found == value).all()) if isinstance(found, torch.Tensor) else bool(found == value)


@word(needs_facts=True)
def all_in(facts: Any, x: Any, values: Sequence[Any]) -> bool:
    """Whether every element of a constant is one of these numbers."""
    found = known(facts, x)
    if not isinstance(found, torch.Tensor):
        return found in values
    return bool(torch.stack([found == value for value in values]).any(0).all()) if values else not found.numel()


@word(needs_facts=True)
def finite(facts: Any, x: Any) -> bool:
    """Whether a constant has neither infinities nor NaN."""
    found = known(facts, x)
    return bool(torch.isfinite(found).all()) if isinstance(found, torch.Tensor) else abs(found) < float("inf")


@word(needs_facts=True)
def finite_rows(facts: Any, x: Any) -> bool:
    """Whether every row of a constant has a finite element, and none has NaN or infinity upwards."""
    found = known(facts, x)
    if not isinstance(found, torch.Tensor) or not found.dim() or not found.shape[-1]:
        return False
    largest = found.amax(-1)
    return bool(torch.isfinite(largest).all())


@word(needs_facts=True)
def splat(facts: Any, x: Any) -> Any:
    """The number that every element of a constant equals, or none."""
    found = known(facts, x)
    if not isinstance(found, torch.Tensor):
        return found
    flat = found.flatten()
    return flat[0].item() if flat.numel() and bool((flat == flat[0]).all()) else None


@word(needs_facts=True)
def item(facts: Any, x: Any) -> Any:
    """The number in a constant of one element."""
    found = known(facts, x)
    return found.item() if isinstance(found, torch.Tensor) else found

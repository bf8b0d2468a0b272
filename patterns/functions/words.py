"""The words that guards and `let` may use for numbers, shapes, permutations and dtypes.

A tensor is a node of a graph, of which only the recorded value is used, or a real tensor. Words about graphs and
constants are in `graph_functions`, words that compute with tensors in `tensor_functions`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.fx import Node

from exirkit.ir import value_of
from exirkit.patterns.syntax.expressions import SYMBOLIC, UndecidedError, compare, every, some, truth

Function = Callable[..., Any]
Decorated = TypeVar("Decorated", bound=Function)


@dataclass(frozen=True)
class Word:
    """A function of the language.

    Attributes:
        name: As it is written.
        compute: What it does.
        needs_facts: Whether it takes the facts of the graph first.
        doc: One line for the reference.
        is_opaque: It was registered from outside: what it does is unknown.
        of_tensor: What it does with the facts of the graph and one tensor, where that is another question.
    """

    name: str
    compute: Function
    needs_facts: bool = False
    doc: str = ""
    is_opaque: bool = False
    of_tensor: Function | None = None


WORDS: dict[str, Word] = {}


def word(name: str | None = None, *, needs_facts: bool = False) -> Callable[[Decorated], Decorated]:
    """Make a function a word of the language."""

    def register(function: Decorated) -> Decorated:
        key = name or function.__name__
        doc = (function.__doc__ or "").strip().partition("\n")[0]
        WORDS[key] = Word(key, function, needs_facts, doc)
        return function

    return register


def tensor_facts(value: Any) -> torch.Tensor:
    """Return the tensor whose sizes and dtype are meant.

    Raises:
        TypeError: There is none.
    """
    found = value_of(value)
    if isinstance(found, list | tuple) and found and isinstance(found[0], torch.Tensor):
        found = found[0]
    if not isinstance(found, torch.Tensor):
        raise TypeError(f"a tensor is needed here, not {'none' if found is None else type(found).__name__}")
    return found


# Numbers


def _plain(name: str, compute: Function, doc: str) -> None:
    WORDS[name] = Word(name, compute, False, doc)


_plain("abs", abs, "Absolute value.")
_plain("round", round, "Nearest integer, or number with that many digits.")
_plain("floor", lambda x: x // 1 if isinstance(x, torch.SymInt) else math.floor(x), "Largest integer not above.")
_plain("ceil", math.ceil, "Smallest integer not below.")
_plain("exp", math.exp, "e to the power.")
_plain("log", math.log, "Natural logarithm.")
_plain("isnan", math.isnan, "Whether a number is not a number.")
_plain("isinf", math.isinf, "Whether a number is infinite.")
_plain("gcd", math.gcd, "Greatest common divisor.")
_plain("int", lambda x: torch.sym_int(x) if isinstance(x, SYMBOLIC) else int(x), "The number as an integer.")
_plain("float", lambda x: torch.sym_float(x) if isinstance(x, SYMBOLIC) else float(x), "The number as a float.")
_plain("bool", lambda x: bool(truth(x)), "The value as a truth.")
_plain("list", list, "The elements as a list.")
_plain("tuple", list, "The elements as a list.")
_plain("sorted", sorted, "The elements in order.")
_plain("reversed", lambda xs: list(xs)[::-1], "The elements backwards.")


@word("len")
def length(xs: Any) -> int:
    """Number of elements of a list."""
    return len(xs)


@word("size")
def size_of(x: Any, dim: int) -> Any:
    """Number of elements along a dim of a tensor."""
    return tensor_facts(x).shape[dim]


def bounded_range(*ends: int) -> range:
    """Return integers from, to, step.

    Raises:
        UndecidedError: There may be any number of them.
        ValueError: There are too many.
    """
    if any(isinstance(end, torch.SymInt) and not end.node.expr.is_Integer for end in ends):
        raise UndecidedError("a range to a size that varies has no fixed number of elements: ask for static(...)")
    made = range(*ends)
    if len(made) > 100_000:
        raise ValueError("a range of more than 100,000 numbers")
    return made


WORDS["range"] = Word(
    "range",
    bounded_range,
    doc="Integers from, to, step; of a tensor `x`, what its elements lie between: `lo`, `hi`, and `nan`.",
    of_tensor=lambda facts, x: facts.value_range(x),
)


@word("zip")
def zipped(*lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Elements side by side; the lists are of one length."""
    return list(zip(*lists, strict=True))


@word("enumerate")
def enumerated(xs: Sequence[Any]) -> list[tuple[int, Any]]:
    """Elements with their places."""
    return list(enumerate(xs))


@word("sum")
def total(xs: Iterable[Any]) -> Any:
    """Sum of the elements."""
    return sum(xs, 0)


@word("prod")
def product(xs: Iterable[Any]) -> Any:
    """Product of the elements."""
    return math.prod(xs)


@word("min")
def smallest(*xs: Any) -> Any:
    """Smallest element."""
    return _extremum(min, torch.sym_min, xs)


@word("max")
def largest(*xs: Any) -> Any:
    """Largest element."""
    return _extremum(max, torch.sym_max, xs)


def _extremum(plain: Function, symbolic: Function, xs: tuple[Any, ...]) -> Any:
    """Return an extremum; of sizes that vary without asking which one it is."""
    values = list(xs[0] if len(xs) == 1 else xs)
    return functools.reduce(symbolic, values) if any(isinstance(one, SYMBOLIC) for one in values) else plain(values)


_plain("all", every, "Whether every element holds.")
_plain("any", some, "Whether some element holds.")


@word()
def divides(a: Any, b: Any) -> Any:
    """Whether b is a multiple of a."""
    return compare("==", b % a, 0)


@word()
def static(x: Any) -> bool:
    """Whether a size, or every size of a list, is a plain integer."""
    if type(x) is int:
        return True
    if isinstance(x, Node | torch.Tensor):
        return static(list(tensor_facts(x).shape))
    if isinstance(x, list | tuple):
        return all(static(one) for one in x)
    return isinstance(x, int | float)


@word("maybe")
def maybe(condition: Any) -> bool:
    """Accept also what the sizes do not decide."""
    return truth(condition) is not False


# Dtypes


@word("dtype")
def dtype_of(x: Any) -> torch.dtype:
    """Dtype of a tensor."""
    return x if isinstance(x, torch.dtype) else tensor_facts(x).dtype


def _operand(x: Any) -> Any:
    # A number in a proof is a symbol, and says which number has its type.
    found = getattr(x, "stand_in", None) or value_of(x)
    if isinstance(found, torch.dtype):
        return torch.empty(1, dtype=found)
    if isinstance(found, torch.Tensor):
        # Only the category matters: a tensor of no dimension or of some.
        return torch.empty((1,) * min(1, found.dim()), dtype=found.dtype)
    return found


@word()
def promote(*xs: Any) -> torch.dtype:
    """Dtype that torch computes in for these tensors, dtypes and numbers."""
    first, *others = [_operand(x) for x in xs]
    if not others:
        return dtype_of(xs[0])
    state = first
    for other in others:
        result = torch.result_type(state, other)
        dims = max(getattr(state, "ndim", -1), getattr(other, "ndim", -1))
        state = torch.empty((1,) * max(0, dims), dtype=result)
    return torch.result_type(first, others[0]) if len(others) == 1 else state.dtype


_MANTISSA = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
_EXPONENT = {torch.float16: 5, torch.bfloat16: 8, torch.float32: 8, torch.float64: 11}


@word()
def lossless(a: Any, b: Any) -> bool:
    """Whether every value of dtype a is a value of dtype b."""
    source, target = dtype_of(a), dtype_of(b)
    if source == target or source == torch.bool:
        return True
    if target == torch.bool:
        return False
    if source.is_floating_point:
        return (
            target in _MANTISSA
            and source in _MANTISSA
            and _MANTISSA[target] >= _MANTISSA[source]
            and _EXPONENT[target] >= _EXPONENT[source]
        )
    if source.is_complex or target.is_complex:
        return False
    known = torch.iinfo(source)
    if target.is_floating_point:
        return target in _MANTISSA and known.bits - (known.min < 0) <= _MANTISSA[target]
    other = torch.iinfo(target)
    return other.min <= known.min and known.max <= other.max


@word()
def is_signed(x: Any) -> bool:
    """Whether a dtype has negative values."""
    return dtype_of(x).is_signed


@word()
def is_float(x: Any) -> bool:
    """Whether a dtype is a floating-point one."""
    return dtype_of(x).is_floating_point


@word()
def is_integer(x: Any) -> bool:
    """Whether a dtype is an integer one; bool is not."""
    found = dtype_of(x)
    return not (found.is_floating_point or found.is_complex or found == torch.bool)


_plain("iinfo", lambda x: torch.iinfo(dtype_of(x)), "Limits of an integer dtype: min, max, bits.")
_plain("finfo", lambda x: torch.finfo(dtype_of(x)), "Limits of a float dtype: min, max, eps, tiny.")


# Shapes


@word()
def shape(x: Any) -> list[Any]:
    """Sizes of a tensor."""
    return list(tensor_facts(x).shape)


@word()
def rank(x: Any) -> int:
    """Number of dimensions."""
    return tensor_facts(x).dim()


@word()
def numel(x: Any) -> Any:
    """Number of elements."""
    return math.prod(tensor_facts(x).shape)


@word()
def bshape(*xs: Any) -> list[Any]:
    """Shape to which tensors, or shapes, broadcast."""
    shapes = [list(x) if isinstance(x, list | tuple) else shape(x) for x in xs]
    columns = itertools.zip_longest(*(one[::-1] for one in shapes), fillvalue=1)
    return [_broadcast(sizes) for sizes in columns][::-1]


def _broadcast(sizes: Sequence[Any]) -> Any:
    result: Any = 1
    for size in sizes:
        if compare("==", size, 1) is True or compare("==", size, result) is True:
            continue
        if compare("==", result, 1) is not True:
            raise ValueError(f"sizes {result} and {size} do not broadcast")
        result = size
    return result


@word()
def same_shape(*xs: Any) -> Any:
    """Whether tensors have equal sizes."""
    return every(compare("==", shape(xs[0]), shape(x)) for x in xs[1:])


# Permutations and dims


@word()
def norm(d: int, x: Any) -> int:
    """A dim counted from the front, of a tensor or of a rank."""
    dims = x if isinstance(x, int) else rank(x)
    if not -max(1, dims) <= d < max(1, dims):
        raise ValueError(f"there is no dim {d} among {dims}")
    return d % max(1, dims)


@word()
def iota(n: int) -> list[int]:
    """0, 1, ..., n - 1."""
    return list(bounded_range(n))


@word()
def is_perm(p: Sequence[int]) -> bool:
    """Whether a list has each of 0, 1, ... once."""
    return sorted(p) == list(range(len(p)))


@word()
def compose(p: Sequence[int], q: Sequence[int]) -> list[int]:
    """Permutation that permutes by p and then by q."""
    return [p[i] for i in q]


@word()
def inverse(p: Sequence[int]) -> list[int]:
    """Permutation that undoes p."""
    if not is_perm(p):
        raise ValueError(f"{list(p)} is not a permutation")
    return [list(p).index(i) for i in range(len(p))]


@word()
def swap_last(n: int) -> list[int]:
    """0, 1, ..., with the last two exchanged."""
    if n < 2:
        raise ValueError("fewer than two dims")
    return [*range(n - 2), n - 1, n - 2]


@word()
def cumsum(xs: Sequence[Any]) -> list[Any]:
    """Running sums."""
    return list(itertools.accumulate(xs))


@word()
def cumsum0(xs: Sequence[Any]) -> list[Any]:
    """Running sums from 0 on, one more than there are elements."""
    return [0, *itertools.accumulate(xs)]


@word()
def only_index(t: Any, i: int) -> bool:
    """Whether element i is the only result of t that is used."""
    if not isinstance(t, Node):
        return True
    return all(user.target.__name__ == "getitem" and user.args[1] == i for user in t.users)  # type: ignore[union-attr]


def language_words() -> dict[str, str]:
    """Return the words of the language, and one line about each."""
    return {name: WORDS[name].doc for name in sorted(WORDS)}

"""Symbolic tensors: dtype, sizes that may be symbols, and a function from index vectors to elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import z3

from exirkit.patterns.proving.elements import FLOATS, Elements, sizes_equal
from exirkit.patterns.proving.paths import Number, Path, Truth, UnsupportedError, integer

Index = tuple[Any, ...]
"""Index vector: integers as the solver takes them."""

Element = Callable[[Elements, Index], Any]
Digits = tuple[tuple[Any, Any], ...]
"""Indices with their sizes: the digits, first the most significant one, of a place in row-major order."""

_METHODS: dict[str, Callable[..., Any]] = {}


class SymbolicTensor(torch.Tensor):
    """A tensor of which every element is a term; it has no data, and torch computes nothing with it."""

    path: Path
    _shape: list[Any]
    _dtype: torch.dtype
    _element: Element
    _source: SymbolicTensor | None

    @staticmethod
    def make(
        path: Path, sizes: Sequence[Any], dtype: torch.dtype, element: Element, source: SymbolicTensor | None = None
    ) -> SymbolicTensor:
        """Return a tensor.

        Args:
            path: The path it is on.
            sizes: Its sizes: integers and symbols.
            dtype: Its dtype.
            element: The element at an index vector within the sizes.
            source: Tensor that has the same elements in the same row-major order.
        """
        made: SymbolicTensor = torch.empty(0).as_subclass(SymbolicTensor)
        made.path = path
        made._shape = [_plain(path, size) for size in sizes]
        made._dtype = dtype
        made._element = element
        made._source = source
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute what rules ask of constants by torch's own functions."""
        found = _METHODS.get(getattr(func, "__name__", ""))
        if found is None:
            raise UnsupportedError(f"torch's {getattr(func, '__name__', func)} of a symbolic tensor")
        return found(*args, **(kwargs or {}))

    @property
    def shape(self) -> Any:  # type: ignore[override]
        """Sizes."""
        return list(self._shape)

    @property
    def dtype(self) -> Any:  # type: ignore[override]
        """Dtype."""
        return self._dtype

    @property
    def ndim(self) -> Any:  # type: ignore[override]
        """Number of dims."""
        return len(self._shape)

    @property
    def is_meta(self) -> Any:  # type: ignore[override]
        """Whether it has no values; it does not."""
        return True

    @property
    def device(self) -> Any:  # type: ignore[override]
        """Where it would be."""
        return torch.device("cpu")

    @property
    def requires_grad(self) -> Any:  # type: ignore[override]
        """Never."""
        return False

    def dim(self) -> int:
        """Return the number of dims."""
        return len(self._shape)

    def size(self, dim: int | None = None) -> Any:
        """Return the sizes, or one of them."""
        return list(self._shape) if dim is None else self._shape[dim]

    def numel(self) -> Any:
        """Return the number of elements."""
        return product(self._shape)

    def is_floating_point(self) -> bool:
        """Whether its elements are floats."""
        return self._dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether its elements are complex."""
        return self._dtype.is_complex

    def _with(self, name: str, *others: Any) -> Any:
        return _METHODS[name](*others)

    def reshape(self, *sizes: Any) -> Any:
        """Return the same elements with other sizes, which torch would not take if they are symbols."""
        return self._with("reshape", self, sizes[0] if isinstance(sizes[0], list | tuple) else list(sizes))

    def expand(self, *sizes: Any) -> Any:  # type: ignore[override]
        """Return it broadcast to sizes."""
        return self._with("expand", self, sizes[0] if isinstance(sizes[0], list | tuple) else list(sizes))

    def narrow(self, dim: int, start: Any, length: Any) -> Any:
        """Return a part of a dim."""
        return self._with("narrow", self, dim, start, length)

    def element_size(self) -> int:
        """Return how many bytes an element takes; what a rule may store is not looked into."""
        return 0

    def __mul__(self, other: Any) -> Any:
        return self._with("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("mul", self, other)

    def __add__(self, other: Any) -> Any:
        return self._with("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._with("add", self, other)

    def __sub__(self, other: Any) -> Any:
        return self._with("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("rsub", self, other)

    def __truediv__(self, other: Any) -> Any:
        return self._with("div", self, other)

    def __neg__(self) -> Any:
        return self._with("neg", self)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{str(self._dtype).removeprefix('torch.')}{self._shape}"

    def at(self, elements: Elements, index: Index) -> Any:
        """Return the element at an index vector."""
        key = (id(self), tuple(one.get_id() if hasattr(one, "get_id") else one for one in index))
        if key not in elements.memo:
            # The index is kept, so that its id stays its own.
            elements.memo[key] = self._element(elements, index), index, self
        return elements.memo[key][0]

    def at_digits(self, elements: Elements, digits: Digits) -> Any:
        """Return the element at a place in row-major order, given by its digits in any sizes."""
        if self._source is not None:
            return self._source.at_digits(elements, digits)
        return self.at(elements, aligned(elements, digits, self._shape))


def method(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function be what torch's functions of these names do with symbolic tensors."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _METHODS.update(dict.fromkeys(names, function))
        return function

    return register


def _plain(path: Path, size: Any) -> Any:
    if isinstance(size, int | Number):
        return size
    term = z3.simplify(size)
    return term.as_long() if z3.is_int_value(term) else Number(path, term)


def product(sizes: Sequence[Any]) -> Any:
    """Return the number of elements of a shape."""
    result: Any = 1
    for size in sizes:
        result = result * size
    return result


def input_tensor(path: Path, name: str, sizes: Sequence[Any], dtype: torch.dtype, domain: Any = None) -> SymbolicTensor:
    """Return a tensor about whose elements only its type is known.

    Args:
        path: The path it is on.
        name: Name of the variable.
        sizes: Its sizes.
        dtype: Its dtype.
        domain: Gives, for an evaluator and an element, what its type says of that.
    """

    def element(elements: Elements, index: Index) -> Any:
        index_terms = [integer(one) for one in index]
        made = elements.function(name, elements.sort(dtype), index_terms)
        if domain is not None:
            elements.facts += domain(elements, made)
        for value in path.values.get(name, ()):
            known = elements.constant(value, dtype)
            if dtype in FLOATS and not elements.is_real and value == 0:
                # Zeros of both signs equal it.
                known = z3.If(elements.function(f"{name}_sign", z3.BoolSort(), index_terms), known, z3.fpNeg(known))
            return known
        return made

    made = SymbolicTensor.make(path, sizes, dtype, element)
    made.__dict__["input_name"] = name
    return made


@method("eq", "__eq__")
def _equals(tensor: Any, value: Any) -> Truth:
    """Return whether all elements equal a number: the path on which they do knows it of each of them."""
    name = getattr(tensor, "input_name", None)
    if name is None or isinstance(value, torch.Tensor):
        raise UnsupportedError("a comparison of tensors in a condition")
    path = tensor.path
    # A condition that consists of the comparison alone holds in every match.
    chosen = path.is_assuming or path.choose((True, False))
    if chosen:
        path.values.setdefault(name, []).append(value)
    return Truth(path, z3.BoolVal(chosen))


# Places in row-major order


def raveled(digits: Digits) -> Any:
    """Return the number that digits stand for."""
    total: Any = z3.IntVal(0)
    for index, size in digits:
        total = total * integer(size) + integer(index)
    return z3.simplify(total)


def aligned(elements: Elements, digits: Digits, sizes: Sequence[Any]) -> Index:
    """Return the index vector of a place in a shape of as many elements.

    Digits and dims are united to the smallest groups of equal products; one dim of several digits is a number, several
    dims of one digit are its quotients and remainders.
    """
    path = elements.path
    left = [one for one in digits if not sizes_equal(path, one[1], 1)]
    right = [at for at, size in enumerate(sizes) if not sizes_equal(path, size, 1)]
    found: dict[int, Any] = {}
    while left and right:
        taken, dims = [left.pop(0)], [right.pop(0)]
        if not sizes_equal(path, taken[0][1], sizes[dims[0]]):
            grown = _group(path, taken, dims, left, right, sizes)
            taken, dims = taken + left[: grown[0]], dims + right[: grown[1]]
            left, right = left[grown[0] :], right[grown[1] :]
        found.update(zip(dims, _regrouped(elements, tuple(taken), [sizes[dim] for dim in dims]), strict=True))
    return tuple(found.get(at, z3.IntVal(0)) for at in range(len(sizes)))


def _group(
    path: Path, taken: list[Any], dims: list[int], left: list[Any], right: list[int], sizes: Sequence[Any]
) -> tuple[int, int]:
    """Return how many more digits and dims make equal products; all of them if no fewer surely do."""
    options = sorted(
        ((more, others) for more in range(len(left) + 1) for others in range(len(right) + 1) if more + others),
        key=lambda one: (one[0] + one[1], one),
    )
    for more, others in options:
        # A single digit or dim on either side is what can be said without a remainder of both.
        one = product([_size(path, size) for _, size in taken + left[:more]])
        other = product([sizes[dim] for dim in dims + right[:others]])
        if sizes_equal(path, one, other):
            return more, others
    return len(left), len(right)


def _size(path: Path, size: Any) -> Any:
    return _plain(path, size)


def _regrouped(elements: Elements, digits: Digits, sizes: Sequence[Any]) -> list[Any]:
    if len(digits) == len(sizes) == 1:
        return [integer(digits[0][0])]
    place = raveled(digits)
    if len(sizes) == 1:
        return [place]
    return unraveled(elements, place, sizes)


def unraveled(elements: Elements, place: Any, sizes: Sequence[Any]) -> list[Any]:
    """Return the digits of a place in row-major order, of which is known what digits are."""
    terms = [z3.simplify(integer(size)) for size in sizes]
    if all(z3.is_int_value(term) and term.as_long() > 0 for term in terms):
        found: list[Any] = []
        rest = place
        for term in terms[::-1]:
            found.append(z3.simplify(rest % term))
            rest = rest / term
        return found[::-1]
    made = [elements.function(f"digit{at}of{len(terms)}", z3.IntSort(), [place, *terms]) for at in range(len(terms))]
    key = ("digits", made[0].get_id())
    if key not in elements.memo:
        elements.memo[key] = made
        total = terms[0]
        for term in terms[1:]:
            total = total * term
        is_inside = z3.And(place >= 0, place < total, *(term > 0 for term in terms))
        known = [raveled(tuple(zip(made, terms, strict=True))) == place]
        known += [z3.And(one >= 0, one < term) for one, term in zip(made, terms, strict=True)]
        elements.facts.append(z3.Implies(is_inside, z3.And(*known)))
    return made


def is_float(tensor: Any) -> bool:
    """Whether elements are floats that the solver has."""
    return tensor.dtype in FLOATS

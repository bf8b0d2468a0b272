"""Meanings of reductions and products of matrices: folds over a bound index, of which only equality is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import z3

from exirkit.patterns.proving.elements import FLOATS, Elements, Scalar, sizes_equal
from exirkit.patterns.proving.meanings import MEANINGS, broadcast_index, broadcast_sizes, meaning
from exirkit.patterns.proving.movement import (
    filled,
    narrow,
    normal_dim,
    permuted,
    transpose_matrix,
    unsqueeze,
    viewed,
)
from exirkit.patterns.proving.paths import Number, Path, UnsupportedError, integer, new_solver
from exirkit.patterns.proving.pointwise import add, mul, real_exp, real_log, sub, to_dtype, where
from exirkit.patterns.proving.real_terms import sum_of_parts
from exirkit.patterns.proving.tensors import Index, SymbolicTensor, product


def product_kind(elements: Elements, dtype: torch.dtype) -> str:
    """Return the kind of a fold that sums products: over real numbers it is a sum like others."""
    return f"sum_{dtype}" if elements.is_real else f"product_{dtype}"


def fold(elements: Elements, kind: str, sizes: Sequence[Any], body: Callable[[list[Any]], Any]) -> Any:
    """Return a fold of a term over bound indices.

    Two folds of a kind are one value if their sizes are equal and their terms are, at every index. For sums and extrema
    of real numbers the order of the indices does not matter either.

    A fold of the kind `plane` is all that its terms are, each at its place: functions of it are functions of a whole
    image, and the order of its indices matters.

    Args:
        elements: The evaluator.
        kind: `sum`, `amax` ...
        sizes: How far each index goes.
        body: The term at indices.
    """
    if kind.startswith(("sum_torch.f", "sum_torch.b", "mean", "product")):
        elements.path.formulas.add("sums of floats")
    kept = [size for size in sizes if not sizes_equal(elements.path, size, 1)]
    depth = len(elements.scopes)
    bound = [z3.Int(f"k{depth}.{at}") for at in range(len(kept))]
    inside = [z3.And(one >= 0, one < integer(size)) for one, size in zip(bound, kept, strict=True)]
    waiting = iter(bound)
    indices = [z3.IntVal(0) if sizes_equal(elements.path, size, 1) else next(waiting) for size in sizes]
    elements.scopes.append((bound, inside))
    try:
        term = body(indices)
        if not bound and (elements.is_real or _is_exact(kind)):
            return term
        if elements.is_linear and kind.startswith("sum_"):
            return _by_parts(elements, kind, kept, bound, term)
        return _folded(elements, kind, kept, bound, term)
    finally:
        elements.scopes.pop()


def _by_parts(elements: Elements, kind: str, kept: list[Any], bound: list[Any], term: Any) -> Any:
    elements.axioms.add("sums are linear")
    count = integer(product(kept))
    return sum_of_parts(term, bound, count, lambda one: _folded(elements, kind, kept, bound, one))


def _folded(elements: Elements, kind: str, kept: list[Any], bound: list[Any], term: Any) -> Any:
    """Return the fold that is known to be of this term, or a new one; called within its scope."""
    is_free = (elements.is_real or _is_exact(kind)) and not kind.startswith("plane_")
    if is_free:
        kept, bound, term = _merged(elements, kind, kept, bound, term)
    orders = itertools.permutations(range(len(bound))) if is_free else [tuple(range(len(bound)))]
    for order in orders:
        for other in elements.sums:
            found = _same_fold(elements, other, kind, kept, bound, term, order)
            if found is not None:
                return found
    outer = [one for scope, _ in elements.scopes[:-1] for one in scope]
    made = elements.function(f"{kind}!{len(elements.sums)}", term.sort(), outer)
    elements.sums.append((kind, kept, bound, term, made))
    return made


def _is_exact(kind: str) -> bool:
    """Whether the order of what is folded does not matter, also where floats are not real numbers."""
    name, _, dtype = kind.partition("_torch.")
    return kind == "any" or (name in ("sum", "amax", "amin") and not dtype.startswith(("f", "b")))


def _merged(
    elements: Elements, kind: str, kept: list[Any], bound: list[Any], term: Any
) -> tuple[list[Any], list[Any], Any]:
    """Return a fold of folds of the same kind as one over the indices of both; called within its scope."""
    for other, sizes, indices, inner, made in elements.sums:
        if other == kind and made.eq(term) and (kind.startswith(_ONE_WAY) or kind == "any"):
            depth = len(elements.scopes) - 1
            new = [z3.Int(f"k{depth}.{len(bound) + at}") for at in range(len(indices))]
            inside = [z3.And(one >= 0, one < integer(size)) for one, size in zip(new, sizes, strict=True)]
            scope, known = elements.scopes[-1]
            elements.scopes[-1] = [*scope, *new], [*known, *inside]
            elements.axioms.add("a fold of folds is one over the indices of both")
            term = z3.substitute(inner, *zip(indices, new, strict=True)) if indices else inner
            return _merged(elements, kind, [*kept, *sizes], [*bound, *new], term)
    return kept, bound, term


_ONE_WAY = ("sum_", "amax_", "amin_")
"""Kinds of which a fold of folds is one."""


def _same_fold(
    elements: Elements, other: Any, kind: str, sizes: list[Any], bound: list[Any], term: Any, order: Sequence[int]
) -> Any:
    known_kind, known_sizes, known_bound, known_term, made = other
    if known_kind != kind or len(known_sizes) != len(sizes) or known_term.sort() != term.sort():
        return None
    if len(known_bound) != len(bound) or any(a.sexpr() != b.sexpr() for a, b in zip(known_bound, bound, strict=True)):
        return None
    moved = [known_sizes[at] for at in order]
    if not all(sizes_equal(elements.path, one, size) for one, size in zip(moved, sizes, strict=True)):
        return None
    renamed = (
        z3.substitute(known_term, *((known_bound[at], bound[place]) for place, at in enumerate(order)))
        if bound
        else known_term
    )
    if list(order) != sorted(order):
        elements.axioms.add("the order of the indices of a sum does not matter")
    if renamed.eq(term):
        return made
    solver = new_solver(is_simple=False)
    solver.add(*elements.path.conditions, *elements.facts)
    for _, inside in elements.scopes:
        solver.add(*inside)
    solver.add(*elements.inside, z3.Not(renamed == term))
    return made if solver.check() == z3.unsat else None


def _reduced(
    path: Path, tensor: Any, dims: Sequence[int], keepdim: bool, compute: Callable[[Elements, list[Any], Any], Any],
    dtype: torch.dtype,
) -> SymbolicTensor:  # fmt: skip
    shape = tensor.shape
    kept = [at for at in range(len(shape)) if at not in dims]
    sizes = [1 if at in dims else shape[at] for at in range(len(shape)) if keepdim or at in kept]

    def element(elements: Elements, index: Index) -> Any:
        outer = [index[at] for at in kept] if keepdim else list(index)

        def at(inner: list[Any]) -> Any:
            found: list[Any] = [None] * len(shape)
            for place, one in zip(kept, outer, strict=True):
                found[place] = one
            for place, one in zip(dims, inner, strict=True):
                found[place] = one
            return elements.cast(tensor.at(elements, tuple(found)), tensor.dtype, dtype)

        return compute(elements, [shape[one] for one in dims], at)

    return SymbolicTensor.make(path, sizes, dtype, element)


def _dims(path: Path, tensor: Any, dim: Any) -> list[int]:
    rank = tensor.dim()
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(rank))
    given = dim if isinstance(dim, list | tuple) else [dim]
    found = sorted({normal_dim(path, one, rank) for one in given})
    path.require(len(found) == len(given), "dims once each")
    return found if rank else []


@meaning("aten.sum.dim_IntList")
def sum_over(path: Path, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Sum over dims."""
    target = dtype or (self.dtype if self.dtype.is_floating_point else torch.int64)
    dims = _dims(path, self, dim)
    return _reduced(path, self, dims, bool(keepdim), lambda ev, sizes, at: fold(ev, f"sum_{target}", sizes, at), target)


@meaning("aten.mean.dim")
def mean(path: Path, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Mean over dims."""
    target = dtype or self.dtype
    if target not in FLOATS:
        raise UnsupportedError("a mean of integers")
    dims = _dims(path, self, dim)

    def compute(elements: Elements, sizes: list[Any], at: Any) -> Any:
        if not elements.is_real:
            return fold(elements, f"mean_{target}", sizes, at)
        total = fold(elements, f"sum_{target}", sizes, at)
        return elements.arithmetic("div", total, z3.ToReal(integer(product(sizes))), target)

    return _reduced(path, self, dims, bool(keepdim), compute, target)


@meaning("aten.var.correction")
def var(path: Path, self: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    """Mean square of the distance from the mean, of which the divisor is smaller by the correction."""
    if self.dtype not in FLOATS:
        raise UnsupportedError("a variance of integers")
    path.formulas.add("variances")
    dims = _dims(path, self, dim)
    centre = sub(path, self, mean(path, self, dims, True))
    total = sum_over(path, mul(path, centre, centre), dims, keepdim)
    less = product([self.shape[at] for at in dims]) - (1 if correction is None else correction)
    return MEANINGS["aten.div.Tensor"](path, total, less)


@meaning("aten.linalg_vector_norm.default")
def vector_norm(path: Path, self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The root of a sum of squares, a sum of magnitudes, or the largest one."""
    source = to_dtype(path, self, dtype)
    if source.dtype not in FLOATS:
        raise UnsupportedError("a norm of integers")
    path.formulas.add("norms")
    if bool(ord == 2):
        total = sum_over(path, mul(path, source, source), dim, keepdim)
        return MEANINGS["aten.sqrt.default"](path, total)
    size = MEANINGS["aten.abs.default"](path, source)
    if bool(ord == 1):
        return sum_over(path, size, dim, keepdim)
    if isinstance(ord, float) and math.isinf(ord):
        return MEANINGS[f"aten.{'amax' if ord > 0 else 'amin'}.default"](path, size, dim, keepdim)
    if bool(ord == 0):
        raise UnsupportedError("how many are not zero")
    power = MEANINGS["aten.pow.Tensor_Scalar"]
    return power(path, sum_over(path, power(path, size, ord), dim, keepdim), 1.0 / ord)


def _extreme(name: str) -> None:
    @meaning(f"aten.{name}.default")
    def run(path: Path, self: Any, dim: Any = (), keepdim: bool = False) -> Any:
        dims = _dims(path, self, dim)
        for at in dims:
            path.require(integer(self.shape[at]) > 0, "elements to choose from")
        return _reduced(
            path,
            self,
            dims,
            bool(keepdim),
            lambda ev, sizes, at: fold(ev, f"{name}_{self.dtype}", sizes, at),
            self.dtype,
        )


_extreme("amax")
_extreme("amin")


@meaning("aten.prod.dim_int")
def prod_over(path: Path, self: Any, dim: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    """Product along a dim; of its factors is only known that equal ones give equal products."""
    target = dtype or (self.dtype if self.dtype.is_floating_point else torch.int64)
    dims = _dims(path, self, dim)
    return _reduced(
        path, self, dims, bool(keepdim), lambda ev, sizes, at: fold(ev, f"prod_{target}", sizes, at), target
    )


@meaning("aten.any.default")
def any_of_all(path: Path, self: Any) -> Any:
    """Whether some element is not zero."""
    return any_over(path, self, list(range(self.dim())), keepdim=False)


@meaning("aten.any.dim", "aten.any.dims")
def any_over(path: Path, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether some element along dims is not zero."""
    dims = _dims(path, self, dim)
    return _reduced(path, self, dims, bool(keepdim), lambda ev, sizes, at: fold(ev, "any", sizes, at), torch.bool)


def _matrices(path: Path, a: Any, b: Any, what: str) -> SymbolicTensor:
    """Return products of matrices in the last two dims, of which those before broadcast."""
    if a.dtype != b.dtype:
        raise UnsupportedError(f"{what} of different dtypes")
    path.require(integer(a.shape[-1]) == integer(b.shape[-2]), "matrices that fit")
    batch = broadcast_sizes(path, [a.shape[:-2], b.shape[:-2]])
    sizes = [*batch, a.shape[-2], b.shape[-1]]
    inner = a.shape[-1]

    def element(elements: Elements, index: Index) -> Any:
        front, row, column = index[:-2], index[-2], index[-1]

        def at(bound: list[Any]) -> Any:
            left = a.at(elements, (*_front(a, front, batch), row, bound[0]))
            right = b.at(elements, (*_front(b, front, batch), bound[0], column))
            return elements.arithmetic("mul", left, right, a.dtype)

        return fold(elements, product_kind(elements, a.dtype), [inner], at)

    return SymbolicTensor.make(path, sizes, a.dtype, element)


class _Front:
    """The dims of a tensor before its matrices."""

    def __init__(self, tensor: Any) -> None:
        self.shape = tensor.shape[:-2]


def _front(tensor: Any, index: Index, sizes: Sequence[Any]) -> Index:
    return broadcast_index(_Front(tensor), index, sizes)


@meaning("aten.mm.default", "aten.bmm.default")
def product_of_matrices(path: Path, self: Any, mat2: Any) -> Any:
    """Product of matrices."""
    path.require(self.dim() == mat2.dim() and self.dim() in (2, 3), "matrices")
    if self.dim() == 3:
        path.require(integer(self.shape[0]) == integer(mat2.shape[0]), "as many matrices")
    return _matrices(path, self, mat2, "mm")


@meaning("aten.matmul.default")
def matmul(path: Path, self: Any, other: Any) -> Any:
    """Product of matrices or vectors; the dims before broadcast."""
    if self.dim() < 2 or other.dim() < 2:
        raise UnsupportedError("matmul of vectors")
    return _matrices(path, self, other, "matmul")


@meaning("aten.linear.default")
def linear(path: Path, input: Any, weight: Any, bias: Any = None) -> Any:
    """Product with a transposed matrix, and a bias."""
    path.require(weight.dim() == 2 and input.dim() >= 1, "a matrix of weights")
    is_vector = input.dim() == 1
    rows = unsqueeze(path, input, 0) if is_vector else input
    made = _matrices(path, rows, transpose_matrix(path, weight), "linear")
    made = viewed(path, made, made.shape[1:]) if is_vector else made
    return made if bias is None else add(path, made, bias)


@meaning("aten.addmm.default")
def addmm(path: Path, self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """A product of matrices and a bias."""
    made = product_of_matrices(path, mat1, mat2)
    if not (isinstance(alpha, int | float) and alpha == 1):
        made = mul(path, made, alpha)
    if isinstance(beta, int | float) and beta == 1:
        return add(path, made, self)
    if bool(beta == 0):
        return made
    return add(path, made, mul(path, self, beta))


@meaning("aten.baddbmm.default")
def baddbmm(path: Path, self: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """Products of matrices and a bias."""
    return addmm(path, self, batch1, batch2, beta, alpha)


def _softmax(path: Path, tensor: Any, dim: Any, dtype: Any, name: str) -> SymbolicTensor:
    source = tensor if dtype is None else to_dtype(path, tensor, dtype)
    rank = source.dim()
    if not rank:
        raise UnsupportedError("a softmax without dims")
    at = normal_dim(path, dim, rank)

    def element(elements: Elements, index: Index) -> Any:
        def term(bound: list[Any]) -> Any:
            return source.at(elements, (*index[:at], bound[0], *index[at + 1 :]))

        own = source.at(elements, index)
        if elements.is_real:
            total = fold(
                elements, f"sum_{source.dtype}", [source.shape[at]], lambda bound: real_exp(elements, term(bound))
            )
            elements.facts.append(total > 0)
            elements.axioms.add("a sum of exponentials is positive")
            if name == "log_softmax":
                return own - real_log(elements, total)
            return elements.arithmetic("div", real_exp(elements, own), total, source.dtype)
        total = fold(elements, f"{name}_over_{source.dtype}", [source.shape[at]], term)
        return elements.function(f"{name}_{source.dtype}", elements.sort(source.dtype), [own, total])

    return SymbolicTensor.make(path, source.shape, source.dtype, element)


@meaning("aten._softmax.default")
def softmax_of(path: Path, self: Any, dim: Any, half_to_float: bool = False) -> Any:
    """Softmax along a dim."""
    if half_to_float:
        raise UnsupportedError("a softmax of halves as floats")
    return _softmax(path, self, dim, None, "softmax")


@meaning("aten.softmax.int")
def softmax(path: Path, self: Any, dim: Any, dtype: Any = None) -> Any:
    """Softmax along a dim."""
    return _softmax(path, self, dim, dtype, "softmax")


@meaning("aten._safe_softmax.default")
def safe_softmax(path: Path, self: Any, dim: Any, dtype: Any = None) -> Any:
    """Softmax along a dim that gives zeros where all is minus infinity."""
    return _softmax(path, self, dim, dtype, "safe_softmax")


@meaning("aten._log_softmax.default")
def log_softmax(path: Path, self: Any, dim: Any, half_to_float: bool = False) -> Any:
    """Logarithm of the softmax along a dim."""
    return _softmax(path, self, dim, None, "log_softmax")


@meaning("aten.scaled_dot_product_attention.default")
def attention(
    path: Path, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: Any = 0.0, is_causal: Any = False,
    scale: Any = None, enable_gqa: Any = False,
) -> Any:  # fmt: skip
    """The softmax of scaled products and a mask, times values."""
    if not bool(dropout_p == 0) or is_causal or enable_gqa:
        raise UnsupportedError("attention with dropout, a triangle, or groups of heads")
    path.require(query.dim() >= 2 and key.dim() >= 2 and value.dim() >= 2, "matrices")
    path.formulas.add("attention")
    if scale is None:
        size = query.shape[-1]
        path.require(integer(size) > 0, "rows with elements")
        root = size.computed("sqrt") if isinstance(size, Number) else Scalar.of(path, math.sqrt(size))
        scale = 1.0 / root
    order = [*range(key.dim() - 2), key.dim() - 1, key.dim() - 2]
    weights = mul(path, matmul(path, query, permuted(path, key, order)), scale)
    if attn_mask is None:
        return matmul(path, _softmax(path, weights, -1, None, "softmax"), value)
    if attn_mask.dtype == torch.bool:
        weights = where(path, attn_mask, weights, filled(path, [], -math.inf, weights.dtype))
    else:
        weights = add(path, weights, attn_mask)
    return matmul(path, _softmax(path, weights, -1, None, "safe_softmax"), value)


# Norms


def _normalised(
    path: Path, x: Any, dims: Sequence[int], weight: Any, bias: Any, eps: Any, *, centred: bool
) -> SymbolicTensor:
    """Return values of which mean and variance over dims are 0 and 1, scaled and shifted."""
    path.formulas.add("norms")
    centre = sub(path, x, mean(path, x, list(dims), True)) if centred else x
    variance = mean(path, mul(path, centre, centre), list(dims), True)
    made = mul(path, centre, MEANINGS["aten.rsqrt.default"](path, add(path, variance, eps)))
    made = made if weight is None else mul(path, made, weight)
    result: SymbolicTensor = made if bias is None else add(path, made, bias)
    return result


class UnknownResult:
    """A result of which nothing is known, and that nothing may use."""

    dtype = None


@meaning("aten.native_layer_norm.default")
def native_layer_norm(
    path: Path, input: Any, normalized_shape: Sequence[Any], weight: Any, bias: Any, eps: Any
) -> list[Any]:
    """Layer norm over the last dims."""
    return [layer_norm(path, input, normalized_shape, weight, bias, eps), UnknownResult(), UnknownResult()]


@meaning("aten.layer_norm.default")
def layer_norm(
    path: Path, input: Any, normalized_shape: Sequence[Any], weight: Any = None, bias: Any = None, eps: Any = 1e-5,
    **_: Any,
) -> Any:  # fmt: skip
    """Layer norm over the last dims."""
    count = len(normalized_shape)
    path.require(0 < count <= input.dim(), "dims to normalise")
    for one, other in zip(normalized_shape, input.shape[-count:], strict=True):
        path.require(integer(one) == integer(other), "the sizes of the last dims")
    for tensor in (weight, bias):
        for one, other in zip(() if tensor is None else tensor.shape, normalized_shape, strict=tensor is not None):
            path.require(integer(one) == integer(other), "parameters of these sizes")
    return _normalised(path, input, range(-count, 0), weight, bias, eps, centred=True)


@meaning("aten.rms_norm.default")
def rms_norm(path: Path, input: Any, normalized_shape: Sequence[Any], weight: Any = None, eps: Any = None) -> Any:
    """RMS norm over the last dims."""
    count = len(normalized_shape)
    path.require(0 < count <= input.dim(), "dims to normalise")
    for one, other in zip(normalized_shape, input.shape[-count:], strict=True):
        path.require(integer(one) == integer(other), "the sizes of the last dims")
    if eps is None:
        raise UnsupportedError("an RMS norm without eps")
    return _normalised(path, input, range(-count, 0), weight, None, eps, centred=False)


@meaning("aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    path: Path, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, eps: Any, **_: Any
) -> list[Any]:
    """Batch norm with known mean and variance of each channel."""
    path.require(input.dim() >= 2, "a dim of channels")
    for tensor in (weight, bias, running_mean, running_var):
        if tensor is not None:
            path.require(tensor.dim() == 1, "parameters of one dim")
            path.require(integer(tensor.shape[0]) == integer(input.shape[1]), "a parameter for each channel")
    path.formulas.add("norms")
    wide = [1] * (input.dim() - 2)

    def of_channels(tensor: Any) -> Any:
        return viewed(path, tensor, [tensor.shape[0], *wide])

    factor = MEANINGS["aten.rsqrt.default"](path, add(path, running_var, eps))
    made = mul(path, sub(path, input, of_channels(running_mean)), of_channels(factor))
    made = made if weight is None else mul(path, made, of_channels(weight))
    made = made if bias is None else add(path, made, of_channels(bias))
    return [made, UnknownResult(), UnknownResult()]


@meaning("aten.batch_norm.default")
def batch_norm_of_model(
    path: Path, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: Any, eps: Any,
    **_: Any,
) -> Any:  # fmt: skip
    """Batch norm, which takes what it knows of each channel where it does not train."""
    if training:
        raise UnsupportedError("a batch norm that trains")
    return batch_norm(path, input, weight, bias, running_mean, running_var, eps)[0]


@meaning("aten.native_group_norm.default")
def native_group_norm(path: Path, input: Any, weight: Any, bias: Any, group: Any, eps: Any, **sizes: Any) -> list[Any]:
    """Norms over the channels of each group."""
    shape = input.shape
    batch, channels, rest = (integer(sizes[name]) for name in ("N", "C", "HxW"))
    path.require(len(shape) >= 2 and integer(group) > 0, "groups of channels")
    path.require(z3.And(batch == integer(shape[0]), channels == integer(shape[1])), "the sizes of the input")
    path.require(rest == integer(product(shape[2:])), "the sizes of the input")
    path.require(channels % integer(group) == 0, "groups of equal size")
    each = shape[1] // group
    path.assume(integer(each) * integer(group) == integer(shape[1]))
    inner = viewed(path, input, [shape[0], group, each, *shape[2:]])
    made = _normalised(path, inner, range(2, inner.dim()), None, None, eps, centred=True)
    made = viewed(path, made, shape)
    wide = [1] * (len(shape) - 2)
    made = made if weight is None else mul(path, made, viewed(path, weight, [weight.shape[0], *wide]))
    made = made if bias is None else add(path, made, viewed(path, bias, [bias.shape[0], *wide]))
    return [made, UnknownResult(), UnknownResult()]


@meaning("aten.glu.default")
def glu(path: Path, self: Any, dim: Any = -1) -> Any:
    """One half of a dim times the sigmoid of the other."""
    at = normal_dim(path, dim, self.dim())
    size = self.shape[at]
    path.require(integer(size) % 2 == 0, "two halves")
    path.formulas.add("glu")
    half = size // 2
    path.assume(2 * integer(half) == integer(size))
    first, second = narrow(path, self, at, 0, half), narrow(path, self, at, half, half)
    return mul(path, first, MEANINGS["aten.sigmoid.default"](path, second))

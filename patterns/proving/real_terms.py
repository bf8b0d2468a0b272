"""Terms of real numbers as sums of products: their parts, inverses, and what does not depend on an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import z3


def expanded(term: Any) -> Any:
    """Return a term as a sum of products."""
    return z3.simplify(term, som=True)


def summands(term: Any) -> list[Any]:
    """Return the products that an expanded term is the sum of."""
    return list(term.children()) if z3.is_add(term) else [term]


def factors(term: Any) -> list[Any]:
    """Return the factors of a product."""
    return [each for one in term.children() for each in factors(one)] if z3.is_mul(term) else [term]


def multiplied(terms: Sequence[Any]) -> Any:
    """Return a product."""
    made: Any = None
    for one in terms:
        made = one if made is None else made * one
    return z3.RealVal(1) if made is None else made


def inverse(term: Any) -> Any:
    """Return one divided by a term; of a product, the product of what is inverse to its factors."""
    return multiplied([_inverse(one) for one in factors(expanded(term))])


def _inverse(term: Any) -> Any:
    if z3.is_div(term) and term.arg(0).eq(z3.RealVal(1)):
        return term.arg(1)
    return 1 / term


def quotient(term: Any, divisor: Any) -> Any:
    """Return a term divided by one that is not zero; where that is a factor of a product, it is left out."""
    total: Any = z3.RealVal(0)
    for one in summands(expanded(term)):
        parts = factors(one)
        at = next((at for at, each in enumerate(parts) if each.eq(divisor)), None)
        total = total + (
            multiplied([*parts, inverse(divisor)]) if at is None else multiplied(parts[:at] + parts[at + 1 :])
        )
    return expanded(total)


def mentions(term: Any, constants: Sequence[Any]) -> bool:
    """Whether one of some constants is in a term."""
    wanted, seen, left = {one.get_id() for one in constants}, set(), [term]
    while left:
        one = left.pop()
        if one.get_id() in wanted:
            return True
        if one.get_id() not in seen:
            seen.add(one.get_id())
            left += one.children()
    return False


def sum_of_parts(term: Any, bound: Sequence[Any], count: Any, part: Callable[[Any], Any]) -> Any:
    """Return the sum of a term over indices by the sums of the products in it.

    Args:
        term: The term.
        bound: The indices.
        count: How many vectors of indices there are.
        part: From a product of factors that depend on the indices to the sum of it.
    """
    total: Any = z3.RealVal(0)
    for one in summands(expanded(term)):
        inner = [each for each in factors(one) if mentions(each, bound)]
        outer = [each for each in factors(one) if not mentions(each, bound)]
        summed = part(expanded(multiplied(inner))) if inner else z3.ToReal(count)
        total = total + multiplied([*outer, summed])
    return expanded(total)


def exponential(term: Any, exp: Callable[[Any], Any]) -> Any:
    """Return an exponential of a sum as the product of those of its parts, and of a negative part as an inverse."""
    made = []
    for one in summands(expanded(term)):
        first, *rest = factors(one)
        if z3.is_rational_value(first) and first.as_fraction() < 0:
            made.append(1 / exp(expanded(-first * multiplied(rest))))
        else:
            made.append(exp(one))
    return multiplied(made)


def logarithm(term: Any, log: Callable[[Any], Any], name: str) -> Any:
    """Return a logarithm of a product without its exponentials, of which that is the argument.

    Args:
        term: The term.
        log: The logarithm of what is left.
        name: Name of the function that exponentials are.
    """
    total: Any = z3.RealVal(0)
    rest = []
    for one in factors(expanded(term)):
        inner = one.arg(1) if z3.is_div(one) and one.arg(0).eq(z3.RealVal(1)) else one
        if z3.is_app(inner) and inner.decl().name() == name:
            total = total + (inner.arg(0) if inner is one else -inner.arg(0))
        else:
            rest.append(one)
    return expanded(total + log(expanded(multiplied(rest)))) if rest else expanded(total)

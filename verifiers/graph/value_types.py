"""What is fixed about a recorded value: dtype and sizes, compared without adding guards to symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from exirkit.ir import all_sizes, evaluated, sorted_symbols

# So many combinations of sizes are looked at, and ends and some in between where there are more.
_MOST_TRIALS = 512

# What torch says of a size that only data decide, where it does not say that there is no greatest one.
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class TensorType:
    """Dtype and sizes of a tensor."""

    dtype: torch.dtype
    sizes: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}[{', '.join(map(str, self.sizes))}]"


def type_of(value: Any) -> Any:
    """Return the type of a tensor; a number, None or symbolic number is returned as it is."""
    return TensorType(value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else value


def row_of(kind: Any) -> Any:
    """Return the type of one row of a tensor; what is no tensor with rows is returned as it is."""
    return TensorType(kind.dtype, kind.sizes[1:]) if isinstance(kind, TensorType) and kind.sizes else kind


def difference(left: Any, right: Any) -> str | None:
    """Return how two types differ for certain, or None; a symbolic size may be equal to any other."""
    if not isinstance(left, TensorType) or not isinstance(right, TensorType):
        is_wrong = isinstance(left, TensorType) != isinstance(right, TensorType)
        is_known = left is not None and right is not None
        return f"{left} and {right}" if is_wrong and is_known else None
    same_sizes = len(left.sizes) == len(right.sizes) and all(
        type(one) is not int or type(other) is not int or one == other
        for one, other in zip(left.sizes, right.sizes, strict=True)
    )
    return None if left.dtype == right.dtype and same_sizes else f"{left} and {right}"


def disagreement(left: Sequence[Any], right: Sequence[Any]) -> str | None:
    """Return how two lists of types differ for certain, or None."""
    if len(left) != len(right):
        return f"{len(left)} values and {len(right)} values"
    pairs = enumerate(zip(left, right, strict=True))
    wrong = [f"value {place}: {text}" for place, pair in pairs if (text := difference(*pair))]
    return "; ".join(wrong) or None


def is_bound(bound: Any, size: Any) -> bool:
    """Tell whether a size never exceeds a bound, as far as that is known; a fixed size is its own bound."""
    if type(bound) is not int:
        return True
    if isinstance(size, torch.SymInt):
        known = size.node.maybe_as_int()
        if known is None:
            expression, env = size.node.expr, size.node.shape_env
            # Most sizes are symbols, of which torch knows the range without any computing.
            known_range = env.var_to_range.get(expression) or env.bound_sympy(expression)
            upper = known_range.upper
            return not upper.is_Integer or int(upper) >= _NO_LIMIT or bound >= int(upper) or _never_exceeds(size, bound)
        size = known
    return bool(bound == size)


def _never_exceeds(size: torch.SymInt, bound: int) -> bool:
    """Tell whether numbers say what intervals cannot: `s * s // s` is no larger than `s`."""
    symbols = sorted_symbols(size.node.expr)
    ranges = {one: size.node.shape_env.var_to_range[one] for one in symbols}
    if not all(isinstance(end, sympy.Integer) for known in ranges.values() for end in (known.lower, known.upper)):
        return False
    limits = {one: (int(known.lower), int(known.upper)) for one, known in ranges.items()}
    try:
        return all(evaluated(size.node.expr, point) <= bound for point in all_sizes(limits, most=_MOST_TRIALS))
    except ZeroDivisionError:
        return False

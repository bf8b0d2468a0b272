"""Dim orders: how the dimensions of a dense tensor lie in memory, outermost first.

A `.pte` file stores sizes and a dim order, never strides, so this is the layout language of a program.
Functions here answer what `torch.Tensor.dim_order` answers, from numbers alone, and add no guard to a shape
environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import sympy
import torch

from .diagnostics import Diagnostic, UsageError

Dim: TypeAlias = "int | torch.SymInt"

_CHANNELS_LAST_ORDERS: dict[int, list[int]] = {4: [0, 2, 3, 1], 5: [0, 2, 3, 4, 1]}
# Stands for an unbacked size of which nothing is known: large, so as not to be taken for a degenerate
# dimension.
_UNBACKED_SAMPLE = 4099


def dim_order_from_stride(strides: Sequence[Dim], sizes: Sequence[Dim] | None = None) -> list[int]:
    """Return the dim order of a tensor, equal to what `torch.Tensor.dim_order` returns for it.

    Strides alone leave ties open when a dimension has size 1 or is expanded (stride 0); the sizes decide
    them. A dimension with stride 0 keeps its place among its neighbours, so the answer is a permutation
    always. Without sizes, strides that only a channels-last tensor has are read as channels last; other ties
    keep their order.

    Args:
        strides: Elements between neighbours along each dimension.
        sizes: Elements along each dimension, the same number of entries.

    Returns:
        A permutation of `range(len(strides))`, outermost dimension first.
    """
    ndim = len(strides)
    if ndim < 2:
        return list(range(ndim))
    if sizes is None:
        steps = sample_ints(strides)
        lengths = [2] * ndim
        if _only_channels_last(steps):
            return list(_CHANNELS_LAST_ORDERS[ndim])
    else:
        samples = sample_ints([*strides, *sizes])
        steps, lengths = samples[:ndim], samples[ndim:]
        contiguous = _fills(lengths, steps, list(range(ndim)))
        channels_last = ndim == 4 and _fills(lengths, steps, _CHANNELS_LAST_ORDERS[4])
        if contiguous != channels_last:
            return list(range(ndim)) if contiguous else list(_CHANNELS_LAST_ORDERS[4])
    return _order_by_stride(steps, lengths)


def stride_from_dim_order(sizes: Sequence[Dim], dim_order: Sequence[int]) -> list[Dim]:
    """Return the strides, in elements, of a dense tensor with these sizes laid out in this dim order.

    A dimension of size 0 counts as 1, as in torch, so that strides stay positive.

    Raises:
        UsageError: EK191, if `dim_order` is not a permutation of the dimensions.
    """
    _check_permutation(sizes, dim_order)
    strides: list[Dim] = [1] * len(sizes)
    step: Dim = 1
    # Products of symbolic sizes are expensive, and the size of the outermost dimension is in no stride.
    for place in range(len(sizes) - 1, 0, -1):
        size = sizes[dim_order[place]]
        if not isinstance(size, int):
            step = size if isinstance(step, int) and step == 1 else step * size
        elif size:
            step = step * size
        strides[dim_order[place - 1]] = step
    return strides


def contiguous_stride(sizes: Sequence[Dim]) -> list[Dim]:
    """Return the strides, in elements, of a row-major tensor with these sizes."""
    return stride_from_dim_order(sizes, range(len(sizes)))


def dim_order_from_memory_format(memory_format: torch.memory_format, ndim: int) -> list[int]:
    """Return the dim order that a memory format means for tensors of rank `ndim`.

    Raises:
        UsageError: EK192, if the format fixes no order for this rank, as `torch.preserve_format` never does.
    """
    if memory_format == torch.contiguous_format:
        return list(range(ndim))
    ranks = {torch.channels_last: 4, torch.channels_last_3d: 5}
    if ranks.get(memory_format) == ndim:
        return list(_CHANNELS_LAST_ORDERS[ndim])
    raise UsageError(
        Diagnostic(
            code="EK192",
            message=f"{memory_format} fixes no dim order for a tensor of rank {ndim}",
            expected="contiguous_format, channels_last (rank 4) or channels_last_3d (rank 5)",
        )
    )


def sample_ints(values: Iterable[Dim]) -> list[int]:
    """Return the values at one consistent assignment of their symbols, without adding guards.

    A backed symbol stands for its traced hint, an unbacked one for a large number inside its range.
    """
    listed = list(values)
    symbols = sorted(
        {symbol for value in listed if isinstance(value, torch.SymInt) for symbol in value.node.expr.free_symbols},
        key=lambda symbol: str(symbol.name),
    )
    if not symbols:
        return [int(value.node.expr) if isinstance(value, torch.SymInt) else value for value in listed]
    shape_env = next(v.node.shape_env for v in listed if isinstance(v, torch.SymInt) and v.node.expr.free_symbols)
    assignment = {symbol: _sample(shape_env, symbol, place) for place, symbol in enumerate(symbols)}
    return [_evaluate(value.node.expr, assignment) if isinstance(value, torch.SymInt) else value for value in listed]


def _sample(shape_env: object, symbol: sympy.Symbol, place: int) -> sympy.Integer:
    hint = getattr(shape_env, "backed_var_to_val", {}).get(symbol)
    if hint is not None:
        return sympy.Integer(int(hint))
    bounds = getattr(shape_env, "var_to_range", {}).get(symbol)
    value = _UNBACKED_SAMPLE + 2 * place
    if bounds is not None and isinstance(bounds.upper, (int, sympy.Integer)):
        value = min(value, int(bounds.upper))
    return sympy.Integer(value)


def _evaluate(expression: sympy.Expr, assignment: dict[sympy.Symbol, sympy.Integer]) -> int:
    value = expression.xreplace(assignment)
    return int(value) if value.is_Integer else _UNBACKED_SAMPLE


def _check_permutation(sizes: Sequence[Dim], dim_order: Sequence[int]) -> None:
    if sorted(dim_order) != list(range(len(sizes))):
        raise UsageError(
            Diagnostic(
                code="EK191",
                message=f"dim order {list(dim_order)} is not a permutation of the {len(sizes)} dimensions",
                expected=f"each of {list(range(len(sizes)))} once",
            )
        )


def _fills(lengths: Sequence[int], steps: Sequence[int], dim_order: Sequence[int]) -> bool:
    """Return whether the tensor is dense in this order; strides of dimensions of size 1 do not matter."""
    if 0 in lengths and dim_order == list(range(len(lengths))):
        return True
    expected = 1
    for dim in reversed(dim_order):
        if lengths[dim] == 1:
            continue
        if steps[dim] != expected:
            return False
        expected *= lengths[dim]
    return True


def _only_channels_last(steps: Sequence[int]) -> bool:
    """Return whether strides grow from channels to batch, and a spatial one exceeds that of the channels."""
    order = _CHANNELS_LAST_ORDERS.get(len(steps))
    if order is None:
        return False
    inner_to_outer = [steps[dim] for dim in reversed(order)]
    return 0 not in steps and inner_to_outer == sorted(inner_to_outer) and inner_to_outer[-2] > steps[1]


def _order_by_stride(steps: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Sort dimensions by stride; one with stride 0 has no place of its own and ties with all.

    That relation is not transitive, so the result depends on the way of sorting: each dimension moves inwards
    past larger strides and past the undecided ones between them, which is how torch resolves it.
    """
    inner_first: list[int] = []
    for dim in reversed(range(len(steps))):
        inner_first.append(dim)
        place = len(inner_first) - 1
        for candidate in range(place - 1, -1, -1):
            verdict = _compare(inner_first[candidate], dim, steps, lengths)
            if verdict < 0:
                break
            if verdict > 0:
                inner_first[candidate], inner_first[place] = dim, inner_first[candidate]
                place = candidate
    return inner_first[::-1]


def _compare(inner: int, outer: int, steps: Sequence[int], lengths: Sequence[int]) -> int:
    """Return -1 if the two stand rightly, 1 if they must change places, 0 if their strides do not tell."""
    if steps[inner] == 0 or steps[outer] == 0:
        return 0
    if steps[inner] == steps[outer]:
        return 0 if lengths[outer] >= lengths[inner] else 1
    return -1 if steps[outer] > steps[inner] else 1

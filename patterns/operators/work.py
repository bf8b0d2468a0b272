"""How much work a call is: results, multiplications and separate pieces of memory, from shapes and arguments alone.

What a unit of work costs is the business of a target description.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import underlying

from .argument_view import canonical_arguments
from .facts import operators_with
from .table import name_of


@dataclass(frozen=True)
class Work:
    """What one call has to do.

    Attributes:
        elements: Elements that are computed or moved: of the result, or of the input where that is reduced.
        macs: Multiplications with addition, for products of matrices and for convolutions.
        runs: Pieces of memory that are handled one by one: runs of a copy, rows of a norm, matrices of a batch.
        is_broadcast: Operands differ in shape, so that elements are found by index arithmetic.
    """

    elements: int = 0
    macs: int = 0
    runs: int = 0
    is_broadcast: bool = False


def work_of(node: Node) -> Work | None:
    """Return the work of a call.

    Args:
        node: Call of an operator, with its value recorded.

    Returns:
        The work; sizes that vary count as large as they were when the program was exported. None where sizes are
        not known at all, or the value is no tensor.
    """
    op = underlying(node.target)
    if not isinstance(op, torch._ops.OpOverload):
        return Work()
    results = _tensors(node.meta.get("val"))
    arguments = dict(canonical_arguments(node))
    inputs = [value for one in arguments.values() for value in _tensors(_recorded(one))]
    shapes = [_sizes(one) for one in (*results, *inputs)]
    if not results or any(shape is None for shape in shapes):
        return None
    out = [shape for shape in shapes[: len(results)] if shape is not None]
    given = [shape for shape in shapes[len(results) :] if shape is not None]
    name = name_of(op)
    elements = sum(map(math.prod, out))
    if op in operators_with("reductions") or name in _REDUCING:
        elements = max([elements, *map(math.prod, given)])
    special = _RUNS.get(name.rpartition(".")[0])
    call = _Call(arguments, out, given)
    macs = _macs(name, call)
    return Work(
        elements=elements * _window(name, arguments),
        macs=macs,
        runs=special(call) if special is not None else 0,
        is_broadcast=not macs and special is None and _is_broadcast(out[0], given),
    )


@dataclass(frozen=True)
class _Call:
    arguments: dict[str, Any]
    out: Sequence[tuple[int, ...]]
    given: Sequence[tuple[int, ...]]


def _recorded(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_recorded(one) for one in value]
    return value.meta.get("val") if isinstance(value, Node) else value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for one in value if isinstance(one, torch.Tensor)] if isinstance(value, list | tuple) else []


def _sizes(value: torch.Tensor) -> tuple[int, ...] | None:
    """Return sizes as numbers; for those that vary the example is taken with which the program was exported."""
    sizes = [one.node.hint if isinstance(one, torch.SymInt) else one for one in value.shape]
    return None if any(one is None for one in sizes) else tuple(map(int, sizes))


def _is_broadcast(out: tuple[int, ...], given: Sequence[tuple[int, ...]]) -> bool:
    return len(given) > 1 and any(one != out and math.prod(one) > 1 for one in given)


_REDUCING = frozenset(
    f"aten.{name}"
    for name in (
        "_softmax.default",
        "_log_softmax.default",
        "native_layer_norm.default",
        "native_group_norm.default",
        "any.dim",
        "argmax.default",
    )
)


def _window(name: str, arguments: dict[str, Any]) -> int:
    """Return how many elements are read for each one of the result."""
    if name in ("aten.max_pool2d_with_indices.default", "aten.avg_pool2d.default"):
        return math.prod(int(one) for one in arguments["kernel_size"])
    return 1


def _macs(name: str, call: _Call) -> int:
    out, given = call.out[0], call.given
    if name in ("aten.mm.default", "aten.bmm.default", "aten.linear.default"):
        return math.prod(out) * given[0][-1]
    if name == "aten.addmm.default":
        return math.prod(out) * given[1][-1]
    if name == "aten.convolution.default":
        weight = given[1]
        across = math.prod(weight[1:])
        # A transposed one adds every input into a window of results.
        return math.prod(given[0]) * across if call.arguments.get("transposed") else math.prod(out) * across
    return 0


def _above(shape: Sequence[int], dim: int) -> int:
    return math.prod(shape[: dim % len(shape)] if shape else ())


def _slice_runs(call: _Call) -> int:
    out, dim = call.out[0], int(call.arguments["dim"])
    pieces = _above(out, dim)
    return pieces if call.arguments["step"] == 1 or not out else pieces * out[dim % len(out)]


def _joined_runs(call: _Call) -> int:
    dim = int(call.arguments["dim"])
    return sum(_above(one, dim) for one in (call.given if len(call.out) == 1 else call.out))


def _permute_runs(call: _Call) -> int:
    """A permutation moves what lies together in both orders."""
    dims = [int(one) for one in call.arguments["dims"]]
    kept = len(dims)
    while kept and dims[kept - 1] == kept - 1:
        kept -= 1
    return math.prod(call.out[0][:kept])


def _expand_runs(call: _Call) -> int:
    given, out = call.given[0], call.out[0]
    padded = (1,) * (len(out) - len(given)) + tuple(given)
    kept = len(out)
    while kept and padded[kept - 1] == out[kept - 1]:
        kept -= 1
    return math.prod(out[:kept])


def _rows(call: _Call) -> int:
    return math.prod(call.given[0][:-1])


_RUNS: dict[str, Callable[[_Call], int]] = {
    "aten.slice_copy": _slice_runs,
    "aten.select_copy": lambda call: _above(call.given[0], int(call.arguments["dim"])),
    "aten.cat": _joined_runs,
    "aten.split_with_sizes_copy": _joined_runs,
    "aten.constant_pad_nd": _rows,
    "aten.permute_copy": _permute_runs,
    "aten.expand_copy": _expand_runs,
    "aten._softmax": _rows,
    "aten.native_layer_norm": _rows,
    "aten.bmm": lambda call: call.given[0][0],
}
"""How many pieces an operator handles, by its name without the overload."""

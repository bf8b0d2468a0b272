"""The one value inference: what calls return, from the recorded values of their arguments.

Three strategies answer, the fastest first: `kernel` runs meta kernels for static sizes, `sampled` fits expressions to
what these return for a few sizes, `fake` runs operators on fake tensors. Models repeat their layers, so results are
cached by operator and by what the arguments are: dtype, sizes, strides, device and plain numbers.

Fake tensors ask in which memory format a processor would compute, among much else, and take ten times as long. Most
operators never depend on that, so their meta kernels return the same. Where those are written in Python, and the
operator works element by element, computing with ones is faster still.

torch infers `permute_copy` and its kind by a view and a copy of it, and compares strides on the way: a guard on sizes
on which no result depends. Here the view is inferred, and the copy is row-major, as the kernels make it.

An operator on symbolic fake tensors compares hundreds of expressions; on a few numeric sizes it compares none. Each
size of a result is an expression that agrees with all samples: a number, a size of an argument, or a linear combination
of symbols. A stride is a number, a stride of an argument, or a product of sizes. Where nothing fits, fake tensors are
needed.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, Literal, TypeAlias

import sympy
import torch
from torch.fx import Node
from torch.fx.node import map_aggregate, map_arg

from exirkit.ir.operators.handles import DefinedOperator, underlying, view

from .analysis import attribute_of, is_static, same_argument
from .diagnostics import Diagnostic, DiagnosticError, ModelError
from .provenance import locate, show_call, show_value, target_name
from .tensor_spec import contiguous_stride, empty_meta_tensor
from .torch_internals import (
    TORCH_LOGGERS,
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    ShapeEnvGuardError,
    compute_unbacked_bindings,
    disable_fake_tensor_cache,
    disable_torch_dispatch,
    enable_python_dispatcher,
    make_fake_tensor,
    pytree,
)

# Their results on a processor have other strides or sizes than the meta kernels return, or come from other kernels.
_PARTICULAR = ("conv", "batch_norm", "attention", "mkldnn", "lstm", "gru", "rnn", "cudnn", "miopen", "as_strided")
_MOST_COMPUTED = 1 << 14
"""Elements of the largest tensor of ones."""
# torch computes their shapes in Python, which takes longer than computing small results.
_IN_PYTHON = frozenset(
    f"aten::{name}"
    for name in (
        "_log_softmax", "_softmax", "addmm", "clone", "cumsum", "gelu", "glu", "grid_sampler_2d", "hardtanh",
        "layer_norm", "linear", "logsumexp", "max_pool2d_with_indices", "native_group_norm", "native_layer_norm",
        "upsample_bilinear2d", "upsample_nearest2d", "var_mean", "where",
    )
)  # fmt: skip


class _NeedsFakeTensorsError(Exception):
    """A value whose sizes or strides only fake tensors handle."""


class _LargeError(Exception):
    """A value too large to compute with."""


def meta_value(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a call as tensors of the right sizes, or None where fake tensors are needed.

    Args:
        target: An operator.
        args: Arguments as in a graph; nodes have recorded values.
        kwargs: Keyword arguments as in a graph.
    """
    target = underlying(target)
    known = _KNOWN.get(id(target))
    if known is None and not has_meta_value(target):
        return None
    try:
        values: Any = map_aggregate((tuple(args), dict(kwargs)), _as_meta)
        if known is not None:
            return known(*values[0], **values[1])
        given = values[1] if _takes_tensors(target) else {**values[1], "device": "meta"}
        with torch.no_grad():
            if is_faster_on_ones(target):
                return _computed(target, values[0], given)
            return target(*values[0], **given)
    except Exception:
        # Whatever is wrong, fake tensors report it in the words that users of torch know.
        return None


@lru_cache(maxsize=4096)
def _shared_meta_tensor(
    dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> torch.Tensor:
    """Return a tensor that operators read and never write to, so that one does for all values of its layout."""
    return empty_meta_tensor(dtype, sizes, strides, offset)


def _normalized(source: torch.Tensor, *parameters: Any) -> tuple[torch.Tensor, ...]:
    """Return the results of a batch norm with given statistics, for which torch would run a dozen fake operators.

    The last two are empty on a processor.

    Raises:
        _NeedsFakeTensorsError: Types may be mixed, or something does not fit.
    """
    *tensors, _, _ = parameters
    given = [one for one in tensors if one is not None]
    channels = source.shape[1:2]
    fits = all(one.shape == channels and one.dtype is source.dtype is torch.float32 for one in given)
    if not (fits and len(tensors) == 4 and not any(one is None for one in tensors[2:]) and _is_row_major(source)):
        raise _NeedsFakeTensorsError
    return torch.empty_like(source), source.new_empty(0), source.new_empty(0)


def _convolved(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Return the result of a convolution, for which torch would choose a kernel and ask it for its order of dims.

    Raises:
        _NeedsFakeTensorsError: The order of dims is not the usual one, or something does not fit.
    """
    count = source.dim() - 2
    steps = [[*one] * count if len(one) == 1 else [*one] for one in (stride, padding, dilation, output_padding)]
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    taken = weight.shape[0] if transposed else weight.shape[1] * groups
    tensors = [source, weight] if bias is None else [source, weight, bias]
    fits = (
        count > 0
        and weight.dim() == source.dim()
        and source.shape[1] == taken
        and weight.shape[0] % groups == 0
        and (bias is None or bias.shape == (channels,))
        and all(one.dtype is torch.float32 and _is_row_major(one) for one in tensors)
        and all(len(one) == count for one in steps)
        and min(*steps[0], *steps[2]) > 0
        and min(*steps[1], *steps[3]) >= 0
    )
    if not fits:
        raise _NeedsFakeTensorsError
    sizes = [
        (size - 1) * step - 2 * pad + spread * (kernel - 1) + more + 1
        if transposed
        else (size + 2 * pad - spread * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, spread, more in zip(source.shape[2:], weight.shape[2:], *steps, strict=True)
    ]
    if min(sizes) <= 0:
        raise _NeedsFakeTensorsError
    return source.new_empty((source.shape[0], channels, *sizes))


_KNOWN: dict[int, Callable[..., Any]] = {
    id(torch.ops.aten._native_batch_norm_legit_no_training.default): _normalized,
    id(torch.ops.aten.convolution.default): _convolved,
}
"""What is worked out here because torch takes long for it, by the identity of the operator, which lives for ever."""


@lru_cache(maxsize=4096)
def has_meta_value(target: Any) -> bool:
    """Return whether meta kernels of an operator return what fake tensors would."""
    if isinstance(target, DefinedOperator):
        return target._schema.name.startswith("dim_order_ops::") and not target._schema.is_mutable
    if not isinstance(target, OpOverload):
        return target is view
    if not target._schema.name.startswith(("aten::", "quantized_decomposed::")) or target._schema.is_mutable:
        return False
    is_particular = any(part in target._schema.name for part in _PARTICULAR)
    return not is_particular and torch.Tag.data_dependent_output not in target.tags


@lru_cache(maxsize=4096)
def is_faster_on_ones(target: Any) -> bool:
    """Return whether computing with a few ones returns what meta kernels do, and sooner."""
    if not isinstance(target, OpOverload):
        return False
    return _is_pointwise(target) or target._schema.name in _IN_PYTHON


def _is_pointwise(op: OpOverload) -> bool:
    # torch has forgotten to tag the one.
    return torch.Tag.pointwise in op.tags or op is torch.ops.aten.hardswish.default


@lru_cache(maxsize=4096)
def _takes_tensors(target: Any) -> bool:
    if target is view:
        return True
    names = [one.name for one in target._schema.arguments]
    return "device" not in names or any("Tensor" in str(one.type) for one in target._schema.arguments)


def _as_meta(argument: Any) -> Any:
    """Return an argument with meta tensors for nodes."""
    value = argument.meta.get("val") if isinstance(argument, Node) else argument
    if isinstance(value, torch.Tensor):
        if type(value) is not torch.Tensor or value.device.type != "meta":
            if not all(type(one) is int for one in (*value.shape, *value.stride())):
                raise _NeedsFakeTensorsError
            value = _shared_meta_tensor(value.dtype, tuple(value.shape), value.stride(), value.storage_offset())
        # A processor keeps memory formats that some meta kernels forget, and strides of empty tensors are arbitrary.
        if value.numel() == 0 or (value.dim() > 3 and not _is_row_major(value)):
            raise _NeedsFakeTensorsError
        return value
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise _NeedsFakeTensorsError
    return value


def _is_row_major(value: torch.Tensor) -> bool:
    """Return whether strides are those of a new tensor, in dims of one element too: others are taken for a format."""
    step = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if stride != step:
            return False
        step *= size
    return True


def _with_ones(argument: Any) -> Any:
    """Return a tensor of ones for a meta tensor; dividing by ones is not an error."""
    if not isinstance(argument, torch.Tensor):
        return argument
    last = sum((size - 1) * stride for size, stride in zip(argument.shape, argument.stride(), strict=True))
    length = argument.storage_offset() + max(last, 0) + 1
    if length > _MOST_COMPUTED:
        raise _LargeError
    ones = torch.ones(length, dtype=argument.dtype)
    return ones.as_strided(argument.shape, argument.stride(), argument.storage_offset())


def _computed(target: Any, args: Any, kwargs: Any) -> Any:
    try:
        return target(*map_aggregate(args, _with_ones), **map_aggregate(kwargs, _with_ones))
    except _LargeError:
        found = _as_one_element(target, args, kwargs) if _is_pointwise(target) else None
        return target(*args, **kwargs) if found is None else found


def _as_one_element(target: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """Return the result of a pointwise operator, whose dtype is that of one element; None where that is not all."""
    shapes: list[torch.Size] = []
    is_usual = kwargs.get("memory_format") is None

    def one_element(argument: Any) -> Any:
        nonlocal is_usual
        if not isinstance(argument, torch.Tensor):
            return argument
        shapes.append(argument.shape)
        is_usual &= _is_row_major(argument)
        return torch.ones((1,) * argument.dim(), dtype=argument.dtype)

    result = target(*map_aggregate(args, one_element), **map_aggregate(kwargs, one_element))
    if not is_usual or not isinstance(result, torch.Tensor):
        return None
    return torch.empty(torch.broadcast_shapes(*shapes), dtype=result.dtype, device="meta")


# What it shows depends on where its source lies in memory.
_BY_ADDRESS = torch.ops.aten.as_strided_copy.default


def infer_value(mode: FakeTensorMode, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operator on the recorded values of its arguments.

    The sizes of a program are promises made to its users, so an operator that has a value only under a further
    condition on them (`s0 == 4`) is rejected; no guard is ever added.

    Args:
        mode: Fake tensor mode of the graph; real tensors and those of other modes are taken over into it.
        target: Any callable graph target.
        args: Arguments as in the graph, nodes included.
        kwargs: Keyword arguments as in the graph.

    Returns:
        A fake tensor, a tuple or list of them, a number, or None.

    Raises:
        ModelError: EK112, an argument is a node without a recorded value.
        Exception: Whatever the operator raises if it does not take the arguments.
    """
    schema = getattr(target, "_schema", None)
    take = partial(_private if schema is not None and schema.is_mutable else _recorded, mode)
    values: Any = map_aggregate((tuple(args), dict(kwargs)), take)
    if target is torch.ops.aten.copy_.default and _is_plain_copy(values[0]):
        return values[0][0]
    env = mode.shape_env
    view = view_of_copy(underlying(target))
    with nullcontext() if env is None else env.error_on_new_guards(), mode, torch.no_grad():
        if _all_static(values):
            return target(*values[0], **values[1])
        # Calls on symbols of one program hardly repeat, and torch's cache takes longer than inferring.
        with disable_fake_tensor_cache(mode):
            if view is not None:
                return infer_view_copy(view, *values)
            # Composite operators such as `constant_pad_nd` need numbers, except for their decompositions in Python.
            with enable_python_dispatcher():
                return target(*values[0], **values[1])


def _is_plain_copy(args: Sequence[Any]) -> bool:
    """Return whether a tensor is copied into one of its own sizes, so that nothing is to infer."""
    tensors = [one for one in args[:2] if isinstance(one, torch.Tensor)]
    return len(tensors) == 2 and same_argument(tuple(tensors[0].shape), tuple(tensors[1].shape))


def _all_static(values: Any) -> bool:
    return all(
        is_static(leaf) if isinstance(leaf, torch.Tensor) else not isinstance(leaf, torch.SymInt)
        for leaf in pytree.tree_leaves(values)
    )


def _recorded(mode: FakeTensorMode, argument: Any) -> Any:
    if isinstance(argument, Node):
        value = argument.meta.get("val")
        if value is None and argument.op == "get_attr" and argument.graph.owning_module is not None:
            # Subgraphs of control flow: arguments of higher-order operators, which run them.
            value = attribute_of(argument)
        elif value is None and "val" not in argument.meta:
            raise ModelError(
                Diagnostic.of("EK112", f"%{argument.name} has no recorded value", location=locate(argument))
            )
        return _in_mode(mode, value)
    return _in_mode(mode, argument) if isinstance(argument, torch.Tensor) else argument


def _private(mode: FakeTensorMode, argument: Any) -> Any:
    # An operator that writes may resize what it writes to, and the recorded value must not change with it.
    value = _recorded(mode, argument)
    return fake_like(mode, value) if isinstance(value, torch.Tensor) and value.layout is torch.strided else value


def _in_mode(mode: FakeTensorMode, value: Any) -> Any:
    if isinstance(value, FakeTensor):
        return value if value.fake_mode is mode else fake_like(mode, value)
    if isinstance(value, torch.Tensor):
        return mode.from_tensor(value, static_shapes=True)
    if isinstance(value, list | tuple):
        return type(value)(_in_mode(mode, one) for one in value)
    return value


def fake_like(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor of the same dtype, shape, strides and device, with memory of its own."""
    return make_fake_tensor(mode, empty_meta_tensor(tensor.dtype, tensor.shape, tensor.stride()), tensor.device)


@cache
def view_of_copy(op: Any) -> OpOverload | None:
    """Return the view whose result the operator copies, `aten.permute` for `aten.permute_copy`, or None."""
    if not isinstance(op, OpOverload) or op is _BY_ADDRESS or torch.Tag.view_copy not in op.tags:
        return None
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_copy"), None)
    view = getattr(packet, op._overloadname, None)
    return view if isinstance(view, OpOverload) and view is not op else None


def infer_view_copy(view: OpOverload, args: Any, kwargs: Any) -> Any:
    """Return the copy of what a view of fake tensors shows; called under their mode."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, _row_major, (args, kwargs))
    if view is torch.ops.aten.view.default and (sizes := _resolved(*args)) is not None:
        return _empty(args[0], sizes)
    if view is torch.ops.aten.select.int and not isinstance(args[0].shape[args[1]], int):
        # torch checks that the selected part ends inside of the memory, which is undecided for products of sizes.
        dim = args[1] % args[0].dim()
        return _empty(args[0], [*args[0].shape[:dim], *args[0].shape[dim + 1 :]])
    return pytree.tree_map_only(torch.Tensor, _row_major, view(*args, **kwargs))


def _resolved(source: torch.Tensor, sizes: Sequence[Any]) -> list[Any] | None:
    """Return the sizes of a view with the -1 among them worked out, or None where that takes a guard.

    torch compares old and new sizes before it compares numbers of elements, which adds a guard.
    """
    free = [place for place, size in enumerate(sizes) if type(size) is int and size == -1]
    known = math.prod(size for place, size in enumerate(sizes) if place not in free)
    if len(free) > 1 or same_argument(known, 0) or any(type(size) is int and size < -1 for size in sizes):
        return None
    resolved = list(sizes)
    for place in free:
        resolved[place] = source.numel() // known
    return resolved if same_argument(math.prod(resolved), source.numel()) else None


def _row_major(value: torch.Tensor) -> torch.Tensor:
    return _empty(value, value.shape)


def _empty(like: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    assert isinstance(like, FakeTensor)
    return make_fake_tensor(like.fake_mode, empty_meta_tensor(like.dtype, sizes, contiguous_stride(sizes)), like.device)


_WIDEST = 97
"""Above its least size no symbol is tried higher than by this."""

Sizes: TypeAlias = "dict[Any, int]"
"""A number for each symbol."""
Ranges: TypeAlias = "Mapping[Any, tuple[int, int]]"
"""Least and greatest size of each symbol."""


def sample_sizes(ranges: Ranges, *, alone: bool = False) -> list[Sizes]:
    """Return sizes to try: the least and the greatest of all together, and uneven ones in between, the latter first.

    Args:
        ranges: Of the symbols.
        alone: Also take each symbol by itself to the ends of its range.
    """
    lows = {one: low for one, (low, _) in ranges.items()}
    highs = {one: min(high, low + _WIDEST) for one, (low, high) in ranges.items()}
    middle = {
        one: low + (highs[one] - low) * share // 7
        for (one, low), share in zip(lows.items(), (3, 5, 2, 4, 1, 6) * len(lows), strict=False)
    }
    found = [middle, lows, highs]
    for one in ranges if alone else ():
        found += [{**middle, one: lows[one]}, {**middle, one: highs[one]}]
    unique = {tuple(one.values()): one for one in found}
    return list(unique.values())


def all_sizes(ranges: Ranges, *, most: int) -> list[Sizes]:
    """Return all combinations of sizes, or those of `sample_sizes` if there are more than `most`."""
    sizes = [range(low, high + 1) for low, high in ranges.values()]
    if math.prod(map(len, sizes)) > most:
        return sample_sizes(ranges, alone=True)
    return [dict(zip(ranges, choice, strict=True)) for choice in itertools.product(*sizes)]


def symbols_within(values: Any) -> Iterator[Any]:
    """Yield the symbols in the sizes and numbers of arguments or values, some of them repeatedly, in a fixed order."""
    found: list[Any] = []
    map_aggregate(values, found.append)
    for one in found:
        value = one.meta.get("val") if isinstance(one, Node) else one
        sizes: tuple[Any, ...] = (value,)
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            sizes = (*value.shape, *value.stride(), value.storage_offset())
        for size in sizes:
            if isinstance(size, torch.SymInt):
                yield from sorted_symbols(size.node.expr)


def with_sizes(arguments: Any, point: Sizes) -> Any:
    """Return arguments with numbers for symbolic ones, and tensors without memory for values of nodes."""
    key = tuple(point.items())

    def place(argument: Any) -> Any:
        value = argument.meta.get("val") if isinstance(argument, Node) else argument
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            sizes, strides = (tuple(_number(one, key) for one in each) for each in (value.shape, value.stride()))
            return _shared_meta_tensor(value.dtype, sizes, strides, _number(value.storage_offset(), key))
        return _number(value, key) if isinstance(value, torch.SymInt) else value

    return map_aggregate(arguments, place)


def evaluated(expression: Any, point: Sizes) -> int:
    """Return what an expression is at a point, which has a number for each of its symbols."""
    return _evaluated(expression, tuple(point.items()))


@lru_cache(maxsize=4096)
def sorted_symbols(expression: Any) -> tuple[Any, ...]:
    """Return the symbols of an expression by name."""
    return tuple(sorted(expression.free_symbols, key=str))


def _number(size: Any, point: tuple[tuple[Any, int], ...]) -> int:
    return size if type(size) is int else _evaluated(size.node.expr, point)


@lru_cache(maxsize=50_000)
def _evaluated(expression: Any, point: tuple[tuple[Any, int], ...]) -> int:
    return int(expression.xreplace({one: sympy.Integer(value) for one, value in point}))


class NoFitError(Exception):
    """A size of the result is none of the expressions that are tried."""


def sampled_value(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], ranges: Ranges) -> Any:
    """Return the dtype, sizes, strides and offset of a result, or lists of them.

    Args:
        target: An operator.
        args: Arguments as in a graph; nodes have recorded values.
        kwargs: Keyword arguments as in a graph.
        ranges: Of the symbols in the arguments; at least one.

    Returns:
        For each tensor a tuple of its dtype, sizes, strides and storage offset; numbers and expressions of sympy.

    Raises:
        NoFitError: Fake tensors are needed.
    """
    if not has_meta_value(target):
        raise NoFitError
    if any(low == high for low, high in ranges.values()):
        # Such a symbol cannot be distinguished from a number.
        raise NoFitError
    points = sample_sizes(ranges, alone=True)
    results = []
    for point in points:
        at = with_sizes((args, kwargs), point)
        found = meta_value(target, at[0], at[1])
        if found is None:
            raise NoFitError
        results.append(found)
    known: tuple[list[Any], list[Any]] = ([], [])
    for value in _values((args, kwargs)):
        if isinstance(value, torch.Tensor):
            known[0].extend(_symbolic(value.shape))
            known[1].extend(_symbolic(value.stride()))
        else:
            known[0].extend(_symbolic([value]))
    return _fitted(results, _Fit(points, ranges, *(list(dict.fromkeys(one)) for one in known)))


def _values(arguments: Any) -> Iterator[Any]:
    found: list[Any] = []
    map_aggregate(arguments, found.append)
    for one in found:
        yield one.meta.get("val") if isinstance(one, Node) else one


def _symbolic(sizes: Sequence[Any]) -> list[Any]:
    return [one.node.expr for one in sizes if isinstance(one, torch.SymInt)]


class _Fit:
    """Finds expressions.

    Args:
        points: Sizes that were tried.
        ranges: Of the symbols.
        sizes: Symbolic sizes of the arguments.
        strides: Symbolic strides of the arguments.
    """

    def __init__(self, points: list[Sizes], ranges: Ranges, sizes: list[Any], strides: list[Any]) -> None:
        self.points = points
        self.symbols = list(ranges)
        self.sizes = sizes
        self.strides = strides

    def size(self, values: list[int]) -> Any:
        """Return a number or expression that has these values at the points."""
        return self._among(self.sizes, values) if len(set(values)) > 1 else values[0]

    def stride(self, values: list[int], product: Any) -> Any:
        """Return a number or expression that has these values at the points; `product` is tried as well."""
        if len(set(values)) == 1:
            return values[0]
        if not isinstance(product, int) and self._has(product, values):
            return product
        return self._among(self.strides, values)

    def _among(self, candidates: list[Any], values: list[int]) -> Any:
        for one in candidates:
            if self._has(one, values):
                return one
        return self._linear(values)

    def _has(self, expression: Any, values: list[int]) -> bool:
        pairs = zip(self.points, values, strict=True)
        return all(evaluated(expression, point) == value for point, value in pairs)

    def _linear(self, values: list[int]) -> Any:
        """Return a linear combination of the symbols, from how each of them alone changes the value."""
        expression: Any = sympy.Integer(0)
        first = self.points[0]
        rest = values[0]
        for symbol in self.symbols:
            alone = [
                (point[symbol] - first[symbol], value - values[0])
                for point, value in zip(self.points, values, strict=True)
                if point[symbol] != first[symbol] and all(point[one] == first[one] for one in first if one != symbol)
            ]
            if len({step for step, _ in alone}) < 2:
                # Two values of a symbol lie on a line whatever the truth is.
                raise NoFitError
            step, change = alone[0]
            if change % step:
                raise NoFitError
            expression += (change // step) * symbol
            rest -= (change // step) * first[symbol]
        expression += rest
        if not self._has(expression, values):
            raise NoFitError
        return expression


def _fitted(results: list[Any], fit: _Fit) -> Any:
    first = results[0]
    if isinstance(first, list | tuple):
        if len({len(one) for one in results}) != 1:
            raise NoFitError
        return [_fitted(list(one), fit) for one in zip(*results, strict=True)]
    if not isinstance(first, torch.Tensor):
        raise NoFitError
    sizes = [fit.size(list(one)) for one in zip(*(one.shape for one in results), strict=True)]
    steps = first.stride()
    order = sorted(range(len(steps)), key=lambda dim: (steps[dim], -dim))
    strides = [
        fit.stride([one.stride(dim) for one in results], _product(sizes, order, dim)) for dim in range(len(steps))
    ]
    offset = fit.size([one.storage_offset() for one in results])
    return first.dtype, tuple(sizes), tuple(strides), offset


def _product(sizes: list[Any], order: list[int], dim: int) -> Any:
    """Return the product of the sizes that are closer in memory than a dim."""
    found: Any = 1
    for inner in order[: order.index(dim)]:
        found = found * sizes[inner]
    return found


Strategy = Literal["kernel", "sampled", "fake"]

Bindings = dict[Any, pytree.KeyPath]
"""Unbacked symbols that a call introduces, with the path to each through the value."""

_PLAIN = (bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
_MOST = 20_000
# torch logs failures before it raises them, also those that are caught here.
_TORCH_LOGS = tuple(logging.getLogger(name) for name in TORCH_LOGGERS)


class _UncacheableError(Exception):
    """An argument or result belongs to one program, or has no key."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is cached of a tensor; a fake tensor would keep the mode of its program alive."""

    dtype: torch.dtype
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    device: torch.device


# Of the whole process: results are layouts, or lists and tuples of them, which belong to no program.
_RESULTS: dict[Any, Any] = {}


class Inference:
    """Infers what calls return, for one graph.

    Args:
        mode: Mode of the graph's fake tensors.
        strategies: Those to try, in this order; `fake` comes last.
        shares_symbols: Symbols of one name and range mean the same in all programs, so that results with symbolic sizes
            are cached too. Needs a shape environment.

    Attributes:
        mode: Mode of the graph's fake tensors.
    """

    def __init__(
        self,
        mode: FakeTensorMode,
        strategies: Sequence[Strategy] = ("kernel", "fake"),
        *,
        shares_symbols: bool = False,
    ) -> None:
        self.mode = mode
        self._strategies = tuple(strategies)
        self._shares_symbols = shares_symbols
        self._numbers: dict[Any, Any] = {}

    def value(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], at: Node) -> tuple[Any, Bindings]:
        """Return what a call computes and the unbacked symbols that it introduces.

        Args:
            target: Any callable graph target.
            args: Arguments as in the graph, nodes included.
            kwargs: Keyword arguments as in the graph.
            at: Node whose place in the program a message names.

        Raises:
            ModelError: EK111, the operator does not take these arguments; EK112, one has no recorded value.
        """
        try:
            return self.call(target, args, kwargs)
        except DiagnosticError:
            raise
        except Exception as error:
            raise ModelError(_rejection(target, args, kwargs, at, error)) from error

    def value_again(self, node: Node) -> tuple[Any, Bindings]:
        """Return what a node computes now; unbacked symbols that it introduced before keep their identity.

        Raises:
            ModelError: As `value`.
        """
        value, fresh = self.value(node.target, node.args, node.kwargs, node)
        known: Bindings = node.meta.get("unbacked_bindings") or {}
        if not known:
            return value, fresh
        new_symbols = {path: symbol for symbol, path in fresh.items()}
        bindings: Bindings = {}
        for symbol, path in known.items():
            new = new_symbols.pop(path, None)
            if new is not None:
                # Later nodes, and the ranges of the program, refer to the old symbol.
                env: Any = self.mode.shape_env
                # torch renames to a symbol of a narrower range only.
                env.var_to_range[symbol] = env.var_to_range[symbol] & env.var_to_range[new]
                env._rename_unbacked_to(new, symbol)
            if new is not None or _symbol_at(value, path) == symbol:
                bindings[symbol] = path
        return value, bindings | {symbol: path for path, symbol in new_symbols.items()}

    def call(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Bindings]:
        """Return what `value` does.

        Raises:
            ModelError: EK112, an argument has no recorded value.
            Exception: Whatever the operator raises if it does not take the arguments.
        """
        key = self._call_key(target, args, kwargs)
        known = None if key is None else _RESULTS.get(key)
        if known is None:
            value, bindings = self._infer(target, args, kwargs)
            if key is None or bindings:
                return value, bindings
            try:
                known = self._recipe(value)
            except _UncacheableError:
                return value, {}
            if len(_RESULTS) >= _MOST:
                _RESULTS.clear()
            _RESULTS[key] = known
            return value, {}
        # The tensors are new: torch notes on a fake tensor how many elements of it are not zero, and two nodes may
        # differ in that though they agree in all else.
        return self._made(known), {}

    def _infer(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Bindings]:
        if "kernel" in self._strategies and (value := infer_static_value(self.mode, target, args, kwargs)) is not None:
            return value, {}
        if "sampled" in self._strategies and (layouts := self._sampled(target, args, kwargs)) is not None:
            return self._made(layouts), {}
        env = self.mode.shape_env
        if env is None:
            return infer_value(self.mode, target, args, kwargs), {}
        # torch returns new symbols in this list, which is empty unless an outer inference is running.
        others = list(env.pending_fresh_unbacked_symbols)
        env.pending_fresh_unbacked_symbols.clear()
        try:
            with no_torch_logs():
                value = infer_value(self.mode, target, args, kwargs)
                return value, compute_unbacked_bindings(env, value) or {}
        finally:
            env.pending_fresh_unbacked_symbols[:] = others

    def _sampled(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        env: Any = self.mode.shape_env
        symbols = dict.fromkeys(symbols_within((tuple(args), dict(kwargs)))) if env is not None else {}
        if not symbols:
            return None
        ranges = {one: env.var_to_range[one] for one in symbols}
        # A bound that is not a number is infinite.
        if not all(isinstance(bound, sympy.Integer) for one in ranges.values() for bound in (one.lower, one.upper)):
            return None
        try:
            limits = {one: (int(range_.lower), int(range_.upper)) for one, range_ in ranges.items()}
            found = sampled_value(target, tuple(args), dict(kwargs), limits)
        except (NoFitError, OverflowError):
            return None
        return _layouts(found)

    # Keys of calls

    def _call_key(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return a key that is equal for calls that compute the same value, or None if there is none."""
        if not self._is_cacheable(target):
            return None
        try:
            named = tuple((name, self._key(value)) for name, value in kwargs.items())
            # What operators make of plain numbers depends on the default dtype.
            return self._strategies, target, self._key(args), named, torch.get_default_dtype()
        except _UncacheableError:
            return None

    def _is_cacheable(self, target: Any) -> bool:
        schema = getattr(target, "_schema", None)
        # Views share memory with their arguments, which belongs to their value.
        return schema is not None and (
            self._shares_symbols or all(result.alias_info is None for result in schema.returns)
        )

    def _key(self, argument: Any) -> Any:
        kind = type(argument)
        if kind is int or kind is bool:
            # Most are, and there are many.
            return kind, argument
        if isinstance(argument, Node):
            argument = argument.meta.get("val")
            if not self._shares_symbols and not isinstance(argument, torch.Tensor):
                raise _UncacheableError
        elif isinstance(argument, torch.Tensor) and not isinstance(argument, FakeTensor):
            raise _UncacheableError
        if isinstance(argument, torch.Tensor):
            return self._tensor_key(argument)
        if isinstance(argument, list | tuple):
            # Sizes, mostly; the type keeps them apart from a number.
            return (list, *argument) if _are_ints(argument) else tuple(map(self._key, argument))
        if isinstance(argument, float):
            # NaN would never be found again, and -0.0 would be taken for 0.0.
            return float, argument.hex()
        if isinstance(argument, torch.SymInt):
            return self._size_key(argument)
        if isinstance(argument, _PLAIN):
            # The type belongs to it: 1 and True are equal, and mean different things to an operator.
            return type(argument), argument
        raise _UncacheableError

    def _tensor_key(self, tensor: torch.Tensor) -> Any:
        if tensor.layout is not torch.strided:
            raise _UncacheableError
        sizes = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
        if not _are_ints(sizes):
            sizes = tuple(map(self._size_key, sizes))
        return tensor.dtype, tensor.dim(), sizes, tensor.device

    def _size_key(self, size: Any) -> Any:
        if type(size) is int:
            return size
        expression = self._known(size)
        if type(expression) is int:
            return expression
        ranges = size.node.shape_env.var_to_range
        return expression, tuple((one, ranges[one]) for one in sorted_symbols(expression))

    # Results in the cache

    def _known(self, size: Any) -> Any:
        """Return a size as a number, or as an expression over sizes that callers choose."""
        if type(size) is int:
            return size
        if not self._shares_symbols or not isinstance(size, torch.SymInt):
            raise _UncacheableError
        expression = size.node.expr
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if not expression.free_symbols <= size.node.shape_env.backed_var_to_val.keys():
            raise _UncacheableError
        return expression

    def _recipe(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            sizes, strides = tuple(map(self._known, value.shape)), tuple(map(self._known, value.stride()))
            return _Layout(value.dtype, sizes, strides, self._known(value.storage_offset()), value.device)
        if type(value) in (list, tuple):
            return type(value)(self._recipe(one) for one in value)
        raise _UncacheableError

    def _made(self, recipe: Any) -> Any:
        if not isinstance(recipe, _Layout):
            return type(recipe)(self._made(one) for one in recipe)
        sizes, strides, offset = recipe.sizes, recipe.strides, recipe.offset
        if not _are_ints((*sizes, *strides, offset)):
            sizes, strides = tuple(map(self._number, sizes)), tuple(map(self._number, strides))
            offset = self._number(offset)
        empty = empty_meta_tensor(recipe.dtype, sizes, strides, offset)
        return make_fake_tensor(self.mode, empty, recipe.device)

    def _number(self, size: Any) -> Any:
        if type(size) is int:
            return size
        if size not in self._numbers:
            self._numbers[size] = self.mode.shape_env.create_symintnode(size, hint=None)  # type: ignore[union-attr]
        return self._numbers[size]


def _are_ints(sizes: Sequence[Any]) -> bool:
    """Whether all are plain numbers, which most are."""
    return {int}.issuperset(map(type, sizes))


def infer_static_value(mode: FakeTensorMode, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what `infer_value` does, in a tenth of the time; None where sizes are symbolic or need fake tensors.

    Args:
        mode: Fake tensor mode of the result.
        target: Any callable graph target.
        args: Arguments as in the graph, nodes included.
        kwargs: Keyword arguments as in the graph.
    """
    with disable_torch_dispatch():
        value = meta_value(target, tuple(args), dict(kwargs))
    return None if value is None else map_aggregate(value, partial(_as_fake, mode))


@contextmanager
def no_torch_logs() -> Iterator[None]:
    """Keep torch from logging what is raised and caught here."""
    were_disabled = [log.disabled for log in _TORCH_LOGS]
    for log in _TORCH_LOGS:
        log.disabled = True
    try:
        yield
    finally:
        for log, was_disabled in zip(_TORCH_LOGS, were_disabled, strict=True):
            log.disabled = was_disabled


@contextmanager
def no_new_guards(mode: FakeTensorMode) -> Iterator[None]:
    """Let torch raise a `RuntimeError` where a symbolic size would become a number."""
    env = mode.shape_env
    with no_torch_logs(), nullcontext() if env is None else env.error_on_new_guards():
        yield


def _as_fake(mode: FakeTensorMode, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    empty = empty_meta_tensor(value.dtype, value.shape, value.stride(), value.storage_offset())
    return make_fake_tensor(mode, empty, torch.device("cpu"))


def _layouts(found: Any) -> Any:
    if isinstance(found, list):
        return tuple(map(_layouts, found))
    dtype, sizes, strides, offset = found
    return _Layout(dtype, sizes, strides, offset, torch.device("cpu"))


def _symbol_at(value: Any, path: pytree.KeyPath) -> Any:
    try:
        return pytree.key_get(value, path).node.expr
    except (AttributeError, IndexError, KeyError, TypeError):
        return None


def _rejection(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], at: Node, error: Exception) -> Diagnostic:
    inputs: dict[Node, None] = {}
    map_arg((tuple(args), dict(kwargs)), lambda node: inputs.setdefault(node))
    if isinstance(error, ShapeEnvGuardError):
        reason = f"it would hold for some sizes only: {str(error).partition(': ')[2]}"
    else:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return Diagnostic.of(
        "EK111",
        f"{target_name(target)} does not take these arguments: {reason}",
        location=locate(at).model_copy(update={"text": show_call(target, args, kwargs)}),
        notes=tuple(f"%{node.name}: {show_value(node.meta.get('val'))}" for node in inputs),
    )

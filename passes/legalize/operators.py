"""Operators whose calls portable kernels reject, replaced by operators that kernels take."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import EdgeOpOverload, GraphEditor, OpOverload, called_graphs, named_arguments, ops, underlying
from exirkit.passes.contract import BROKEN_BY_EDITS
from exirkit.passes.to_aten.decompose_to_core import DecomposeToCore, is_library_composite
from exirkit.passes.to_aten.quantized_decompositions import QUANTIZED_DECOMPOSITIONS
from exirkit.passes.to_executorch.out_variants import OutVariantTable

from .edge_calls import CallLegalization, EdgeCalls
from .integers import LegalizeIntegers
from .special_values import LegalizeSpecialValues
from .volumes import LegalizeVolumes

aten = ops.edge.aten
_KEPT = frozenset({aten.full.default, aten.full_like.default, aten.empty.memory_format})


class LegalizeEmpties(CallLegalization):
    """Make results without elements by `full`, and products of matrices that share no element: nothing is computed.

    Kernels divide by sizes (`_log_softmax`), reject (`amax`) or forget sizes beside a zero (`cat`); `mm` leaves its
    result as the memory was.

    Before: `%y = aten._log_softmax.default(%x_f32_3x0, 1, False)`
    After: `%y = aten.full.default([3, 0], 0, dtype=torch.float32)`
    """

    name = "legalize-empties"

    def made(self, calls: EdgeCalls) -> Node:
        """Fill a tensor without elements, or with zeros, or with what is added to them."""
        node = calls.node
        value: torch.Tensor = node.meta["val"]
        addend, factor = None, 1
        if value.numel() and node.target is aten.addmm.default:
            addend, factor = calls.given("self", "beta")
        elif value.numel() and node.target is aten.linear.default:
            (addend,) = calls.given("bias")
        if addend is None or factor == 0:
            return calls(aten.full.default, list(value.shape), 0, dtype=value.dtype)
        scaled = addend if factor == 1 else calls(aten.mul.Scalar, addend, factor)
        return calls(aten.expand_copy.default, scaled, list(value.shape))

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        target = node.target
        if not isinstance(target, EdgeOpOverload) or target.namespace != "aten" or target in _KEPT:
            return False
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor) or not node.users:
            return False
        sizes = list(value.shape)
        return all(type(size) is int for size in sizes) and (0 in sizes or _shares_nothing(node))


_PRODUCTS = {aten.mm.default: 0, aten.bmm.default: 0, aten.linear.default: 0, aten.addmm.default: 1}


def _shares_nothing(node: Node) -> bool:
    """Whether a product of matrices is a sum of no terms."""
    target: Any = node.target
    place = _PRODUCTS.get(target)
    factor: Any = None if place is None else node.args[place]
    return factor is not None and bool(type(factor.meta["val"].shape[-1]) is int and factor.meta["val"].shape[-1] == 0)


class LegalizeArguments(CallLegalization):
    """Give kernels that reject arguments others that mean the same.

    - A single number has no dims, but `0` and `-1` may be asked for: sums, means and cumulative sums of it.
    - Indices of `gather` may be narrower than 64 bits.

    Before: `%y = aten.sum.dim_IntList(%x_f32, [0])`
    After: `%y = aten.sum.dim_IntList(%x_f32, [])`
    """

    name = "legalize-arguments"

    def made(self, calls: EdgeCalls) -> Node:
        """Make the call with other arguments."""
        node = calls.node
        args: Any = node.args
        if node.target is aten.gather.default:
            return calls(aten.gather.default, *args[:2], calls.cast(args[2], torch.int64), **node.kwargs)
        if node.target is aten.cumsum.default:
            return calls.view(calls(aten.cumsum.default, calls.view(args[0], [1]), 0, **node.kwargs), [])
        # Whether a dim that is not there is kept makes no difference.
        return calls(node.target, args[0], [], **node.kwargs)

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        if node.target is aten.gather.default:
            index: Any = node.args[2]
            return index.meta["val"].dtype is not torch.int64
        if node.target is aten.cumsum.default:
            return bool(node.meta["val"].ndim == 0)
        if node.target not in (aten.sum.dim_IntList, aten.mean.dim):
            return False
        source: Any = node.args[0]
        return source.meta["val"].ndim == 0 and bool(node.args[1])


class LegalizeScaledSums(CallLegalization):
    """Multiply the second summand by `alpha` in a call of its own, where the first one has a single element.

    The kernel of the official runtime multiplies the single element instead, and says nothing.

    Before: `%y = aten.add.Tensor(%x_f32_1, %z_f32_7, alpha=3)`
    After: `%p = aten.mul.Scalar(%z_f32_7, 3)`; `%y = aten.add.Tensor(%x_f32_1, %p)`
    """

    name = "legalize-scaled-sums"

    def made(self, calls: EdgeCalls) -> Node:
        """Multiply, and add."""
        first, second, factor = calls.given("self", "other", "alpha")
        scaled = calls(aten.mul.Scalar, calls.cast(second, calls.node.meta["val"].dtype), factor)
        return calls(aten.add.Tensor, first, scaled)

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        if node.target is not aten.add.Tensor or node.kwargs.get("alpha", 1) == 1:
            return False
        first, second = (one.meta["val"].shape if isinstance(one, Node) else () for one in node.args[:2])
        return _has_one_element(first) and not _has_one_element(second)


def _has_one_element(shape: Sequence[Any]) -> bool:
    # Sizes that vary are not 1: torch.export makes numbers of those that are.
    return all(isinstance(size, int) and size == 1 for size in shape)


@dataclass(eq=False, kw_only=True)
class DecomposeLibraryOperators(DecomposeToCore):
    """Decompose the composite operators of libraries that have no out variant, in an Edge program.

    So are operators of `quantized_decomposed` that have none: torch has functions for them, and no decomposition.

    What they decompose into are ATen operators, which the passes of `to_edge` legalize.

    Args:
        overrides: Names of overloads that write their results (`library.name.out`), by names of operators.

    Raises:
        UsageError: EK436, an override names what does not exist or does not fit.
        WholeGraphNeededError: A call cannot be decomposed on its own; nothing was changed.
    """

    name = "decompose-library-operators"
    requires = ()
    ensures = ()
    invalidates = ("edge-operators", "tensor-arguments", "no-views", "constants-lifted", *BROKEN_BY_EDITS)
    after = ()

    overrides: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._variants = OutVariantTable().with_overrides(self.overrides)

    def edit(self, editor: GraphEditor) -> None:
        """Decompose the calls."""
        table = dict(self._table)
        for node in list(editor.graph.nodes):
            if self.concerns(node, self._variants):
                op: Any = underlying(node.target)
                if op.name() in QUANTIZED_DECOMPOSITIONS:
                    table[op] = QUANTIZED_DECOMPOSITIONS[op.name()]
                editor.retarget(node, op, val=node.meta["val"])
        self._table = table
        super().edit(editor)

    def _is_composite(self, op: OpOverload) -> bool:
        return is_library_composite(op) or super()._is_composite(op)

    @staticmethod
    def concerns(node: Node, table: OutVariantTable) -> bool:
        """Return whether the pass decomposes a call."""
        if not isinstance(node.target, EdgeOpOverload):
            return False
        op = underlying(node.target)
        if not isinstance(op, OpOverload):
            return False
        return (is_library_composite(op) or op.name() in QUANTIZED_DECOMPOSITIONS) and table.find(op) is None


def has_library_operators(program: ExportedProgram) -> bool:
    """Return whether `decompose-library-operators` changes an Edge program; few programs need it."""
    table = OutVariantTable()
    graphs = [module.graph for module in called_graphs(program.graph_module)]
    return any(DecomposeLibraryOperators.concerns(node, table) for graph in graphs for node in graph.nodes)


_TO_THE_END: Final = 2**63 - 1


@dataclass(eq=False, kw_only=True)
class LegalizePadding(CallLegalization):
    """Replace padding with negative numbers by slices, and padding of what is left with the others.

    Slices are row-major: a result that was channels last is made so again.

    Args:
        skip_dim_order: Make no operators of `dim_order_ops`.

    Before: `%y = constant_pad_nd.default(%x, [-1, 2], 0.0)`
    After: `%s = slice_copy.Tensor(%x, -1, 1, 9223372036854775807)`; `%y = constant_pad_nd.default(%s, [0, 2], 0.0)`
    """

    name = "legalize-padding"

    skip_dim_order: bool = False

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        if node.op != "call_function" or underlying(node.target) is not torch.ops.aten.constant_pad_nd.default:
            return False
        return any(type(one) is int and one < 0 for one in named_arguments(node)["pad"])

    def put(self, editor: GraphEditor, node: Node) -> None:
        """Replace a node, and keep its layout."""
        calls = EdgeCalls(editor, node, skip_dim_order=self.skip_dim_order)
        editor.replace(node, calls.laid_out_as(self.made(calls), node.meta["val"]))
        editor.erase(node)

    def made(self, calls: EdgeCalls) -> Node:
        """Slice, and pad what is left."""
        given = named_arguments(calls.node)
        source, pad = given["self"], given["pad"]
        for place in range(0, len(pad), 2):
            front, back = (-one if type(one) is int and one < 0 else 0 for one in pad[place : place + 2])
            if front or back:
                # Pads begin with the last dim. An end of minus zero is the end.
                end = -back if back else _TO_THE_END
                source = calls(aten.slice_copy.Tensor, source, -1 - place // 2, front, end)
        left = [0 if type(one) is int and one < 0 else one for one in pad]
        if any(type(one) is not int or one for one in left):
            value = (given["value"],) if "value" in given else ()
            source = calls(calls.node.target, source, left, *value)
        made: Node = source
        return made


# More rows than any dim has, for sizes that vary: group * this + row stays within 64 bits.
_MOST_ROWS = 2**31


@dataclass(eq=False, kw_only=True)
class LegalizeSorts(CallLegalization):
    """Replace `sort` by `topk` over the whole dim.

    `topk` orders values, NaN included, as `sort` does, but leaves open which of equal elements comes first. Where the
    indices are used, a second `topk` orders equal elements by their positions. That is asked of a stable sort only, but
    decomposition has made those plain ones, and so all runtimes answer alike.

    Args:
        skip_dim_order: Make no operators of `dim_order_ops`.

    Before: `%values, %indices = aten.sort.default(%x, 1)`
    After: `%values, %indices = aten.topk.default(%x, 4, 1, False, True)`, and an order of equal elements
    """

    name = "legalize-sorts"

    skip_dim_order: bool = False

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        return node.target in (ops.edge.aten.sort.default, ops.edge.aten.sort.stable)

    def put(self, editor: GraphEditor, node: Node) -> None:
        """Replace the users of a node."""
        results: dict[Any, list[Node]] = {0: [], 1: []}
        for user in list(node.users):
            results[user.args[1]].append(user)
        calls = EdgeCalls(editor, node, skip_dim_order=self.skip_dim_order)
        source: Any = node.args[0]
        dim, descending = calls.given("dim", "descending")
        values, indices = _sorted(calls, source, dim, descending, wants_indices=any(one.users for one in results[1]))
        for place, made in ((0, values), (1, indices)):
            for old in results[place]:
                if made is not None and old.users:
                    # Sorting keeps the layout of what is sorted; what replaces it may write rows.
                    editor.replace(old, calls.laid_out_as(made, old.meta["val"]))
                editor.erase(old)
        editor.erase(node)


def _sorted(
    calls: EdgeCalls, source: Node, dim: int, descending: bool, *, wants_indices: bool
) -> tuple[Node, Node | None]:
    """Return sorted values and, if wanted, where they stood."""
    value = source.meta["val"]
    if value.dim() == 0:
        zero = calls(ops.edge.aten.full.default, [], 0, dtype=torch.int64) if wants_indices else None
        return source, zero
    if value.dtype is torch.bool:
        numbers = calls.cast(source, torch.uint8)
        values, indices = _sorted(calls, numbers, dim, descending, wants_indices=wants_indices)
        return calls.cast(values, torch.bool), indices
    dim %= value.dim()
    ranked = calls(ops.edge.aten.topk.default, source, calls.size(source, dim), dim, descending, True)
    values, order = (calls(operator.getitem, ranked, place) for place in (0, 1))
    size = value.shape[dim]
    if not wants_indices:
        return values, None
    if (isinstance(size, int) and size < 2) or any(type(one) is int and one == 0 for one in value.shape):
        return values, order
    indices = _order_equal(calls, values, order, dim, descending)
    # Zeros of both signs are equal, and each keeps its place.
    return calls(ops.edge.aten.gather.default, source, dim, indices), indices


def _order_equal(calls: EdgeCalls, values: Node, order: Node, dim: int, descending: bool) -> Node:
    """Return the positions of sorted values, those of equal values in increasing order."""
    size = values.meta["val"].shape[dim]
    aten = ops.edge.aten
    # The first value has itself behind it. All rows, because sizes that vary may leave one row, which would broadcast.
    rest = calls(aten.slice_copy.Tensor, values, dim, 0, -1)
    behind = calls(aten.cat.default, [calls(aten.slice_copy.Tensor, values, dim, 0, 1), rest], dim)
    differs = calls(aten.ne.Tensor, values, behind)
    if values.meta["val"].is_floating_point():
        # All that are not numbers are equal here. They are the last, or the first: then so is the second of a pair.
        known = values if descending else behind
        differs = calls(aten.logical_and.default, differs, calls(aten.eq.Tensor, known, known))
    group = calls(aten.cumsum.default, calls.cast(differs, torch.int64), dim)
    rows = size if isinstance(size, int) else _MOST_ROWS
    base = calls(aten.mul.Scalar, group, rows)
    keys = calls(aten.topk.default, calls(aten.add.Tensor, base, order), calls.size(values, dim), dim, False, True)
    # The keys of a group stay where the group is, so that what was added to them is known.
    return calls(aten.sub.Tensor, calls(operator.getitem, keys, 0), base)


class LegalizeSplits(CallLegalization):
    """Replace splits and unbinds whose results have sizes that vary by slices and selections.

    The kernels `split_copy` and `unbind_copy` of the official runtime check the sizes of their results and do not set
    them, so that they only run at the upper bounds. `slice_copy` and `select_copy` resize their results, and so does
    `split_with_sizes_copy`, which stays.

    Before: `%parts = aten.split_copy.Tensor(%x, 2, 1)`; `%second = getitem(%parts, 1)`
    After: `%second = aten.slice_copy.Tensor(%x, 1, 2, 4)`
    """

    name = "legalize-splits"

    def put(self, editor: GraphEditor, node: Node) -> None:
        """Replace the users of a node."""
        make = _select if node.target is aten.unbind_copy.int else _slice
        for part in list(node.users):
            if part.users:
                editor.replace(part, make(EdgeCalls(editor, part), node, part))
            editor.erase(part)
        editor.erase(node)

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        if node.target not in (aten.split_copy.Tensor, aten.unbind_copy.int):
            return False
        parts: list[torch.Tensor] = node.meta["val"]
        return any(not isinstance(size, int) for part in parts for size in part.shape)


def _dim(node: Node, default_place: int) -> int:
    given: Any = node.args[default_place] if len(node.args) > default_place else node.kwargs.get("dim", 0)
    rank: int = node.args[0].meta["val"].dim()  # type: ignore[union-attr]
    return int(given) % rank


def _select(calls: EdgeCalls, node: Node, part: Node) -> Node:
    source: Any = node.args[0]
    return calls.given_value(part.meta["val"], aten.select_copy.int, source, _dim(node, 1), part.args[1])


def _slice(calls: EdgeCalls, node: Node, part: Node) -> Node:
    source: Any = node.args[0]
    size: Any = node.args[1]
    place: Any = part.args[1]
    # The last part may be shorter: a slice ends where its tensor ends.
    start, end = (_times(calls, size, count) for count in (place, place + 1))
    return calls.given_value(part.meta["val"], aten.slice_copy.Tensor, source, _dim(node, 2), start, end)


def _times(calls: EdgeCalls, size: int | Node, count: int) -> int | Node:
    if isinstance(size, int):
        return size * count
    return 0 if count == 0 else size if count == 1 else calls(operator.mul, size, count)


_PASSES = (
    LegalizeSorts,
    LegalizeVolumes,
    LegalizeIntegers,
    LegalizeArguments,
    LegalizeScaledSums,
    LegalizeSpecialValues,
    LegalizeSplits,
    LegalizeEmpties,
)


def needs_legalizing(program: ExportedProgram) -> bool:
    """Return whether a pass of the shipped pipeline `legalize` would change an Edge program; few programs need it."""
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    return any(one.concerns(node) for graph in graphs for node in graph.nodes for one in _PASSES)

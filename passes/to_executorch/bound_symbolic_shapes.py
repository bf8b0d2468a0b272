"""Symbolic sizes of specs become their upper bounds, for which memory is planned."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from exirkit.ir import (
    Diagnostic,
    GraphEditor,
    ModelError,
    TensorShapeDynamism,
    TensorSpec,
    free,
    locate,
    stride_from_dim_order,
    underlying,
)
from exirkit.passes.contract import Pass

from .propagate_specs import all_editors

LARGEST_SIZE = 2**31 - 1
"""Largest size that the file format can hold; a bound above it is none."""

# Up to this many combinations of symbol values are tried one by one.
_MOST_TRIALS = 512


class SizeBounds:
    """Answers what the largest value of a size is.

    Args:
        program: Its range constraints are intersected with those of the shape environment.
        shape_env: Environment of the program's symbols, None if it has none.
    """

    def __init__(self, program: ExportedProgram, shape_env: ShapeEnv | None) -> None:
        self._ranges: dict[sympy.Symbol, ValueRanges[Any]] = {}
        if shape_env is not None:
            self._ranges.update(shape_env.var_to_range)
        for symbol, constraint in program.range_constraints.items():
            known = self._ranges.get(symbol)
            self._ranges[symbol] = constraint if known is None else known & constraint
        self._known: dict[sympy.Expr, int | None] = {}

    def tighten(self, symbol: sympy.Symbol, largest: int) -> None:
        """Record that a symbol is at most `largest`."""
        known = self._ranges.get(symbol, ValueRanges(0, largest))
        self._ranges[symbol] = known & ValueRanges(min(int(known.lower), largest), largest)
        self._known.clear()

    def upper(self, size: int | torch.SymInt) -> int | None:
        """Return the largest value of a size, or None if it has no bound that fits the file format."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression not in self._known:
            self._known[expression] = self._evaluate(expression)
        return self._known[expression]

    def unbounded_symbols(self, expression: sympy.Expr) -> list[sympy.Symbol]:
        """Return the symbols of an expression that have no bound of their own, in order of their names."""
        return [symbol for symbol in sorted(expression.free_symbols, key=str) if self._largest(symbol) is None]

    def _largest(self, expression: sympy.Expr) -> int | None:
        upper = bound_sympy(expression, self._ranges).upper
        return int(upper) if upper <= LARGEST_SIZE else None

    def _evaluate(self, expression: sympy.Expr) -> int | None:
        bound = self._largest(expression)
        # Interval arithmetic is exact if each symbol stands once; `s - s // 2` it takes for two independent things.
        if not _repeats_symbol(expression):
            return bound
        values = [self._values(symbol) for symbol in sorted(expression.free_symbols, key=str)]
        if math.prod(map(len, values)) > _MOST_TRIALS or not all(values):
            return bound
        symbols = sorted(expression.free_symbols, key=str)
        trials = (dict(zip(symbols, choice, strict=True)) for choice in itertools.product(*values))
        results = [expression.xreplace(trial) for trial in trials]
        if not all(result.is_Integer for result in results):
            return bound
        exact = int(max(results))
        return exact if exact <= LARGEST_SIZE else None

    def _values(self, symbol: sympy.Symbol) -> Sequence[sympy.Integer]:
        known = self._ranges.get(symbol)
        if known is None or not (known.upper <= LARGEST_SIZE and known.upper - known.lower < _MOST_TRIALS):
            return range(_MOST_TRIALS + 1)
        return [sympy.Integer(value) for value in range(int(known.lower), int(known.upper) + 1)]


def _repeats_symbol(expression: sympy.Expr) -> bool:
    symbols = [part for part in sympy.preorder_traversal(expression) if part.is_Symbol]
    return len(symbols) != len(set(symbols))


def count_bound(node: Node, shape_of: Callable[[Node], Sequence[int]]) -> int | None:
    """Return the largest size that the data of a node's arguments can lead to, or None if nothing is known.

    Args:
        node: Call whose result has a size that only data decide.
        shape_of: Gives the largest sizes of a node's tensor.
    """
    rule = _COUNT_RULES.get(underlying(node.target))
    return None if rule is None else rule(node, shape_of)


_ShapeOf = Callable[[Node], Sequence[int]]


def _all_elements(node: Node, shape_of: _ShapeOf) -> int | None:
    source = node.args[0]
    return math.prod(shape_of(source)) if isinstance(source, Node) else None


def _all_broadcast_elements(node: Node, shape_of: _ShapeOf) -> int | None:
    shapes = [shape_of(source) for source in node.args if isinstance(source, Node)]
    aligned = itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return math.prod(max(sizes) for sizes in aligned)


def _masked_elements(node: Node, shape_of: _ShapeOf) -> int | None:
    indices: Any = node.args[1]
    masks = [index for index in indices if index is not None and index.meta["val"].dtype in (torch.bool, torch.uint8)]
    return max((math.prod(shape_of(mask)) for mask in masks), default=None)


_COUNT_RULES: dict[Any, Callable[[Node, _ShapeOf], int | None]] = {
    torch.ops.aten.nonzero.default: _all_elements,
    torch.ops.aten.masked_select.default: _all_broadcast_elements,
    torch.ops.aten.index.Tensor: _masked_elements,
    torch.ops.aten._unique2.default: _all_elements,
    torch.ops.aten.unique_consecutive.default: _all_elements,
}


@dataclass(eq=False, kw_only=True)
class BoundSymbolicShapes(Pass):
    """Replace each symbolic size in a spec by its largest possible value; the value's `meta["val"]` stays symbolic.

    Bounds come from the ranges that the exporter recorded (`Dim(max=...)`, `torch._check`) and, for sizes that data
    decide, from the operator that makes them: `nonzero` finds at most as many elements as there are. The sizes of the
    example inputs play no part.

    Args:
        allow_unbounded: Leave tensors without a largest size to the runtime, which finds memory for them.

    Requires: specs.
    Ensures: all sizes in specs are integers; `shape_dynamism` is `DYNAMIC_BOUND` where a size was symbolic, or
        `DYNAMIC_UNBOUND` where one has no bound: it is 0 then.
    """

    name = "bound-symbolic-shapes"
    requires = ("specs",)
    ensures = ("bounded-shapes",)
    invalidates = ()

    allow_unbounded: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Evaluate the bounds.

        Raises:
            ModelError: EK433 for each size of an input, EK434 for each size made by an operator, that has no bound.
        """
        bounds = SizeBounds(editor.program, editor.fake_mode.shape_env)
        findings = _Findings(bounds)
        bounded: dict[TensorSpec, TensorSpec] = {}
        editors = list(all_editors(editor))
        for node in (node for one in editors for node in one.graph.nodes):
            findings.note_source(node)
            _bound_counts(node, bounds, bounded)
            for place, spec in _specs(node):
                if spec not in bounded and not all(isinstance(size, int) for size in spec.shape):
                    sizes = [bounds.upper(size) for size in spec.shape]
                    missing = [dim for dim, size in enumerate(sizes) if size is None]
                    for dim in () if self.allow_unbounded else missing:
                        findings.add(node, place, dim, spec.shape[dim])
                    bounded[spec] = _with_bounds(spec, [size or 0 for size in sizes], is_unbounded=bool(missing))
        if findings.diagnostics:
            raise ModelError(findings.diagnostics)
        if not bounded:
            return
        for owner, node in ((one, node) for one in editors for node in one.graph.nodes):
            if "spec" in node.meta:
                owner.set_meta(node, "spec", _replaced(node.meta["spec"], bounded))


def _specs(node: Node) -> Iterator[tuple[int | None, TensorSpec]]:
    spec = node.meta.get("spec")
    if isinstance(spec, TensorSpec):
        yield None, spec
    elif isinstance(spec, list):
        yield from ((place, one) for place, one in enumerate(spec) if one is not None)


def _with_bounds(spec: TensorSpec, sizes: list[int], *, is_unbounded: bool) -> TensorSpec:
    result = copy.copy(spec)
    result.shape = list(sizes)
    result.stride = stride_from_dim_order(result.shape, spec.dim_order)
    varies = TensorShapeDynamism
    result.shape_dynamism = varies.DYNAMIC_UNBOUND if is_unbounded else varies.DYNAMIC_BOUND
    return result


def _replaced(spec: Any, bounded: dict[TensorSpec, TensorSpec]) -> Any:
    if isinstance(spec, list):
        replaced = [bounded.get(one, one) for one in spec]
        return replaced if replaced != spec else spec
    return bounded.get(spec, spec)


def _bound_counts(node: Node, bounds: SizeBounds, bounded: dict[TensorSpec, TensorSpec]) -> None:
    """Bound the sizes that this node's data decide, if they follow from the sizes of its arguments."""
    symbols = node.meta.get("unbacked_bindings")
    if not symbols or node.op != "call_function":
        return
    bound = count_bound(node, lambda argument: _shape(argument, bounded))
    if bound is not None:
        for symbol in symbols:
            bounds.tighten(symbol, bound)


def _shape(node: Node, bounded: dict[TensorSpec, TensorSpec]) -> list[int]:
    spec = bounded.get(node.meta["spec"], node.meta["spec"])
    # What is found in a tensor of any size can be any number.
    return [LARGEST_SIZE + 1] * len(spec.shape) if spec.is_dynamic_unbound_tensor else list(spec.shape)


_OTHERWISE = (
    "runtimes that allocate memory, unlike the official one, run programs that are lowered with "
    "dynamic_memory_planning_mode=DynamicMemoryPlanningMode.SYMBOLIC"
)


class _Findings:
    """Sizes without bound, each reported once, at the place where its symbol comes from."""

    def __init__(self, bounds: SizeBounds) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._bounds = bounds
        self._sources: dict[sympy.Symbol, Node] = {}
        self._reported: set[sympy.Symbol] = set()

    def note_source(self, node: Node) -> None:
        """Remember the node at which symbols come into being."""
        made = dict.fromkeys(node.meta.get("unbacked_bindings") or ())
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.SymInt):
            made.update(dict.fromkeys(sorted(value.node.expr.free_symbols, key=str)))
        for symbol in made:
            self._sources.setdefault(symbol, node)

    def add(self, node: Node, place: int | None, dim: int, size: Any) -> None:
        """Report a size, unless all that makes it unbounded has been reported."""
        expression = size.node.expr
        unbounded = self._bounds.unbounded_symbols(expression)
        new = [symbol for symbol in unbounded if symbol not in self._reported]
        if node.op == "placeholder":
            self._reported.update(unbounded)
            self.diagnostics.append(_unbounded_input(node, dim, expression))
        elif new or not unbounded:
            self._reported.update(unbounded)
            source = next((self._sources[symbol] for symbol in new if symbol in self._sources), node)
            self.diagnostics.append(_unbounded_result(node, place, dim, expression, source))


def _unbounded_input(node: Node, dim: int, expression: sympy.Expr) -> Diagnostic:
    return Diagnostic.of(
        code="EK433",
        message=f"input {node.name} has no upper bound for dim {dim} ({expression})",
        location=locate(node),
        expected=f"a largest size of at most {LARGEST_SIZE}, for which memory is planned",
        hint=f'give it one when exporting: dynamic_shapes={{"{node.name}": {{{dim}: Dim("size", max=...)}}}}',
        notes=(_OTHERWISE,),
    )


def _unbounded_result(node: Node, place: int | None, dim: int, expression: sympy.Expr, source: Node) -> Diagnostic:
    which = "" if place is None else f" of result {place}"
    origin = (_OTHERWISE,) if source is node else (f"the size comes from %{source.name}", _OTHERWISE)
    return Diagnostic.of(
        code="EK434",
        message=f"%{node.name} has no upper bound for dim {dim}{which} ({expression})",
        location=locate(node),
        expected=f"a largest size of at most {LARGEST_SIZE}, for which memory is planned",
        notes=origin,
        hint=f"state a bound in the model: torch._check({expression} <= ...)",
    )


class FreeUnbounded(Pass):
    """Free each tensor without a largest size behind the last instruction of its graph that uses it.

    What a graph is given, and what it returns, is freed by the graph around it, if at all. In a loop, each round that
    needs the tensor finds memory for it again.

    Requires: out variants; specs with integer sizes.

    Before: `%nonzero = aten.nonzero.out(%x, out=%alloc)`; `%sum = aten.sum.IntList_out(%nonzero, ...)`
    After: the same, then `free(<spec of %nonzero>)`
    """

    name = "free-unbounded"
    enters_bodies = True
    requires = ("bounded-shapes",)
    invalidates = ()
    after = ("convert-to-out-variants",)

    def edit(self, editor: GraphEditor) -> None:
        """Insert the calls; tensors that are freed already are left alone."""
        last: dict[TensorSpec, Node] = {}
        kept: set[TensorSpec] = set()
        for node in editor.graph.nodes:
            if node.target is free:
                kept.add(node.args[0])
            elif node.op == "placeholder":
                kept.update(_unbounded(node))
            elif node.op == "output":
                kept.update(spec for one in node.all_input_nodes for spec in _unbounded(one))
            else:
                last.update((spec, node) for one in (node, *node.all_input_nodes) for spec in _unbounded(one))
        for spec, node in last.items():
            if spec not in kept:
                editor.call(free, (spec,), before=node.next, origins=node, val=None)


def _unbounded(node: Node) -> list[TensorSpec]:
    """Return the specs of a node, or of the memory that it shows, that the runtime finds memory for."""
    spec = node.meta.get("spec")
    listed = spec if isinstance(spec, list) else [spec]
    owners = [one.storage_base or one for one in listed if isinstance(one, TensorSpec)]
    return [one for one in owners if one.is_dynamic_unbound_tensor]

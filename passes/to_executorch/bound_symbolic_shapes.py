"""Symbolic sizes of specs become their upper bounds, for which memory is planned."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import Node

from exirkit.ir import (
    Diagnostic,
    GraphEditor,
    ModelError,
    TensorShapeDynamism,
    TensorSpec,
    locate,
    stride_from_dim_order,
)
from exirkit.passes.analysis.size_bounds import LARGEST_SIZE, SizeBounds, count_bound
from exirkit.passes.contract import Pass

from .subgraph_specs import all_editors


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
    return Diagnostic(
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
    return Diagnostic(
        code="EK434",
        message=f"%{node.name} has no upper bound for dim {dim}{which} ({expression})",
        location=locate(node),
        expected=f"a largest size of at most {LARGEST_SIZE}, for which memory is planned",
        notes=origin,
        hint=f"state a bound in the model: torch._check({expression} <= ...)",
    )

"""Sizes that vary: their arithmetic becomes operators of the runtime, and tensors get their upper bounds."""

from __future__ import annotations

import builtins
import copy
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    GraphEditor,
    HigherOrderOperator,
    ModelError,
    OpOverload,
    ShapeEnv,
    TensorShapeDynamism,
    TensorSpec,
    ValueRanges,
    bound_sympy,
    defined_operator,
    free,
    has_trait,
    locate,
    stride_from_dim_order,
    underlying,
    value_of,
)
from exirkit.passes.contract import Pass

from .propagate_specs import all_editors


class RemoveMetadataAsserts(Pass):
    """Erase `aten._assert_tensor_metadata`; assertions about sizes stay until later."""

    name = "remove-metadata-asserts"
    enters_subgraphs = True
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Erase the assertions."""
        target = torch.ops.aten._assert_tensor_metadata.default
        for node in editor.graph.find_nodes(op="call_function", target=target):
            editor.erase(node)


def is_assertion(node: Node) -> bool:
    """Return whether a node asserts something, so that lowering removes it."""
    if node.op != "call_function":
        return False
    return node.target is torch._check or has_trait(node.target, "assertion")


class RemoveAsserts(Pass):
    """Remove assertions on sizes and values, and what was computed for them alone.

    What they say of sizes is known to the shape environment and still bounds them.
    """

    name = "remove-asserts"
    enters_subgraphs = True
    ensures = ("no-assertions",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Remove the assertions."""
        for node in list(editor.graph.nodes):
            if is_assertion(node):
                checked = node.all_input_nodes
                editor.erase(node)
                for producer in checked:
                    _erase_unused(editor, producer)


def _erase_unused(editor: GraphEditor, node: Node) -> None:
    # A producer may have gone already, as the producer of another one.
    if not node._erased:
        editor.erase_unused(node)


_LARGEST_POWER = 16


def _prim(name: str) -> DefinedOperator:
    found = defined_operator(f"executorch_prim::{name}.Scalar")
    assert found is not None, name
    return found


# Primitives that mean the same as the Python function, for all operands.
_SAME: dict[Any, DefinedOperator] = {
    getattr(home, name): _prim(name)
    for home, names in (
        (operator, "add sub mul floordiv truediv eq gt lt ge le neg"),
        (torch, "sym_float sym_int sym_not sym_ite"),
    )
    for name in names.split()
}


class LowerSymbolicArithmetic(Pass):
    """Replace arithmetic on symbolic numbers by operators of `executorch_prim`.

    Where the primitive differs from the Python function, a few primitives together do the same: the runtime's `mod`
    takes the sign of the dividend, `ceil`, `round` and `trunc` take no integers, `sym_max` and `sym_min` no mixed
    types.

    Ensures: numbers come from inputs, `aten.sym_size`, `aten._local_scalar_dense` and `executorch_prim` only.

    Before: `%mod = operator.mod(%u0, 4)` where u0 may be negative
    After: `%q = executorch_prim.floordiv(%u0, 4)`; `%m = executorch_prim.mul(%q, 4)`;
    `%mod = executorch_prim.sub(%u0, %m)`
    """

    name = "lower-symbolic-arithmetic"
    enters_subgraphs = True
    ensures = ("symbols-lowered",)
    invalidates = ("edge-operators", "specs", "bounded-shapes")
    after = ("remove-asserts",)

    def edit(self, editor: GraphEditor) -> None:
        """Lower every number-valued call.

        Raises:
            ModelError: EK431, for each function that the runtime has no primitives for.
        """
        calls = [node for node in editor.graph.nodes if node.op == "call_function"]
        unsupported = [_no_primitive(node) for node in calls if not _lower(editor, node)]
        if unsupported:
            raise ModelError(unsupported)


def _lower(editor: GraphEditor, node: Node) -> bool:
    target = underlying(node.target)
    # The runtime has these under the same name; they have no out variant and need none.
    if has_trait(target, "returns_number"):
        if target is not node.target:
            editor.retarget(node, target, val=node.meta["val"])
        return True
    if isinstance(target, OpOverload):
        return not isinstance(node.meta.get("val"), _SYMBOLS)
    if isinstance(target, DefinedOperator | HigherOrderOperator) or target is operator.getitem:
        return True
    same = _SAME.get(target)
    if same is not None and len(node.args) == len(same._schema.arguments):
        editor.retarget(node, same, val=node.meta["val"])
        return True
    composed = _COMPOSED.get(target)
    if composed is None:
        return not isinstance(node.meta.get("val"), (*_SYMBOLS, bool, int, float))
    result = composed(_Builder(editor, node), *node.args)
    if result is None:
        return False
    _put(editor, node, result)
    return True


_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _put(editor: GraphEditor, node: Node, result: Any) -> None:
    """Let the node be the last call of its composition, so that it keeps its name and place."""
    if isinstance(result, tuple):
        op, *args = result
        editor.retarget(node, op, args, {}, val=node.meta["val"])
    else:
        editor.replace(node, result)
        editor.erase(node)


class _Builder:
    """Makes the calls that stand in front of a composed node."""

    def __init__(self, editor: GraphEditor, node: Node) -> None:
        self._editor = editor
        self._node = node

    def call(self, op: DefinedOperator, *args: Any) -> Any:
        """Make one call."""
        return self._editor.call(op, args, before=self._node, origins=self._node)

    def as_float(self, value: Any) -> Any:
        """Return the value as a float."""
        if isinstance(value, Node):
            return value if is_float(value) else self.call(_SAME[torch.sym_float], value)
        return float(value)


def is_float(value: Any) -> bool:
    """Return whether a number, or the number that a node computes, is a float."""
    return isinstance(value_of(value), torch.SymFloat | float)


def _modulo(build: _Builder, left: Any, right: Any) -> Any:
    if is_float(left) or is_float(right) or not (_is_non_negative(left) and _is_non_negative(right)):
        quotient = build.call(_SAME[operator.floordiv], left, right)
        return _SAME[operator.sub], left, build.call(_SAME[operator.mul], quotient, right)
    return _prim("mod"), left, right


def _is_non_negative(value: Any) -> bool:
    known = value_of(value)
    if not isinstance(known, torch.SymInt):
        return bool(known >= 0)
    expression = known.node.expr
    return bool(bound_sympy(expression, known.node.shape_env.var_to_range).lower >= 0)


def _power(build: _Builder, base: Any, exponent: Any) -> Any:
    if isinstance(exponent, Node) or not 1 <= exponent <= _LARGEST_POWER or exponent != int(exponent):
        return None
    # A float exponent makes a float of the result, as in Python.
    factor = build.as_float(base) if isinstance(exponent, float) else base
    result = factor
    for _ in range(int(exponent) - 2):
        result = build.call(_SAME[operator.mul], result, factor)
    return result if exponent == 1 else (_SAME[operator.mul], result, factor)


def _rounded(name: str) -> Callable[..., Any]:
    def rounded(build: _Builder, value: Any, *digits: Any) -> Any:
        if digits:
            return None
        return (_prim(name), value) if is_float(value) else value

    return rounded


def _floor(build: _Builder, value: Any) -> Any:
    if not is_float(value):
        return value
    opposite = build.call(_SAME[operator.neg], value)
    return _SAME[operator.neg], build.call(_prim("ceil"), opposite)


def _extremum(name: str) -> Callable[..., Any]:
    def extremum(build: _Builder, left: Any, right: Any) -> Any:
        if is_float(left) != is_float(right):
            left, right = build.as_float(left), build.as_float(right)
        return _prim(name), left, right

    return extremum


def _absolute(build: _Builder, value: Any) -> Any:
    return _prim("sym_max"), value, build.call(_SAME[operator.neg], value)


def _differs(build: _Builder, left: Any, right: Any) -> Any:
    return _SAME[torch.sym_not], build.call(_SAME[operator.eq], left, right)


def _and(build: _Builder, left: Any, right: Any) -> Any:
    return (_SAME[torch.sym_ite], left, right, False) if _is_bool(left) and _is_bool(right) else None


def _or(build: _Builder, left: Any, right: Any) -> Any:
    return (_SAME[torch.sym_ite], left, True, right) if _is_bool(left) and _is_bool(right) else None


def _is_bool(value: Any) -> bool:
    return isinstance(value_of(value), torch.SymBool | bool)


def _sum(build: _Builder, terms: Any) -> Any:
    result = terms[0]
    for term in terms[1:]:
        result = build.call(_SAME[operator.add], result, term)
    return result


def _shifted(combine: DefinedOperator) -> Callable[..., Any]:
    def shifted(build: _Builder, value: Any, distance: Any) -> Any:
        if isinstance(distance, Node) or not 0 <= distance < 63:
            return None
        return combine, value, 1 << distance

    return shifted


def _itself(build: _Builder, value: Any) -> Any:
    return value


_COMPOSED: dict[Any, Callable[..., Any]] = {
    operator.mod: _modulo,
    operator.pow: _power,
    operator.abs: _absolute,
    builtins.abs: _absolute,
    operator.ne: _differs,
    operator.and_: _and,
    operator.or_: _or,
    operator.pos: _itself,
    operator.lshift: _shifted(_SAME[operator.mul]),
    operator.rshift: _shifted(_SAME[operator.floordiv]),
    math.ceil: _rounded("ceil"),
    math.trunc: _rounded("trunc"),
    builtins.round: _rounded("round"),
    math.floor: _floor,
    torch.sym_max: _extremum("sym_max"),
    torch.sym_min: _extremum("sym_min"),
    builtins.max: _extremum("sym_max"),
    builtins.min: _extremum("sym_min"),
    torch.sym_sum: _sum,
}


def _no_primitive(node: Node) -> Diagnostic:
    name = getattr(node.target, "__name__", str(node.target))
    return Diagnostic.of(
        code="EK431",
        message=f"the runtime cannot compute {name} on sizes",
        location=locate(node),
        expected="+ - * / // %, whole powers, comparisons, and, or, not, min, max, abs, floor, ceil, round, trunc",
        hint="compute it from tensors, or from sizes with other functions",
    )


LARGEST_SIZE = 2**31 - 1
"""Largest size that the file format can hold; a bound above it is none."""

# Up to this many combinations of symbol values are tried one by one.
_MOST_TRIALS = 512
# Torch takes 0 and 1 for sizes of their own while it traces.
_LEAST_TRACED = 2


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
            self._ranges[symbol] = constraint if known is None else _agreed(known, constraint)
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


def _agreed(known: ValueRanges[Any], constraint: ValueRanges[Any]) -> ValueRanges[Any]:
    """Return the values that a symbol may have by the environment and by the program.

    Symbols of the environment start at `_LEAST_TRACED`; callers may pass what the program says.
    """
    both = known & constraint
    if known.lower == _LEAST_TRACED and constraint.lower < known.lower:
        return ValueRanges(constraint.lower, both.upper)
    return both


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
    enters_subgraphs = True
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

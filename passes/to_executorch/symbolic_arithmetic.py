"""Arithmetic on sizes becomes operators of the runtime, and assertions on sizes are removed."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node
from torch.utils._sympy.value_ranges import bound_sympy

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    GraphEditor,
    ModelError,
    defined_operator,
    locate,
    underlying,
)
from exirkit.passes.contract import Pass


class RemoveMetadataAsserts(Pass):
    """Erase `aten._assert_tensor_metadata`; assertions about sizes stay until later."""

    name = "remove-metadata-asserts"
    enters_bodies = True
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Erase the assertions."""
        target = torch.ops.aten._assert_tensor_metadata.default
        for node in editor.graph.find_nodes(op="call_function", target=target):
            editor.erase(node)


_ASSERTS = frozenset(
    {
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._assert_async.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._assert_tensor_metadata.default,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
        torch._check,
    }
)


def is_assertion(node: Node) -> bool:
    """Return whether a node asserts something, so that lowering removes it."""
    return node.op == "call_function" and underlying(node.target) in _ASSERTS


class RemoveAsserts(Pass):
    """Remove assertions on sizes and values, and what was computed for them alone.

    What they say of sizes is known to the shape environment and still bounds them.
    """

    name = "remove-asserts"
    enters_bodies = True
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
    operator.add: _prim("add"),
    operator.sub: _prim("sub"),
    operator.mul: _prim("mul"),
    operator.floordiv: _prim("floordiv"),
    operator.truediv: _prim("truediv"),
    operator.eq: _prim("eq"),
    operator.gt: _prim("gt"),
    operator.lt: _prim("lt"),
    operator.ge: _prim("ge"),
    operator.le: _prim("le"),
    operator.neg: _prim("neg"),
    torch.sym_float: _prim("sym_float"),
    torch.sym_int: _prim("sym_int"),
    torch.sym_not: _prim("sym_not"),
    torch.sym_ite: _prim("sym_ite"),
}

# Operators of torch that the runtime has under the same name; they have no out variant and need none.
_QUERIES = frozenset(
    {
        torch.ops.aten.sym_size.int,
        torch.ops.aten.sym_numel.default,
        torch.ops.aten._local_scalar_dense.default,
    }
)


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
    enters_bodies = True
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
    if target in _QUERIES:
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
    known = value.meta["val"] if isinstance(value, Node) else value
    return isinstance(known, torch.SymFloat | float)


def _modulo(build: _Builder, left: Any, right: Any) -> Any:
    if is_float(left) or is_float(right) or not (_is_non_negative(left) and _is_non_negative(right)):
        quotient = build.call(_SAME[operator.floordiv], left, right)
        return _SAME[operator.sub], left, build.call(_SAME[operator.mul], quotient, right)
    return _prim("mod"), left, right


def _is_non_negative(value: Any) -> bool:
    known = value.meta["val"] if isinstance(value, Node) else value
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
    known = value.meta["val"] if isinstance(value, Node) else value
    return isinstance(known, torch.SymBool | bool)


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
    return Diagnostic(
        code="EK431",
        message=f"the runtime cannot compute {name} on sizes",
        location=locate(node),
        expected="+ - * / // %, whole powers, comparisons, and, or, not, min, max, abs, floor, ceil, round, trunc",
        hint="compute it from tensors, or from sizes with other functions",
    )

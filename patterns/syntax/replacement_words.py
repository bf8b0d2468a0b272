"""What only replacements can call, besides operators and builders: `scalar`, `traced` and `stored`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from exirkit.patterns.operators.table import UnknownNameError, dotted_name
from exirkit.patterns.operators.tracing import Decomposer, has_decomposition
from exirkit.patterns.syntax.constant_names import ConstantNames
from exirkit.patterns.syntax.expressions import (
    SYMBOLIC,
    Compiled,
    ExpressionCompiler,
    ExpressionError,
    Names,
    OwnNames,
)
from exirkit.patterns.types.scalars import OperatorVariable

if TYPE_CHECKING:
    from exirkit.patterns.syntax.programs import ProgramCalls

BUILDER = "$builder"
"""Name under which a program finds what makes its calls."""


def _scalar(node: ast.Call, calls: ProgramCalls, compiler: ExpressionCompiler) -> Compiled:
    """Compile `scalar(n, f32)`: a tensor without dims; what is known at run time only is made there."""
    if len(node.args) != 2 or node.keywords:
        raise ExpressionError("scalar takes a number and a dtype: scalar(n, f32)", node)
    number, dtype = (compiler.compile(each) for each in node.args)
    op = torch.ops.aten.scalar_tensor.default
    calls.operators.append(op)

    def build(names: Names) -> Any:
        value, kind = number(names), dtype(names)
        if not isinstance(kind, torch.dtype) or not isinstance(value, int | float | torch.SymInt | torch.SymFloat):
            raise ExpressionError("scalar takes a number and a dtype: scalar(n, f32)", node)
        if isinstance(value, SYMBOLIC):
            return names[BUILDER].call(op, (value,), {"dtype": kind})
        return torch.tensor(value, dtype=kind)

    return build


@runtime_checkable
class StoringBuilder(Protocol):
    """A builder that can store tensors in the program."""

    def store(self, tensor: torch.Tensor) -> Any:
        """Return what stands for a stored tensor."""
        ...


def _stored(node: ast.Call, calls: ProgramCalls, compiler: ExpressionCompiler) -> Compiled:
    """Compile `stored(cast(c, i32))`: a tensor that is computed while a program is lowered, and stored in it."""
    if len(node.args) != 1 or node.keywords:
        raise ExpressionError("stored takes a tensor that is computed from constants: stored(cast(c, i32))", node)
    operators = len(calls.operators)
    compute = compiler.compile(node.args[0])
    if len(calls.operators) > operators:
        raise ExpressionError(
            "what is stored is computed while the program is lowered, by words and not by operators",
            node.args[0],
            "words that compute tensors are cast, reshape, permute, full, concat ...",
        )

    def store(names: Names) -> Any:
        value = compute(ConstantNames(names))
        if not isinstance(value, torch.Tensor):
            raise ExpressionError(f"stored takes a tensor, not {type(value).__name__}", node)
        builder = names[BUILDER]
        return builder.store(value) if isinstance(builder, StoringBuilder) else value

    return store


@runtime_checkable
class InterfaceBuilder(Protocol):
    """A builder that can change what the program takes."""

    def take(self, compute: Compiled, names: Names) -> Any:
        """Let the program take what is computed from an input instead of that input."""
        ...


def _input(node: ast.Call, calls: ProgramCalls, compiler: ExpressionCompiler) -> Compiled:
    """Compile `input(aten.permute_copy.default(x, p))`: what the program takes instead of x."""
    compute = _only_argument(node, compiler)

    def take(names: Names) -> Any:
        builder = names[BUILDER]
        return builder.take(compute, names) if isinstance(builder, InterfaceBuilder) else compute(names)

    return take


def _output(node: ast.Call, calls: ProgramCalls, compiler: ExpressionCompiler) -> Compiled:
    """Compile `output(aten.permute_copy.default(y, p))`: what the program gives instead of y."""
    return _only_argument(node, compiler)


def _only_argument(node: ast.Call, compiler: ExpressionCompiler) -> Compiled:
    if len(node.args) != 1 or node.keywords:
        what = ast.unparse(node.func)
        raise ExpressionError(f"{what} takes what the program has instead: {what}(aten.neg.default(x))", node)
    return compiler.compile(node.args[0])


def _traced(node: ast.Call, calls: ProgramCalls, compiler: ExpressionCompiler) -> Compiled:
    """Compile `traced(aten.einsum.default(equation, xs))`: the calls of torch's decomposition."""
    inner = node.args[0] if node.args else None
    if not isinstance(inner, ast.Call) or len(node.args) > 2 or node.keywords:
        raise ExpressionError(
            "traced takes a call, and perhaps a list of operators to decompose in it",
            node,
            "traced(aten.einsum.default(equation, xs))",
        )
    further = _named_operators(node.args[1], calls) if len(node.args) == 2 else ()
    dotted = dotted_name(inner.func) or ""
    is_variable = isinstance(calls.scope.variables.get(dotted), OperatorVariable)
    fixed = None if is_variable else _named_operators(inner.func, calls)[0]
    for op in (*further, *(() if fixed is None else (fixed,))):
        if not has_decomposition(op):
            raise ExpressionError(f"torch has no decomposition of {op}", node)
    known = len(calls.operators)
    make = calls.call(inner, compiler)
    # The operator itself is not called.
    calls.operators[known:] = [op for op in calls.operators[known:] if op is not fixed]
    calls.uses_builders.add(f"traced({dotted})")

    def build(names: Names) -> Any:
        scope = OwnNames(names)
        scope.own[BUILDER] = Decomposer(names[BUILDER], names[dotted] if fixed is None else fixed, further)
        return make(scope)

    return build


def _named_operators(node: ast.expr, calls: ProgramCalls) -> tuple[Any, ...]:
    """Return the operators that an expression names, one or a list."""
    named = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    try:
        return tuple(calls.scope.table.find(dotted_name(one) or "") for one in named)
    except UnknownNameError as error:
        raise ExpressionError(error.message, node, error.hint) from None


REPLACEMENT_WORDS: dict[str, Callable[[ast.Call, ProgramCalls, ExpressionCompiler], Compiled]] = {
    "scalar": _scalar,
    "stored": _stored,
    "input": _input,
    "output": _output,
    "traced": _traced,
}

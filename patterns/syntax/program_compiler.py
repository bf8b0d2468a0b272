"""Compiles guards, `let` and replacements: expressions in which the words of the language can be called.

A compiled program is run with a meaning for calls of operators: trials run them on tensors, the engine makes
nodes of them, static checks run them on symbolic tensors.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from exirkit.ir import SourceText

from .expression_syntax import ExpressionError, parse_expression, parse_statements
from .expressions import Compiled, ExpressionCompiler, Names
from .program_calls import BUILDER, ProgramCalls
from .program_calls import FACTS as FACTS
from .scope import Scope
from .terms import Operator


class Builder(Protocol):
    """A meaning for calls of operators."""

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        ...


@dataclass(frozen=True)
class Program:
    """A compiled program.

    Attributes:
        steps: Names to assign, and how to compute the value.
        results: How to compute the results; `True` marks one that stands for several.
        uses: Names that it needs.
        operators: Operators that it calls.
        assigns: Names that it gives.
        opaque: Registered predicates and builders that it uses.
    """

    steps: tuple[tuple[tuple[str, ...], Compiled], ...]
    results: tuple[tuple[bool, Compiled], ...]
    uses: frozenset[str]
    operators: tuple[Operator, ...] = ()
    assigns: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()

    def run(self, names: Names, builder: Builder | None = None) -> list[Any]:
        """Compute the results.

        Raises:
            ExpressionError: Something cannot be computed.
        """
        inner = _Assigned(names, builder)
        self._assign(inner)
        results: list[Any] = []
        for is_splat, compute in self.results:
            value = compute(inner)
            results.extend(value) if is_splat else results.append(value)
        return results

    def assigned(self, names: Names, builder: Builder | None = None) -> dict[str, Any]:
        """Return the values of the names that the program assigns."""
        inner = _Assigned(names, builder)
        self._assign(inner)
        return inner.own

    def _assign(self, inner: _Assigned) -> None:
        for keys, compute in self.steps:
            value = compute(inner)
            if len(keys) == 1:
                inner.own[keys[0]] = value
                continue
            values = list(value)
            if len(values) != len(keys):
                raise ExpressionError(f"{len(values)} values for the names {', '.join(keys)}")
            inner.own.update(zip(keys, values, strict=True))


class _Assigned(Mapping[str, Any]):
    """Names of a program over those around it."""

    def __init__(self, outer: Names, builder: Builder | None) -> None:
        self.outer = outer
        self.own: dict[str, Any] = {} if builder is None else {BUILDER: builder}

    def __getitem__(self, key: str) -> Any:
        own = self.own
        return own[key] if key in own else self.outer[key]

    def __iter__(self) -> Any:
        return iter({**self.outer, **self.own})

    def __len__(self) -> int:
        return len({**self.outer, **self.own})


def compile_guard(text: SourceText, scope: Scope) -> tuple[Compiled, frozenset[str], tuple[str, ...]] | None:
    """Compile a condition.

    Returns:
        The closure, the names it needs, and the registered predicates it uses; or None, and the diagnostic is in the
        scope.
    """
    calls = ProgramCalls(scope, allows_operators=False)
    compiler = ExpressionCompiler(calls)
    try:
        compiled = compiler.compile(parse_expression(text.value))
    except ExpressionError as error:
        scope.complain_of(text, "EK220", error)
        return None
    except RecursionError:
        scope.complain(text, "EK220", "this condition nests too deeply", None)
        return None
    return compiled, frozenset(compiler.free), calls.opaque


def compile_program(text: SourceText, scope: Scope, *, is_let: bool = False) -> Program | None:
    """Compile a replacement, a definition, or a `let`, which assigns only and calls no operators.

    Returns:
        The program; or None, and the diagnostics are in the scope.
    """
    calls = ProgramCalls(scope, allows_operators=not is_let)
    compiler = ExpressionCompiler(calls)
    steps: list[tuple[tuple[str, ...], Compiled]] = []
    results: list[tuple[bool, Compiled]] = []
    assigned: list[str] = []
    uses: set[str] = set()
    before = len(scope.found)
    try:
        for statement in _statements(text.value, is_let):
            if isinstance(statement, ast.Return) and not is_let:
                results = _results(statement, compiler)
            else:
                steps.append(_step(statement, compiler, is_let))
            uses |= {name for name in compiler.free if name.partition(".")[0] not in assigned}
            compiler.free.clear()
            if steps and not results:
                assigned += steps[-1][0]
    except ExpressionError as error:
        scope.complain_of(text, "EK221", error)
    except RecursionError:
        scope.complain(text, "EK221", "this program nests too deeply", None)
    if len(scope.found) > before:
        return None
    return Program(tuple(steps), tuple(results), frozenset(uses), tuple(calls.operators), tuple(assigned), calls.opaque)


def _statements(text: str, is_let: bool) -> list[ast.stmt]:
    """Return the lines of a program, of which the last one and no other is a `return`, or of a `let`."""
    statements = parse_statements(text)
    for statement in statements[:-1]:
        if isinstance(statement, ast.Return):
            raise ExpressionError("nothing may follow `return`", statement)
    if not is_let and not (statements and isinstance(statements[-1], ast.Return)):
        raise ExpressionError("a program ends in `return`", statements[-1] if statements else None)
    return statements


def _results(statement: ast.Return, compiler: ExpressionCompiler) -> list[tuple[bool, Compiled]]:
    value = statement.value
    parts = list(value.elts) if isinstance(value, ast.Tuple) else [value]
    made: list[tuple[bool, Compiled]] = []
    for part in parts:
        if part is None:
            raise ExpressionError("`return` names at least one value", statement)
        is_splat = isinstance(part, ast.Starred)
        made.append((is_splat, compiler.compile(part.value if isinstance(part, ast.Starred) else part)))
    return made


def _step(statement: ast.stmt, compiler: ExpressionCompiler, is_let: bool) -> tuple[tuple[str, ...], Compiled]:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        what = "`let` has lines `name = ...`" if is_let else "a program has lines `name = ...` and ends in `return ...`"
        raise ExpressionError(what, statement)
    target = statement.targets[0]
    names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    keys = tuple(name.id for name in names if isinstance(name, ast.Name))
    if len(keys) != len(names):
        raise ExpressionError("only names can be assigned to", target)
    return keys, compiler.compile(statement.value)

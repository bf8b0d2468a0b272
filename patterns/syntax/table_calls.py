"""Tables in expressions: `limits[f]` is a value of a row, `swapped[f](y, x)` a call of the operator in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.expressions import Compiled, ExpressionCompiler, ExpressionError, Names

if TYPE_CHECKING:
    from exirkit.patterns.syntax.programs import ProgramCalls

TABLES = "$tables"
"""Name under which a check passes a `TableProbe`."""


class TableProbe(Protocol):
    """What a check does when a rule looks a row up."""

    def row(self, table: str, key: Any, value: Any) -> Any:
        """Return the value to use instead."""
        ...


class Rows(Mapping[Any, Any]):
    """A table as expressions see it; a key that it does not have is an error with its place."""

    def __init__(self, name: str, rows: Mapping[Any, Any], probe: TableProbe | None = None) -> None:
        self.name = name
        self.rows = rows
        self.probe = probe

    def __getitem__(self, key: Any) -> Any:
        try:
            value = self.rows[key]
        except (KeyError, TypeError):
            raise ExpressionError(f"table {self.name} has no row for {key}") from None
        return value if self.probe is None else self.probe.row(self.name, key, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def compile_table(name: str, calls: ProgramCalls) -> Compiled:
    """Compile the name of a table."""
    plain = Rows(name, calls.scope.tables[name])
    calls.uses_tables.add(name)

    def look(names: Names) -> Any:
        probe = names.get(TABLES)
        return plain if probe is None else Rows(name, plain.rows, probe)

    return look


def compile_row_call(node: ast.Call, calls: ProgramCalls, compiler: ExpressionCompiler) -> Compiled:
    """Compile a call of the operator in a row, for the schema of each.

    Raises:
        ExpressionError: It is not such a call, or does not fit one of the operators.
    """
    called = node.func
    named = called.value if isinstance(called, ast.Subscript) else None
    name = named.id if isinstance(named, ast.Name) else ""
    if name not in calls.scope.tables or not calls.allows_operators:
        raise ExpressionError("this cannot be called", node)
    values = list(dict.fromkeys(_operators(name, calls.scope.tables[name], called)))
    makers: dict[Any, Compiled] = {}
    for op in values:
        try:
            makers[op] = calls.operator_call(node, op, name_of(op), compiler)
        except ExpressionError as error:
            raise ExpressionError(f"{name_of(op)}, in table {name}: {error.message}", error.node, error.hint) from None
    row = compiler.compile(called)
    return lambda names: makers[row(names)](names)


def _operators(name: str, rows: Mapping[Any, Any], node: ast.expr) -> Iterator[Any]:
    for value in rows.values():
        if not hasattr(value, "_schema"):
            raise ExpressionError(f"table {name} has values that are not operators, such as {value}", node)
        yield value

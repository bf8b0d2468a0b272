"""Operators that a replacement may not call, because the dialect that the rule leads to does not have them."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from exirkit.ir import Diagnostic, SourceText
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.defined import definition_of
from exirkit.patterns.operators.table import OperatorTable, UnknownNameError, dotted_name, name_of
from exirkit.patterns.syntax.expressions import ExpressionError, parse_statements
from exirkit.patterns.syntax.scope import place_of
from exirkit.patterns.syntax.terms import Operator

_ONLY_EDGE = {"dim_order_ops._to_dim_order_copy": "aten._to_copy", "dim_order_ops._clone_dim_order": "aten.clone"}
"""Operators that exist because Edge has orders of dims in place of memory formats, and what they are in ATen."""


def illegal_operators(rule: CompiledRule, table: OperatorTable) -> list[Diagnostic]:
    """Return diagnostics about calls in replacements that are illegal in the rule's target dialect, EK222.

    Args:
        rule: A compiled rule.
        table: Operators of its book.
    """
    scope = rule.rule.dialect
    dialect = scope.source if scope.target == "same" else scope.target
    if dialect in ("any", "same"):
        return []
    found: list[Diagnostic] = []
    for _, _, text in rule.texts.cases:
        for node, dotted, op in _calls(text, table):
            reason = _reason(dialect, op)
            if reason is not None:
                at = place_of(node)
                found.append(
                    text.diagnostic(
                        "EK222", f"{dotted} is illegal in the dialect {dialect}: it {reason}",
                        line=at.line, offset=at.offset, length=at.length, hint=_hint(dialect, dotted, op, table),
                        notes=(f"in rule {rule.id}",),
                    )
                )  # fmt: skip
    return found


def _calls(text: SourceText, table: OperatorTable) -> Iterator[tuple[ast.AST, str, Operator]]:
    try:
        statements = parse_statements(text.value)
    except ExpressionError:
        return
    for statement in statements:
        for node in ast.walk(statement):
            dotted = dotted_name(node.func) if isinstance(node, ast.Call) else None
            if not isinstance(node, ast.Call) or dotted is None or "." not in dotted:
                continue
            try:
                yield node.func, dotted, table.find(dotted)
            except UnknownNameError:
                continue


def _reason(dialect: str, op: Operator) -> str | None:
    schema = op._schema
    if schema.is_mutable:
        return "writes to its arguments"
    if dialect == "aten":
        return "exists in Edge only" if _family(op) in _ONLY_EDGE else None
    if any(one.alias_info is not None for one in schema.returns):
        return "returns a view of its argument"
    if dialect == "edge" or definition_of(op) is None:
        return None
    namespace = name_of(op).partition(".")[0]
    wanted = dialect.partition(":")[2]
    # Books of one process that mean different things by one name get namespaces with a suffix.
    is_own = namespace == wanted or namespace.rpartition("_")[0] == wanted
    return None if is_own else "is an operator of another backend"


def _hint(dialect: str, dotted: str, op: Operator, table: OperatorTable) -> str | None:
    if definition_of(op) is not None:
        wanted = dialect.partition(":")[2]
        mine = [name for name in table.defined if name.startswith(f"{wanted}.")]
        close = difflib.get_close_matches(dotted.partition(".")[2], [name.partition(".")[2] for name in mine], n=1)
        return f"did you mean {wanted}.{close[0]}?" if close else f"define it as {wanted}.{dotted.partition('.')[2]}"
    name, overload = _family(op), op._schema.overload_name or "default"
    if name in _ONLY_EDGE:
        return f"did you mean {_ONLY_EDGE[name]}.default?"
    plain = name.removesuffix("_") if op._schema.is_mutable else f"{name}_copy"
    for candidate in (f"{plain}.{overload}", f"{plain}.default", plain, f"{name.removesuffix('_')}.default"):
        try:
            other = table.find(candidate)
        except UnknownNameError:
            continue
        if _reason(dialect, other) is None:
            return f"did you mean {name_of(other)}?"
    return None


def _family(op: Operator) -> str:
    return name_of(op).rpartition(".")[0]

"""Operators with definitions that installed distributions offer under the entry point `exirkit.operators`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import ValidationError

from exirkit.ir import Diagnostic, ModelError, SourceText, UsageError, find_plugins, load_plugin
from exirkit.patterns.books.model import OperatorDefinition
from exirkit.patterns.syntax.scope import Scope
from exirkit.patterns.syntax.terms import Operator

from .defined import define_operator
from .table import OperatorTable

OPERATORS = "exirkit.operators"


@cache
def operators_offered(namespace: str) -> Mapping[str, Operator]:
    """Return the operators of a namespace that a distribution offers, by name; empty if none does.

    The entry point is named like the namespace and leads to a mapping from names, `acme.gelu`, to definitions: objects
    or what YAML would say of them.

    Raises:
        UsageError: The plug-in cannot be loaded; EK233, it is no mapping.
        ModelError: Its definitions are wrong.
    """
    if namespace not in find_plugins(OPERATORS):
        return {}
    offered = load_plugin(OPERATORS, namespace)
    if not isinstance(offered, Mapping):
        kind = type(offered).__name__
        message = f"{OPERATORS} {namespace!r} is a {kind}, not a mapping of names to definitions"
        raise UsageError(Diagnostic(code="EK233", message=message))
    table = OperatorTable()
    for name, given in offered.items():
        _define(str(name), given, f"<{OPERATORS} {namespace}>", table)
    return dict(table.defined)


def _define(name: str, given: Any, file: str, table: OperatorTable) -> None:
    scope = Scope(table)
    try:
        definition = given if isinstance(given, OperatorDefinition) else OperatorDefinition.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        message = f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ModelError(SourceText(name, file=file).diagnostic("EK202", message)) from error
    text, schema = (SourceText(one, file=file) for one in (definition.define, definition.schema_))
    made = define_operator(name, definition, text, schema, scope)
    if made is None:
        raise ModelError(scope.found)
    table.defined[name] = made

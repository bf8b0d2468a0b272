"""Arguments of patterns that follow from other names: `A + C`, `shape(x)`; and why an expression is none."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exirkit.ir import SourceText
from exirkit.patterns.types.tensors import TensorVariable

from .program_compiler import FACTS, compile_guard
from .scope import Scope
from .terms import Computed, Literal, Place, Term


@dataclass(frozen=True)
class Rejection:
    """Why an expression cannot stand in a pattern."""

    message: str
    hint: str | None = None
    code: str = "EK211"


def computed_term(
    node: ast.expr, scope: Scope, text: SourceText, named: Mapping[str, Term], place: Place
) -> Term | Rejection:
    """Compile a value that follows from other names; one that follows from nothing is a literal.

    Args:
        node: The expression.
        scope: Names of the rule.
        text: The pattern.
        named: Terms of the pattern by name.
        place: Where the expression stands.
    """
    tensors = {name for name, variable in scope.variables.items() if isinstance(variable, TensorVariable)} | set(named)
    if not tensors.isdisjoint(_plain_names(node)):
        return no_term(node)
    before = len(scope.found)
    written = SourceText(ast.unparse(node), file=text.file)
    compiled = compile_guard(written, scope)
    if compiled is None:
        found = scope.found[before:]
        del scope.found[before:]
        return Rejection(found[0].message if found else "this cannot be computed")
    compute, needs, _ = compiled
    names = needs - {FACTS}
    unknown = sorted(names - scope.variables.keys() - scope.symbols - named.keys())
    if unknown:
        return Rejection(f"{unknown[0]!r} is not declared", code="EK212")
    return Computed(written.value, compute, names, place) if names else Literal(compute({}), place=place)


def no_term(node: ast.expr) -> Rejection:
    """Return what to write instead of an expression that patterns cannot have."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        return Rejection(
            "a pattern has no comprehensions: a list is matched as it stands in the program",
            "write its elements, `[a, *rest]` for any number of them, or a name with a type such as `list of f32 [*S]`;"
            " what holds for each goes into `where`: `all(rank(x) == 2 for x in xs)`",
        )
    return Rejection(
        "patterns consist of calls, names, literals, lists and arithmetic over numbers and sizes",
        "tensors are computed by operators, as in aten.add.Tensor(x, 1); what is asked goes into `where`: write a name"
        f" with a type in `vars` here, and `name == {ast.unparse(node)}` there",
    )


def _plain_names(node: ast.AST) -> Iterator[str]:
    """Yield the names in an expression whose values it computes with, and not only asks about."""
    if isinstance(node, ast.Name):
        yield node.id
    elif not isinstance(node, ast.Call | ast.Attribute):
        for child in ast.iter_child_nodes(node):
            yield from _plain_names(child)

"""Roots that are values of the program instead of calls, as in `match: return stored(c)`.

What replaces such a value may have another dtype or other sizes: `uses` computes from it, as `new`, what every use of
the old value gets.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from exirkit.ir import SourceText
from exirkit.patterns.syntax.expressions import (
    Names,
    OwnNames,
    parse_statements,
)
from exirkit.patterns.syntax.programs import Builder, Program, Scope, place_of
from exirkit.patterns.syntax.terms import Pattern, Term, Variable
from exirkit.patterns.types.tensors import TensorVariable

if TYPE_CHECKING:
    from exirkit.patterns.syntax.pattern_parser import PatternParser

INTERFACE = ("input", "output")
"""Kinds of values that are what the program takes and gives."""

VALUE_ROOTS = ("stored", *INTERFACE)
"""Kinds of values of the program that a rule can replace."""

NEW = "new"
"""Name of what replaces the root, in `uses`."""
WITHOUT_USES = "$without uses"
"""Name under which a check asks for the replacement without `uses`."""
_READING = frozenset({"dtype", "shape", "size", "rank", "numel", "len"})


def value_root_kind(node: ast.expr) -> str | None:
    """Return the kind of value that a root names, as `stored`, or None if it is a call of an operator."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in VALUE_ROOTS:
        return node.func.id
    return None


def parse_value_root(parser: PatternParser, node: ast.expr, kind: str) -> Term:
    """Return the variable that a root such as `stored(c)` names.

    Raises:
        PatternError: It names none; the diagnostic is in the scope.
    """
    hint = f"write `return {kind}(c)`, with a type of c in `vars`"
    given = [*node.args, *node.keywords] if isinstance(node, ast.Call) else []
    name = given[0].id if len(given) == 1 and isinstance(given[0], ast.Name) else None
    if name is None or not isinstance(parser.scope.variables.get(name), TensorVariable):
        raise parser.fail(f"{kind} has one variable that is a tensor", node, code="EK234", hint=hint)
    variable = parser.scope.variables[name]
    if "mutable" in variable.qualifiers:
        raise parser.fail(
            f"{name} is mutable: what the program writes to cannot be replaced", node, code="EK234",
            hint="take `mutable` out of its type",
        )  # fmt: skip
    return Variable(name, parser.place(node))


def only_a_root(parser: PatternParser, node: ast.Call) -> Term:
    """Reject a value of the program inside a pattern.

    Raises:
        PatternError: Always.
    """
    kind = node.func.id if isinstance(node.func, ast.Name) else ""
    raise parser.fail(
        f"{kind} is a root only, and the only one", node, code="EK234",
        hint="inside a pattern a variable of type `const ...` is a stored tensor",
    )  # fmt: skip


def root_name(pattern: Pattern) -> str:
    """Return the name of the value of the program that a pattern is about."""
    (root,) = pattern.roots
    assert isinstance(root, Variable), "such a root is a variable"
    return root.name


# In replacements


@dataclass(frozen=True)
class ValueReplacement(Program):
    """The replacement of a value of the program.

    Attributes:
        around: From what replaces the value, `new`, to what its uses get.
    """

    around: Program | None = None

    def run(self, names: Names, builder: Builder | None = None) -> list[Any]:
        """Compute what the uses of the value get."""
        results = super().run(names, builder)
        if len(results) != 1 or names.get(WITHOUT_USES):
            return results
        return self.wrapped(names, results[0], builder)

    def wrapped(self, names: Names, new: Any, builder: Builder | None) -> list[Any]:
        """Return what the uses of the old value get, computed from the new one."""
        if self.around is None:
            return [new]
        inner = OwnNames(names)
        inner.own[NEW] = new
        return self.around.run(inner, builder)


def for_value(program: Program, around: Program | None) -> Program:
    """Return a replacement of a value of the program, whose uses are wrapped."""
    given = {one.name: getattr(program, one.name) for one in fields(Program)}
    if around is not None:
        given["operators"] = (*program.operators, *around.operators)
        given["opaque"] = tuple(sorted({*program.opaque, *around.opaque}))
        given["loops"] = (*program.loops, *around.loops)
        given["uses"] = program.uses | (around.uses - {NEW})
    return ValueReplacement(**given, around=around)


def check_value_replacement(text: SourceText, kind: str, scope: Scope) -> None:
    """Reject a replacement of a stored tensor that is not one, EK234."""
    result = parse_statements(text.value)[-1]
    value = result.value if isinstance(result, ast.Return) else None
    if value is None or value_root_kind(value) != kind:
        scope.complain(
            text, "EK234", f"what replaces {kind}(...) is {kind}(...)", None if value is None else place_of(value),
            f"write `return {kind}(...)`, and under `uses` what is computed from it, as `new`",
        )  # fmt: skip


def check_calls(text: SourceText, root: str, scope: Scope) -> None:
    """Reject calls that are to replace a stored tensor, and take it as an argument, EK234."""
    for statement in parse_statements(text.value):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                given = [*node.args, *(one.value for one in node.keywords)]
                for read in (one for one in given if isinstance(one, ast.Name) and one.id == root):
                    scope.complain(
                        text, "EK234", f"{root!r} is gone where these calls stand", place_of(read),
                        f"compute with what is known of it: item({root}), splat({root}), shape({root}), {root}.dtype",
                    )  # fmt: skip


def check_uses(text: SourceText, around: Program, root: str, scope: Scope) -> None:
    """Reject `uses` that does not compute with the new value, or computes with the old one, EK234."""
    if NEW in scope.variables:
        scope.complain(text, "EK234", f"`uses` has a name {NEW!r} of its own", None, "call the variable something else")
    if NEW not in around.uses:
        scope.complain(
            text, "EK234", "`uses` does not use the new value", None, f"it is called {NEW!r}: `return aten.neg({NEW})`"
        )
    if len(around.results) != 1:
        scope.complain(text, "EK234", "`uses` has one result", None)
    for node in _values_read(parse_statements(text.value), {root}):
        scope.complain(
            text, "EK234", f"{root!r} is gone where `uses` stands", place_of(node),
            f"use {NEW!r}; of the old value dtype and sizes are known: {root}.dtype, shape({root})",
        )  # fmt: skip


def check_stored(text: SourceText, root: str | None, scope: Scope) -> None:
    """Reject `stored(...)` of a tensor that is not known while the program is lowered, EK234.

    Args:
        text: A replacement.
        root: Name of the stored tensor that the rule is about, if it is about one.
        scope: Names of the rule.
    """
    varying = {
        name
        for name, one in scope.variables.items()
        if isinstance(one, TensorVariable) and name != root and not {"const", "param", "buffer"} & set(one.qualifiers)
    }
    for statement in parse_statements(text.value):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "stored":
                for read in _values_read(node.args, varying):
                    scope.complain(
                        text, "EK234", f"{read.id!r} is not known while the program is lowered", place_of(read),
                        f"say so in its type, `const ...`, or ask for its dtype and sizes only, shape({read.id})",
                    )  # fmt: skip


def _values_read(parts: Sequence[ast.AST], names: Collection[str]) -> list[ast.Name]:
    """Return where a program uses the value of a name, and not only its dtype or sizes."""
    known: set[int] = set()
    found: list[ast.Name] = []
    for part in parts:
        for node in ast.walk(part):
            inner: list[ast.expr] = []
            if isinstance(node, ast.Attribute):
                inner = [node.value]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _READING:
                inner = node.args
            known |= {id(one) for one in inner}
            if isinstance(node, ast.Name) and node.id in names:
                found.append(node)
    return [one for one in found if id(one) not in known]

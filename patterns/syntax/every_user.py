"""Patterns about all users of a value: `return *[quantize(u, s, z) for u in users(d)]`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from exirkit.patterns.syntax.comprehensions import element_of, lists_of, names_of
from exirkit.patterns.syntax.programs import Builder, Program
from exirkit.patterns.syntax.terms import Call, EveryUser, Item, OperatorCall, Variable

if TYPE_CHECKING:
    from exirkit.patterns.syntax.pattern_parser import PatternParser

USERS = "$users"
"""Key under which a match has the number of users that it replaces."""
_FORM = "write return *[aten.exp.default(u) for u in users(d)], or some(users(d)) for a part of them"


def is_about_users(node: ast.expr) -> bool:
    """Whether an expression is a comprehension over the users of a value."""
    if not isinstance(node, ast.ListComp | ast.GeneratorExp) or len(node.generators) != 1:
        return False
    source = node.generators[0].iter
    first = source.args[0] if _is_call(source, "zip") and isinstance(source, ast.Call) and source.args else source
    return _is_call(first, "users") or _is_call(first, "some")


def parse_every_user(parser: PatternParser, node: ast.ListComp | ast.GeneratorExp) -> EveryUser:
    """Return the root of a pattern that is about all users of a value, or with `some(users(d))` about those that match.

    Raises:
        PatternError: It is not one; the diagnostic is in the scope.
    """
    loop = node.generators[0]
    if loop.ifs:
        raise parser.fail("a comprehension in a pattern has no `if`", loop.ifs[0], code="EK288", hint=_FORM)
    source, others = loop.iter, list[ast.expr]()
    if isinstance(source, ast.Call) and _is_call(source, "zip"):
        source, *others = source.args
    is_some = _is_call(source, "some")
    if is_some and isinstance(source, ast.Call) and len(source.args) == 1:
        source = source.args[0]
    if not (isinstance(source, ast.Call) and _is_call(source, "users") and len(source.args) == 1):
        raise parser.fail("users has the name of a value", loop.iter, code="EK288", hint=_FORM)
    of = parser.term(source.args[0])
    if not isinstance(of, Variable | Call | OperatorCall | Item):
        raise parser.fail("users are those of a variable or a call", source.args[0], code="EK288", hint=_FORM)
    user, *names = names_of(parser, loop.target)
    lists = lists_of(parser, others, loop.iter, len(names)) if others else ()
    if len(lists) != len(names):
        raise parser.fail(f"{len(names) + 1} names for {len(lists) + 1} values", loop.target, code="EK288", hint=_FORM)
    element = element_of(parser, node, (user, *names), lists, first_is_tensor=True)
    return EveryUser(element, user, tuple(names), lists, of, is_some, parser.place(node))


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


class ForAllUsers(Program):
    """A replacement of which one result stands for every user."""

    def run(self, names: Mapping[str, Any], builder: Builder | None = None) -> list[Any]:
        """Compute the results, as many as there are users."""
        results = super().run(names, builder)
        return results * names[USERS] if len(results) == 1 else results


def for_all_users(program: Program) -> Program:
    """Return a replacement of which one result may stand for every user."""
    return ForAllUsers(**{one.name: getattr(program, one.name) for one in fields(Program)})

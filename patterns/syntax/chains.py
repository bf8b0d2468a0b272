"""Chains in patterns: `v = chain(l, [ops])` is any number of calls on a value; `along(v, e)` makes them on another."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from exirkit.patterns.operators.links import reason_against
from exirkit.patterns.operators.table import FAMILIES, dotted_name, name_of
from exirkit.patterns.syntax.expressions import Compiled, ExpressionCompiler, ExpressionError, Names
from exirkit.patterns.syntax.terms import Attributed, Call, Chain, Item, OperatorCall, Variable

if TYPE_CHECKING:
    from exirkit.patterns.syntax.pattern_parser import PatternParser
    from exirkit.patterns.syntax.programs import ProgramCalls

_FORM = "write v = chain(l, [aten.view_copy.default, aten.permute_copy.default], users=1)"


def key_of(name: str) -> str:
    """Return the key under which a match has the links of a chain."""
    return f"{name}.links"


def parse_chain(parser: PatternParser, node: ast.Call) -> Chain:
    """Return the term of `chain(l, [ops])`, or of `chain(l, [ops], users=1)`.

    Raises:
        PatternError: It is not one; the diagnostic is in the scope.
    """
    is_private = _is_private(parser, node)
    inner = parser.term(node.args[0])
    if not isinstance(inner, Call | OperatorCall | Attributed | Item | Variable):
        raise parser.fail("a chain begins at a call or a variable", node.args[0], code="EK289", hint=_FORM)
    listed = node.args[1].elts if isinstance(node.args[1], ast.List | ast.Tuple) else [node.args[1]]
    ops: list[Any] = []
    for each in listed:
        dotted = dotted_name(each)
        if dotted is None:
            raise parser.fail("the links of a chain are named by operators", each, code="EK289", hint=_FORM)
        members = parser.family(each, dotted)
        against = {op: reason for op in members if (reason := reason_against(op)) is not None}
        if against and dotted not in FAMILIES:
            op, reason = next(iter(against.items()))
            raise parser.fail(f"{name_of(op)} cannot be a link of a chain: {reason}", each, code="EK289")
        # A family stands for those of its operators that trials can draw calls of.
        ops += [op for op in members if op not in against and op not in ops]
    if not ops:
        raise parser.fail("a chain has no operators", node.args[1], code="EK289", hint=_FORM)
    return Chain(inner, tuple(ops), is_private, None, parser.place(node))


def _is_private(parser: PatternParser, node: ast.Call) -> bool:
    named = {one.arg: one.value for one in node.keywords}
    if len(node.args) != 2 or not set(named) <= {"users"}:
        raise parser.fail("chain has a value, a list of operators, and perhaps users=1", node, code="EK289", hint=_FORM)
    users = named.get("users")
    if users is not None and not (isinstance(users, ast.Constant) and users.value == 1):
        raise parser.fail("a chain says `users=1`, or nothing about users", users, code="EK289", hint=_FORM)
    return users is not None


def unnamed_chains(terms: tuple[Any, ...]) -> list[Chain]:
    """Return the chains of a pattern without a name: nothing could speak of their links."""
    return [one for one in terms if isinstance(one, Chain) and one.name is None]


def chains_of(terms: tuple[Any, ...]) -> list[Chain]:
    """Return the chains among terms, each once."""
    return list({id(one): one for one in terms if isinstance(one, Chain)}.values())


def compile_along(node: ast.Call, compiler: ExpressionCompiler, calls: ProgramCalls) -> Compiled:
    """Compile `along(v, e)`: the calls of a chain, on another value."""
    if not calls.allows_operators:
        raise ExpressionError("along makes calls, which belong into `replace`", node)
    if len(node.args) != 2 or node.keywords or not isinstance(node.args[0], ast.Name):
        raise ExpressionError("along has the name of a chain and a value: along(v, aten.relu.default(x))", node)
    links = _links(node.args[0], compiler)
    value = compiler.compile(node.args[1])

    def build(names: Names) -> Any:
        from exirkit.patterns.syntax.replacement_words import BUILDER

        made = value(names)
        try:
            for link in links(names):
                made = link.called(made, names[BUILDER])
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ExpressionError(f"along: {text}", node) from error
        return made

    return build


def compile_links(node: ast.Call, compiler: ExpressionCompiler, _: ProgramCalls) -> Compiled:
    """Compile `links(v)`: how many calls a chain has."""
    if len(node.args) != 1 or node.keywords or not isinstance(node.args[0], ast.Name):
        raise ExpressionError("links has the name of a chain: links(v) > 0", node)
    links = _links(node.args[0], compiler)
    return lambda names: len(links(names))


def _links(name: ast.Name, compiler: ExpressionCompiler) -> Compiled:
    key = key_of(name.id)
    compiler.free.setdefault(key, name)
    return lambda names: names[key]


def shown_chains(terms: tuple[Any, ...], names: Mapping[str, Any]) -> dict[str, str]:
    """Return the links that chains have, as text, by name."""
    found: dict[str, str] = {}
    for chain in chains_of(terms):
        links = names.get(key_of(chain.name or ""), ())
        calls = (f"{name_of(one.op)}({', '.join(map(str, one.args))})" for one in links)
        found[f"links of {chain.name}"] = ", ".join(calls) or "none"
    return found

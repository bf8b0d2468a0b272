"""Bodies of control flow in the texts of rules: `lambda x, *rest: [aten.relu.default(f(x, *rest))]`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exirkit.patterns.operators.control_flow import BodyBuilder, distributed
from exirkit.patterns.syntax.expressions import Compiled, ExpressionCompiler, ExpressionError, Names, OwnNames
from exirkit.patterns.syntax.replacement_words import BUILDER
from exirkit.patterns.syntax.terms import (
    Applied,
    Body,
    Call,
    OperatorCall,
    Parameter,
    Splat,
    Term,
    Variable,
    children,
    walk,
)
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.types.bodies import BodyVariable, OperandsVariable, gives_one
from exirkit.patterns.types.tensors import TensorListVariable, TensorVariable

if TYPE_CHECKING:
    from exirkit.patterns.syntax.pattern_parser import PatternParser
    from exirkit.patterns.syntax.programs import ProgramCalls

_FORM = "write lambda x, *rest: [aten.relu.default(f(x, *rest))], with f typed `body` under `vars`"


def parse_body(parser: PatternParser, node: ast.Lambda) -> Body:
    """Return a body of a pattern.

    Raises:
        PatternError: It is none; the diagnostic is in the scope.
    """
    first, rest, last = _parameters(node, parser.fail)
    place = parser.place(node)
    scope = f"$body:{place.line}:{place.offset}"

    def parameter(name: str) -> Parameter:
        if name in parser.scope.variables or name in parser.named:
            raise parser.fail(f"{name!r} is the name of something else", node, code="EK238", hint=_FORM)
        return Parameter(name, f"{scope}.{name}", place)

    made = [tuple(map(parameter, names)) for names in (first, [rest] if rest else [], last)]
    names = {one.name: one for group in made for one in group}
    parser.scopes.append(scope)
    try:
        result = parser.term_with(node.body, names)
    finally:
        parser.scopes.pop()
    body = Body(made[0], made[1][0] if made[1] else None, made[2], result, scope, place)
    _check_body(parser, node, body)
    return body


def _check_body(parser: PatternParser, node: ast.Lambda, body: Body) -> None:
    known = {one.key for one in body.parameters}
    for term in _within(body):
        what = type(term).__name__.lower()
        if isinstance(term, Variable) and isinstance(
            parser.scope.variables.get(term.name), TensorVariable | TensorListVariable | OperandsVariable
        ):
            raise parser.fail(
                f"{term.name} is outside of the body, which gets everything through its parameters", node,
                code="EK238", hint="name it among the operands, and give the lambda a parameter for it",
            )  # fmt: skip
        if not isinstance(term, _ALLOWED):
            raise parser.fail(f"a body cannot have {what} in it", node, code="EK238", hint=_FORM)
        if isinstance(term, Parameter) and term.key not in known:
            raise parser.fail(
                f"{term.name} is a parameter of the body around", node,
                code="EK238", hint="name it among the operands, and give the lambda a parameter for it",
            )  # fmt: skip
        if isinstance(term, Parameter) and term is body.rest and not _is_spread(term, body.result):
            raise parser.fail(f"{term.name} stands for several values: write *{term.name}", node, code="EK238")


def _within(body: Body) -> Iterator[Any]:
    """Yield the terms of a body; bodies of control flow in it are described by themselves."""
    pending: list[Any] = [body.result]
    while pending:
        one = pending.pop()
        yield one
        if not isinstance(one, Body):
            pending += children(one)


_ALLOWED: tuple[type, ...] = ()


def _allow() -> tuple[type, ...]:
    from exirkit.patterns.syntax.terms import Anything, Computed, Item, Literal, Symbol

    values = Parameter, Applied, Call, OperatorCall, Item, Body
    return *values, ListTerm, Splat, Variable, Anything, Computed, Literal, Symbol


_ALLOWED = _allow()


def _is_spread(parameter: Parameter, result: Term) -> bool:
    """Whether a parameter that stands for several stands behind `*` everywhere."""
    lists = [one.items for one in walk(result) if isinstance(one, ListTerm)]
    lists += [one.arguments for one in walk(result) if isinstance(one, Applied)]
    direct = [item for one in lists for item in one if item is parameter]
    called = [
        argument
        for one in walk(result)
        if isinstance(one, Call | OperatorCall)
        for argument in (one.arguments.values() if isinstance(one, Call) else one.arguments)
        if argument is parameter
    ]
    return not direct and not called and result is not parameter


def parse_applied(parser: PatternParser, node: ast.Call, name: str) -> Applied:
    """Return `f(x, *rest)` in a body.

    Raises:
        PatternError: It is none; the diagnostic is in the scope.
    """
    if not parser.scopes:
        raise parser.fail(f"{name} is a body, and is applied in bodies only", node, code="EK238", hint=_FORM)
    if node.keywords:
        raise parser.fail("a body is given its values by position", node, code="EK238", hint=_FORM)
    arguments: list[Term | Splat] = []
    for one in node.args:
        if isinstance(one, ast.Starred):
            term = parser.term(one.value)
            if not isinstance(term, Parameter):
                raise parser.fail("after `*` stands a parameter of the body", one, code="EK238", hint=_FORM)
            arguments.append(Splat(None, term, parser.place(one)))
            continue
        term = parser.term(one)
        if not isinstance(term, Parameter | Call | OperatorCall):
            raise parser.fail(f"{name} is given parameters, and calls of them", one, code="EK238", hint=_FORM)
        arguments.append(term)
    return Applied(Variable(name, parser.place(node)), tuple(arguments), parser.scopes[-1], None, parser.place(node))


def bodies_of(terms: Sequence[Any]) -> list[Body]:
    """Return the bodies that a pattern describes, each once."""
    return list({id(one): one for one in terms if isinstance(one, Body)}.values())


def hidden_parameters(body: Body, applied: Applied) -> list[Parameter]:
    """Return the parameters of a body that are not given on as they are."""
    given = {id(one.term if isinstance(one, Splat) else one) for one in applied.arguments}
    return [one for one in body.parameters if id(one) not in given]


def _parameters(node: ast.Lambda, fail: Callable[..., Exception]) -> tuple[list[str], str | None, list[str]]:
    given = node.args
    if given.defaults or any(one is not None for one in given.kw_defaults) or given.kwarg is not None:
        raise fail("a body has parameters without defaults: lambda x, *rest, last: ...", node)
    first = [one.arg for one in (*given.posonlyargs, *given.args)]
    rest = None if given.vararg is None else given.vararg.arg
    return first, rest, [one.arg for one in given.kwonlyargs]


# In replacements


@dataclass(frozen=True)
class WrittenBody:
    """A body that a replacement writes."""

    names: Names
    first: tuple[str, ...]
    rest: str | None
    last: tuple[str, ...]
    compute: Compiled

    def results(self, builder: BodyBuilder, args: Sequence[Any]) -> list[Any]:
        """Return what the body gives for arguments.

        Raises:
            ExpressionError: They are too few or too many, or it cannot be computed.
        """
        places = distributed(len(args), self.first, self.rest, self.last)
        if places is None:
            raise ExpressionError(f"a body with {len(self.first) + len(self.last)} parameters is given {len(args)}")
        inner = OwnNames(self.names)
        inner.own[BUILDER] = builder
        for name in (*self.first, *((self.rest,) if self.rest else ()), *self.last):
            place = next(places)
            inner.own[name] = [args[one] for one in place] if isinstance(place, list) else args[place]
        found = self.compute(inner)
        return list(found) if isinstance(found, list | tuple) else [found]


def compile_body(node: ast.Lambda, calls: ProgramCalls, compiler: ExpressionCompiler) -> Compiled:
    """Compile `lambda x, *rest: ...` in a replacement.

    Raises:
        ExpressionError: It is not a body.
    """
    if not calls.allows_operators:
        raise ExpressionError("bodies belong into `match` and `replace`", node)
    first, rest, last = _parameters(node, lambda message, at, **_: ExpressionError(message, at))
    for name in (*first, *last, *([rest] if rest else [])):
        if name in calls.scope.variables:
            raise ExpressionError(f"{name!r} is the name of something else", node)
    with compiler.local_names([*first, *last, *([rest] if rest else [])]):
        compute = compiler.compile(node.body)
    return lambda names: WrittenBody(names, tuple(first), rest, tuple(last), compute)


def compile_applied(node: ast.Call, name: str, calls: ProgramCalls, compiler: ExpressionCompiler) -> Compiled:
    """Compile `f(*xs)` in a replacement: the calls of a body, in place.

    Raises:
        ExpressionError: It is none.
    """
    if not calls.allows_operators:
        raise ExpressionError("bodies belong into `match` and `replace`", node)
    variable = calls.scope.variables[name]
    assert isinstance(variable, BodyVariable)
    compiler.free.setdefault(name, ast.Name(name))
    positional, named = compiler.arguments(node)
    if named:
        raise ExpressionError("a body is given its values by position", node)
    is_single = gives_one(variable, calls.scope.variables)

    def run(names: Names) -> Any:
        results = names[name].results(names[BUILDER], positional(names))
        return results[0] if is_single else results

    return run

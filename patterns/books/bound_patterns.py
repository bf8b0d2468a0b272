"""`bind_pattern_to_op`: a Python function becomes the meaning of an operator in a library of the author's own.

The function is the operator's kernel, so that the operator runs, and torch takes it apart where it traces again. If the
function is one that the language of rules can say, the operator counts as defined by a book, and rules can unfuse it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from exirkit.ir import Diagnostic, SourceText, UsageError, has_kernel
from exirkit.patterns.books.model import OperatorDefinition, RuleBook
from exirkit.patterns.matching.compiled_rule import texts_of
from exirkit.patterns.operators.defined import keep_definition
from exirkit.patterns.operators.table import OperatorTable, dotted_name
from exirkit.patterns.syntax.programs import Program, Scope, compile_program
from exirkit.patterns.syntax.terms import Operator

from .loading import LoadedBook, compile_book

Pattern = TypeVar("Pattern", bound=Callable[..., Any])

_BOUND: dict[str, OperatorDefinition] = {}
_KERNELS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "Meta")


def bind_pattern_to_op(library: torch.library.Library, schema_or_name: str) -> Callable[[Pattern], Pattern]:
    """Make a function what an operator means.

    Args:
        library: Library of the operator's namespace; it must be kept alive.
        schema_or_name: `add_relu(Tensor self, Tensor other) -> Tensor`, which is defined then; or the name of an
            operator that the library has defined.

    Returns:
        A decorator that leaves the function as it is. Arguments are told by their order, whatever their names are.
        An operator that has a kernel keeps it.

    Raises:
        UsageError: EK232, the operator cannot be defined or is not there, or takes another number of arguments.
    """

    def bind(function: Pattern) -> Pattern:
        namespace, _, own = schema_or_name.rpartition("::")
        if namespace.strip() not in ("", library.ns):
            raise _unbound(schema_or_name, f"the library is that of {library.ns}")
        head, bracket, _ = own.partition("(")
        name = head.strip()
        if bracket:
            _define(library, own)
        op = _operator(library.ns, name)
        _check_arguments(op, function, schema_or_name)
        qualified = f"{library.ns}::{name}"
        if not any(has_kernel(qualified, key) for key in _KERNELS):
            library.impl(name, function, "CompositeImplicitAutograd")
        _remember(op, f"{library.ns}.{name}", function, library)
        return function

    return bind


def bound_book() -> LoadedBook:
    """Return a book of the operators that were bound and whose functions the language of rules can say."""
    return compile_book(RuleBook(rulebook=1, namespace="bound", ops=dict(_BOUND)), "<bound patterns>", texts_of)


def _define(library: torch.library.Library, schema: str) -> None:
    try:
        library.define(schema.strip())
    except (RuntimeError, ValueError) as error:
        raise _unbound(schema, str(error).strip().splitlines()[0]) from error


def _operator(namespace: str, name: str) -> Operator:
    base, _, overload = name.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    found = getattr(packet, overload or "default", None)
    if found is None:
        raise _unbound(f"{namespace}::{name}", "the library does not define it; give its schema")
    return found


def _check_arguments(op: Operator, function: Callable[..., Any], what: str) -> None:
    count = len(op._schema.arguments)
    parameters = [one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    if len(parameters) != count or any(one.kind is one.VAR_POSITIONAL for one in parameters):
        raise _unbound(what, f"it takes {count} arguments, and the function {len(parameters)}")


def _remember(op: Operator, name: str, function: Callable[..., Any], library: torch.library.Library) -> None:
    """Note the definition of an operator, if the language can say it."""
    arguments = [argument.name for argument in op._schema.arguments]
    text = _program_text(function, arguments)
    if text is None:
        return
    program = _compiled(text, arguments)
    if program is None:
        return
    schema = str(op._schema)
    definition = OperatorDefinition(schema=schema[schema.index("(") :], define=text, out_variant=False)
    keep_definition(f"{library.ns}::{name.partition('.')[2]}", definition, op, program, library)
    _BOUND[name] = definition


def _compiled(text: str, arguments: list[str]) -> Program | None:
    scope = Scope(OperatorTable(), dict.fromkeys(arguments, object()))
    program = compile_program(SourceText(text), scope)
    return program if program is not None and program.uses <= set(arguments) else None


def _program_text(function: Callable[..., Any], arguments: list[str]) -> str | None:
    """Return the body of a function in the language of rules, over other names of its arguments."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    written = tree.body[0]
    if not isinstance(written, ast.FunctionDef):
        return None
    parameters = list(inspect.signature(function).parameters)
    names = dict(zip(parameters, arguments, strict=True))
    taken = {*arguments, *parameters}
    for node in ast.walk(written):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in taken:
            names[node.id] = f"{node.id}_" if node.id not in parameters else names[node.id]
    body = written.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    renamed = [_InTheLanguage(names).visit(statement) for statement in body]
    return "\n".join(ast.unparse(ast.fix_missing_locations(one)) for one in renamed) or None


class _InTheLanguage(ast.NodeTransformer):
    """Writes operators as rules do, and names as the schema does."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Drop `torch.ops` and `exir_ops.edge` in front of an operator."""
        parts = (dotted_name(node) or "").split(".")
        if len(parts) > 3 and (parts[:2] == ["torch", "ops"] or parts[1] == "edge"):
            return ast.parse(".".join(parts[2:]), mode="eval").body
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Rename."""
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)


def _unbound(what: str, why: str) -> UsageError:
    return UsageError(Diagnostic(code="EK232", message=f"no pattern can be bound to {what.strip()}: {why}"))

"""Attributes: typed metadata of a call with a meaning, `call @ act(lo, hi)`, declared in the book.

The value of a call with an attribute is what the attribute means for the result of its operator. Trials compute that.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from exirkit.ir import ATTRIBUTE_KEYS, SourceText
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import Compiled, ExpressionCompiler, ExpressionError, Names
from exirkit.patterns.syntax.terms import Attributed, Call, Computed, Literal, OperatorCall, Symbol, Term, Variable
from exirkit.patterns.types.parser import parse_variable
from exirkit.patterns.types.scanner import VariableSyntaxError
from exirkit.patterns.types.tensors import TensorVariable

if TYPE_CHECKING:
    from exirkit.patterns.books.model import AttributeDefinition
    from exirkit.patterns.syntax.pattern_parser import PatternParser
    from exirkit.patterns.syntax.programs import Program, ProgramCalls, Scope

RESULT = "result"
"""What the operator itself computes, in the meaning of an attribute."""
_NO = re.compile(r"\s*no\(\s*(\w+)\s*,\s*(\w+)\s*\)\s*")


@dataclass(frozen=True)
class Attribute:
    """A declared attribute.

    Attributes:
        name: Name in rules.
        key: Entry of `node.meta`.
        fields: Types of its fields, in order.
        meaning: Program over `result` and the fields; None: it changes no value, and nothing of it can be tried.
    """

    name: str
    key: str
    fields: Mapping[str, Any]
    meaning: Program | None = field(default=None, compare=False)

    def read(self, x: Any) -> dict[str, Any] | None:
        """Return the fields of a node, or None if it has no such attribute.

        Other code may have written them in a form of its own: a mapping, an object with these fields, or with as many
        others in the same order.
        """
        value = x.meta.get(self.key) if isinstance(x, Node) else None
        if value is None:
            return None
        if not isinstance(value, Mapping):
            held = getattr(value, "__dict__", None)
            if held is None or not set(self.fields) <= held.keys():
                held = dict(zip(self.fields, _in_order(value), strict=False))
            value = held
        if not set(self.fields) <= value.keys():
            return None
        return {name: of_kind(kind, value[name]) for name, kind in self.fields.items()}

    def write(self, node: Node, fields: Mapping[str, Any], set_meta: Callable[[Node, str, Any], None]) -> None:
        """Give a node the attribute.

        Args:
            node: A call.
            fields: Values of the fields.
            set_meta: Sets one entry of the metadata of a node.
        """
        set_meta(node, self.key, dict(fields))
        set_meta(node, ATTRIBUTE_KEYS, (*node.meta.get(ATTRIBUTE_KEYS, ()), self.key))

    def applied(self, value: Any, fields: Mapping[str, Any], builder: Any) -> Any:
        """Return what the attribute means for a value.

        Raises:
            ExpressionError: The meaning cannot be computed.
        """
        put = getattr(builder, "put_attribute", None)
        if put is not None:
            return put(value, self, fields)
        if self.meaning is None:
            return value
        return self.meaning.run({RESULT: value, **fields}, builder)[0]


def _in_order(value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    held = getattr(value, "__dict__", None)
    return list(held.values()) if held is not None else [value]


def of_kind(kind: Any, value: Any) -> Any:
    """Return the value of a field as its declared type has it: other code may have written an integer for a float."""
    is_float = getattr(kind, "KEYWORDS", ()) == ("float",)
    if is_float and isinstance(value, int | str) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def declared(name: str, definition: AttributeDefinition, text: SourceText, scope: Scope) -> Attribute | None:
    """Compile the declaration of an attribute; diagnostics go to the scope.

    Args:
        name: Its name.
        definition: As it was written.
        text: Its meaning, with its place.
        scope: Operators and macros of the book.
    """
    from exirkit.patterns.syntax.programs import Scope, compile_program

    fields: dict[str, Any] = {}
    for key, written in definition.fields.items():
        try:
            fields[key] = parse_variable(key, written)
        except VariableSyntaxError as error:
            scope.complain(text, "EK216", f"field {key!r} of {name}: {error.message}", None, error.hint)
            return None
        if not getattr(fields[key], "IS_NUMBER", False) and isinstance(fields[key], TensorVariable):
            scope.complain(text, "EK299", f"field {key!r} of attribute {name} is a tensor", None, _FIELDS)
            return None
    if definition.means is None:
        return Attribute(name, definition.key, fields)
    inner = Scope(scope.table, {**fields, RESULT: object()}, frozenset(), scope.macros, scope.found)
    program = compile_program(SourceText(f"return {text.value}", file=text.file), inner)
    if program is None:
        return None
    unknown = sorted(program.uses - {*fields, RESULT})
    if unknown or RESULT not in program.uses:
        what = f"{unknown[0]!r} is not a field" if unknown else f"the meaning does not use `{RESULT}`"
        scope.complain(
            text,
            "EK299",
            f"attribute {name}: {what}",
            None,
            f"it has {', '.join(fields)} and `{RESULT}`",
        )
        return None
    return Attribute(name, definition.key, fields, program)


_FIELDS = "fields are numbers, strings, dtypes and lists of numbers"


def guard_against(text: str) -> tuple[str, str] | None:
    """Return name and attribute if a condition is `no(y, act)`."""
    found = _NO.fullmatch(text)
    return (found.group(1), found.group(2)) if found else None


def attributed_terms(terms: Sequence[Any]) -> list[Attributed]:
    """Return the terms with an attribute, each once."""
    return list({id(one): one for one in terms if isinstance(one, Attributed)}.values())


def attributed_variables(terms: Sequence[Any]) -> frozenset[str]:
    """Return the variables of which a pattern demands an attribute: `x @ act(lo, hi)`."""
    inner = [one.inner for one in attributed_terms(terms) if not one.is_optional]
    return frozenset(one.name for one in inner if isinstance(one, Variable))


# In patterns


def parse_attributed(parser: PatternParser, node: ast.BinOp) -> Attributed:
    """Return the term of `call @ act(lo, hi)`, or of `call @ opt(act(lo, hi))`.

    Raises:
        PatternError: It is not one; the diagnostic is in the scope.
    """

    def fail(message: str, at: ast.AST, hint: str | None = None) -> Exception:
        return parser.fail(message, at, code="EK299", hint=hint)

    inner = parser.term(node.left)
    is_tensor = isinstance(inner, Variable) and isinstance(parser.scope.variables.get(inner.name), TensorVariable)
    if isinstance(inner, Attributed):
        raise fail("a call has one attribute: what two of them mean depends on their order", node.right)
    if not isinstance(inner, Call | OperatorCall) and not is_tensor:
        hint = "write aten.add.Tensor(x, y) @ act(lo, hi), or x @ act(lo, hi)"
        raise fail("attributes belong to calls", node.left, hint)
    attribute, given, is_optional = _written(parser.scope, node.right, fail)
    fields: dict[str, Term] = {}
    for name, expression in given.items():
        term = parser.term(expression)
        if not isinstance(term, Variable | Literal | Symbol | Computed):
            raise fail(f"field {name!r} of {attribute.name} is a name or a literal", expression)
        if is_optional and not isinstance(term, Variable):
            raise fail(
                f"field {name!r} of an attribute that may be missing is a name", expression,
                "it is none where the attribute is missing; ask under `where` what it is otherwise",
            )  # fmt: skip
        fields[name] = term
    return Attributed(inner, attribute, fields, is_optional, parser.place(node))


def _written(
    scope: Scope, node: ast.expr, fail: Callable[..., Exception]
) -> tuple[Attribute, dict[str, ast.expr], bool]:
    """Return attribute, fields as they are written, and whether it may be missing."""
    is_optional = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "opt"
    call = node.args[0] if is_optional and isinstance(node, ast.Call) and len(node.args) == 1 else node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise fail("behind `@` stands an attribute with its fields", node, "write @ act(lo, hi), or @ opt(act(lo, hi))")
    attribute = scope.attributes.get(call.func.id)
    if attribute is None:
        close = difflib.get_close_matches(call.func.id, list(scope.attributes), n=1)
        hint = f"did you mean {close[0]}?" if close else "declare it under `attributes` of the book"
        raise fail(f"attribute {call.func.id!r} is not declared", call.func, hint)
    names = list(attribute.fields)
    given = dict(zip(names, call.args, strict=False))
    wrong = len(call.args) > len(names) or any(one.arg in given or one.arg not in names for one in call.keywords)
    given |= {str(one.arg): one.value for one in call.keywords}
    if wrong or len(given) != len(names):
        raise fail(f"{attribute.name} has the fields {', '.join(names)}: each is given once", call)
    return attribute, {name: given[name] for name in names}, is_optional


# In conditions and replacements


def compile_written(node: ast.BinOp, compiler: ExpressionCompiler, calls: ProgramCalls) -> Compiled:
    """Compile `call @ act(lo, hi)` in a replacement; with `opt(...)` nothing is written where all fields are none."""

    def fail(message: str, at: ast.AST, hint: str | None = None) -> Exception:
        return ExpressionError(message, at, hint)

    if not calls.allows_operators:
        raise fail("attributes are written in `replace`; `attr(y, act).lo` reads one", node)
    if not isinstance(node.left, ast.Call):
        raise fail("an attribute is given to a new call", node.left, "write aten.add.Tensor(x, y) @ act(lo, hi)")
    call = compiler.compile(node.left)
    attribute, given, is_optional = _written(calls.scope, node.right, fail)
    fields = {name: compiler.compile(value) for name, value in given.items()}
    calls.writes.append(attribute.name)

    def build(names: Names) -> Any:
        from exirkit.patterns.syntax.replacement_words import BUILDER

        values = {name: part(names) for name, part in fields.items()}
        value = call(names)
        if is_optional and all(one is None for one in values.values()):
            return value
        return attribute.applied(value, values, names[BUILDER])

    return build


def compile_read(node: ast.Call, compiler: ExpressionCompiler, calls: ProgramCalls) -> tuple[Compiled, Attribute]:
    """Compile the part that `attr(y, act)` and `no(y, act)` have in common: it gives the fields, or None."""
    if len(node.args) != 2 or node.keywords or not all(isinstance(one, ast.Name) for one in node.args):
        raise ExpressionError("this has the name of a call and an attribute: no(y, act), attr(y, act).lo", node)
    name, key = (one.id for one in node.args if isinstance(one, ast.Name))
    attribute = calls.scope.attributes.get(key)
    if attribute is None:
        raise ExpressionError(f"attribute {key!r} is not declared", node.args[1], "declare it under `attributes`")
    value = compiler.compile(node.args[0])

    def read(names: Names) -> Any:

        x = value(names)
        if isinstance(x, Node) or x is None:
            return attribute.read(x)
        told = getattr(names[FACTS], "attribute_of", None)
        return None if told is None else told(name, attribute)

    return read, attribute


def compile_no(node: ast.Call, compiler: ExpressionCompiler, calls: ProgramCalls) -> Compiled:
    """Compile `no(y, act)`: the call has no such attribute."""
    read, _ = compile_read(node, compiler, calls)
    return lambda names: read(names) is None


def compile_field(node: ast.Attribute, compiler: ExpressionCompiler, calls: ProgramCalls) -> Compiled | None:
    """Compile `attr(y, act).lo`; None if it is another attribute of a value."""
    match node.value:
        case ast.Call(func=ast.Name(id="attr")) as call:
            read, attribute = compile_read(call, compiler, calls)
        case _:
            return None
    if node.attr not in attribute.fields:
        hint = f"it has {', '.join(attribute.fields)}"
        raise ExpressionError(f"{attribute.name} has no field {node.attr!r}", node, hint)

    def look_up(names: Names) -> Any:
        fields = read(names)
        if fields is None:
            raise ExpressionError(f"there is no attribute {attribute.name} here", node, "ask `not no(y, act)` first")
        return fields[node.attr]

    return look_up

"""From the string of a pattern to terms; whatever is wrong is noted with its place, and parsing goes on."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from exirkit.ir import SourceText
from exirkit.patterns.functions.words import WORDS
from exirkit.patterns.operators.arguments import bind_written, default_of, normalised_literal, result_count
from exirkit.patterns.operators.in_place import functional_variant_of
from exirkit.patterns.operators.table import CONSTANTS, FAMILIES, UnknownNameError, dotted_name
from exirkit.patterns.syntax.attributes import parse_attributed
from exirkit.patterns.syntax.bodies import parse_applied, parse_body
from exirkit.patterns.syntax.chains import parse_chain
from exirkit.patterns.syntax.comprehensions import is_valid_list, parse_each
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.every_user import is_about_users, parse_every_user
from exirkit.patterns.syntax.expressions import ExpressionError, parse_expression, parse_statements
from exirkit.patterns.syntax.programs import Scope, compile_guard, place_of
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Anything,
    Applied,
    Attributed,
    Call,
    Computed,
    Item,
    Literal,
    OperatorCall,
    Optional,
    Parameter,
    Pattern,
    Place,
    Rest,
    Sequence,
    Splat,
    Symbol,
    Term,
    Through,
    Variable,
    renamed,
)
from exirkit.patterns.syntax.value_roots import VALUE_ROOTS, only_a_root, parse_value_root, value_root_kind
from exirkit.patterns.types.bodies import BodyVariable
from exirkit.patterns.types.scalars import OperatorVariable, family_members
from exirkit.patterns.types.tensors import TensorVariable


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
    if isinstance(node, ast.GeneratorExp | ast.SetComp | ast.DictComp):
        return Rejection(
            "a comprehension in a pattern is a list: [aten.exp.default(x) for x in xs]",
            "what holds for each element goes into `where`: `all(rank(x) == 2 for x in xs)`",
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


# From the text of a pattern to terms; whatever is wrong is noted with its place, and parsing goes on


_MACRO_DEPTH = 20


class PatternError(Exception):
    """A term cannot be built; the diagnostic is in the scope."""


class PatternParser:
    """Parses one pattern.

    Args:
        text: The pattern.
        scope: What it can name.
        reads_in_place: An operator that writes to its first argument, `aten.relu_`, stands for the one that returns
            what it writes: the pattern is about what calls mean.
    """

    def __init__(self, text: SourceText, scope: Scope, *, reads_in_place: bool = False) -> None:
        self.text = text
        self.reads_in_place = reads_in_place
        self.scope = scope
        self.named: dict[str, Term] = {}
        self._arguments: list[dict[str, Term]] = []
        self._at: list[Place] = []
        self._kind = "calls"
        # Keys of the bodies around what is being parsed.
        self.scopes: list[str] = []

    def parse(self) -> Pattern | None:
        """Return the pattern, or None when something in it is wrong."""
        before = len(self.scope.found)
        try:
            statements = parse_statements(self.text.value)
        except ExpressionError as error:
            self.scope.complain_of(self.text, "EK210", error)
            return None
        roots: list[Term] | None = None
        is_variadic = False
        for statement in statements:
            if roots is not None:
                self._wrong("nothing may follow `return`", statement)
            elif isinstance(statement, ast.Return):
                roots, is_variadic = self._roots(statement)
            else:
                self._assignment(statement)
        if roots is None:
            self._wrong("a pattern ends in `return`", statements[-1] if statements else None)
        if len(self.scope.found) > before or not roots:
            return None
        return Pattern(tuple(roots), is_variadic, self.named, self._kind)

    def _assignment(self, statement: ast.stmt) -> None:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            hint = "loops belong into `replace`" if isinstance(statement, ast.For) else None
            self._wrong("a pattern has lines `name = ...` and ends in `return ...`", statement, hint=hint)
            return
        target = statement.targets[0]
        names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        if isinstance(names[-1], ast.Starred) and len(names) > 1:
            self._rest_of(names, statement.value)
            return
        if not all(isinstance(name, ast.Name) for name in names):
            self._wrong("only names can be assigned to", target)
            return
        keys = [name.id for name in names if isinstance(name, ast.Name)]
        for key, name in zip(keys, names, strict=True):
            if key in self.named or key in self.scope.variables:
                self._wrong(f"{key!r} is assigned a second time", name)
        try:
            if isinstance(target, ast.Name):
                self.named[keys[0]] = renamed(self.term(statement.value), keys[0])
            else:
                self._unpack(keys, statement.value)
        except PatternError:
            for key in keys:
                self.named.setdefault(key, Anything(place_of(statement)))

    def _rest_of(self, names: Seq[ast.expr], value: ast.expr) -> None:
        """Take `_, *others = call`: all results but the first ones, which nothing uses."""
        *before, last = names
        assert isinstance(last, ast.Starred)
        if not isinstance(last.value, ast.Name) or any(
            not isinstance(one, ast.Name) or one.id != "_" for one in before
        ):
            self._wrong("`_, *others = call` names all results but those that nothing uses", names[0])
            return
        try:
            term = self.term(value)
        except PatternError:
            self.named.setdefault(last.value.id, Anything(place_of(value)))
            return
        if not isinstance(term, Call):
            self._wrong("only the results of a call can be unpacked", value)
            return
        self.named[last.value.id] = Rest(term, len(before), last.value.id, self.place(value))

    def _unpack(self, keys: list[str], value: ast.expr) -> None:
        term = self.term(value)
        if not isinstance(term, Call):
            raise self.fail("only the results of a call can be unpacked", value)
        count = result_count(term.op)
        if count is not None and count != len(keys):
            raise self.fail(f"the call has {count} results, not {len(keys)}", value)
        for index, key in enumerate(keys):
            if key != "_":
                self.named[key] = Item(term, index, key, place_of(value))

    def _roots(self, statement: ast.Return) -> tuple[list[Term], bool]:
        value = statement.value
        parts = list(value.elts) if isinstance(value, ast.Tuple) else [value] if value is not None else []
        if not parts:
            self._wrong("`return` names at least one value", statement)
            return [], False
        kind = value_root_kind(parts[0]) if len(parts) == 1 else None
        if kind is not None:
            return self._value_root(parts[0], kind), False
        if any(isinstance(part, ast.Starred) for part in parts):
            return self._variadic_root(parts)
        roots: list[Term] = []
        for part in parts:
            try:
                root = self.term(part)
            except PatternError:
                continue
            called = root.inner if isinstance(root, Attributed) else root
            if not isinstance(called, Call | Item | Alternatives | OperatorCall | Optional | Through):
                self._wrong("a root must be a call: there is nothing to replace here", part)
            roots.append(root)
        return roots, False

    def _value_root(self, node: ast.expr, kind: str) -> list[Term]:
        self._kind = kind
        try:
            return [parse_value_root(self, node, kind)]
        except PatternError:
            return []

    def _variadic_root(self, parts: Seq[ast.expr]) -> tuple[list[Term], bool]:
        part = parts[0]
        if len(parts) != 1 or not isinstance(part, ast.Starred):
            self._wrong("`return *results,` stands alone", part)
            return [], True
        try:
            if is_about_users(part.value) and isinstance(part.value, ast.ListComp | ast.GeneratorExp):
                return [parse_every_user(self, part.value)], True
            root = self.term(_whole_fan(part.value))
        except PatternError:
            return [], True
        if not isinstance(root, Call | Rest):
            self._wrong("only the results of a call can be returned with `*`", part)
        return [root], True

    # Terms

    def term(self, node: ast.expr, *, kind: Any = None) -> Term:
        """Return the term of an expression.

        Args:
            node: The expression.
            kind: Type that the schema asks for in this place, if it is an argument.

        Raises:
            PatternError: It is none.
        """
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Constant():
                if node.value is Ellipsis:
                    raise self.fail("`...` stands for arguments, at the end of a call", node)
                return Literal(normalised_literal(kind, node.value), place=self.place(node))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=int() | float() as number)):
                signed = -number if isinstance(node.op, ast.USub) else number
                return Literal(normalised_literal(kind, signed), place=self.place(node))
            case ast.List() | ast.Tuple() | ast.ListComp():
                return self._list(node, kind)
            case ast.Call() | ast.Lambda():
                return self._call(node) if isinstance(node, ast.Call) else parse_body(self, node)
            case ast.Subscript():
                return self._item(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.BinOp() | ast.UnaryOp():
                return self._computed(node)
        rejection = no_term(node)
        raise self.fail(rejection.message, node, hint=rejection.hint)

    def term_with(self, node: ast.expr, names: Mapping[str, Term]) -> Term:
        """Return the term of an expression in which further names stand for terms.

        Raises:
            PatternError: It is none.
        """
        self._arguments.append({**(self._arguments[-1] if self._arguments else {}), **names})
        try:
            return self.term(node)
        finally:
            self._arguments.pop()

    def _computed(self, node: ast.expr) -> Term:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return parse_attributed(self, node)
        made = computed_term(node, self.scope, self.text, self.named, self.place(node))
        if isinstance(made, Rejection):
            raise self.fail(made.message, node, code=made.code, hint=made.hint)
        return made

    def _name(self, node: ast.Name) -> Term:
        place, name = self.place(node), node.id
        if name == "_":
            return Anything(place)
        for scope in reversed(self._arguments[-1:]):
            if name in scope:
                return scope[name]
        if name in self.named:
            return self.named[name]
        if name in self.scope.variables:
            return Variable(name, place)
        if name in self.scope.symbols:
            return Symbol(name, place)
        if name == "none":
            return Literal(None, place=place)
        if name in CONSTANTS:
            return Literal(CONSTANTS[name], place=place)
        if name == "none":
            # Types and conditions write it so.
            return Literal(None, place=place)
        known = [*self.scope.variables, *self.named, *self.scope.symbols]
        close = difflib.get_close_matches(name, known, n=1)
        raise self.fail(
            f"{name!r} is not declared",
            node,
            code="EK212",
            hint=f"did you mean {close[0]}?" if close else f"give it a type under `vars`, as in {name}: 'f32 [*S]'",
        )

    def _attribute(self, node: ast.Attribute) -> Term:
        dotted = dotted_name(node)
        if dotted and dotted.startswith("torch.") and dotted.count(".") == 1:
            import torch

            value = getattr(torch, node.attr, None)
            if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
                return Literal(value, place=self.place(node))
        raise self.fail(
            f"{dotted or 'this'} cannot be matched; conditions go into `where`", node,
            hint=f"write a name with a type in `vars` here, and `name == {ast.unparse(node)}` under `where`",
        )  # fmt: skip

    def _list(self, node: ast.List | ast.Tuple | ast.ListComp, kind: Any) -> Term:
        if isinstance(node, ast.ListComp):
            return Sequence((Splat(None, parse_each(self, node), self.place(node)),), self.place(node))
        items: list[Term | Splat] = []
        element = kind.getElementType() if kind is not None and hasattr(kind, "getElementType") else None
        element = element if element is None or not hasattr(element, "getElementType") else element.getElementType()
        for each in node.elts:
            if isinstance(each, ast.Starred):
                items.append(self._splat(each))
            else:
                items.append(self.term(each, kind=element))
        if not is_valid_list(items):
            raise self.fail(
                "a list has at most one comprehension and two `*`, with something between them", node,
                hint="write [a, *rest], [*before, a, *rest], or [*before, *[aten.exp.default(x) for x in xs], *rest]",
            )  # fmt: skip
        return Sequence(tuple(items), self.place(node))

    def _splat(self, node: ast.Starred) -> Splat:
        place = self.place(node)
        if isinstance(node.value, ast.Name) and node.value.id == "_":
            return Splat(None, place=place)
        if isinstance(node.value, ast.ListComp | ast.GeneratorExp):
            return Splat(None, parse_each(self, node.value), place)
        term = self.term(node.value)
        if isinstance(term, Variable | Symbol):
            return Splat(term.name, place=place)
        if isinstance(term, Call | Parameter | Applied):
            return Splat(None, term, place)
        raise self.fail("after `*` stands a variable, or the results of a call", node)

    def _item(self, node: ast.Subscript) -> Term:
        index = node.slice
        if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub):
            raise self.fail("results are counted from 0", index)
        if not (isinstance(index, ast.Constant) and type(index.value) is int):
            raise self.fail("results are chosen by a number: t[0]", index)
        base = self.term(node.value)
        if not isinstance(base, Call):
            raise self.fail("only the results of a call can be chosen from", node)
        count = result_count(base.op)
        if count is not None and not 0 <= index.value < count:
            raise self.fail(f"the call has {count} results", index)
        return Item(base, index.value, None, self.place(node))

    def _call(self, node: ast.Call) -> Term:
        dotted = dotted_name(node.func)
        if dotted is None:
            raise self.fail("an operator is called by its name", node)
        if dotted in _FORMS:
            return _FORMS[dotted](self, node)
        if isinstance(self.scope.variables.get(dotted), OperatorVariable):
            return self._operator_call(node, dotted)
        if isinstance(self.scope.variables.get(dotted), BodyVariable):
            return parse_applied(self, node, dotted)
        macro = self.scope.macro(dotted)
        if macro is not None:
            return self._expanded(node, *macro)
        if dotted in WORDS:
            return self._computed(node)
        try:
            op = self.scope.table.find(dotted)
        except UnknownNameError as error:
            hint = error.hint
            if hint is None and "." not in dotted:
                names = [*_FORMS, *(text.partition("(")[0] for text in self.scope.macros)]
                close = difflib.get_close_matches(dotted, names, n=1)
                hint = f"did you mean {close[0]}?" if close else None
            raise self.fail(error.message, node.func, code="EK213", hint=hint) from None
        return self._operator(node, op, dotted)

    def _operator(self, node: ast.Call, op: Any, dotted: str) -> Term:
        if self.reads_in_place:
            op = functional_variant_of(op) or op
        written = bind_written(op, dotted, node, node.args)
        for message, place, hint in written.wrong:
            self.scope.complain(self.text, "EK214", message, self.place(place), hint)
        arguments: dict[str, Term] = {}
        is_wrong = bool(written.wrong)
        for argument in op._schema.arguments:
            expression = written.given.get(argument.name)
            if expression is not None:
                try:
                    arguments[argument.name] = self.term(expression, kind=argument.type)
                except PatternError:
                    is_wrong = True
            elif not written.is_open and argument.has_default_value():
                arguments[argument.name] = Literal(default_of(argument), is_default=True, place=self.place(node))
        if is_wrong:
            raise PatternError
        return Call(op, arguments, written.is_open, None, self.place(node))

    def _operator_call(self, node: ast.Call, name: str) -> Term:
        rest = None
        arguments: list[Term] = []
        for each in node.args:
            if isinstance(each, ast.Starred):
                if not isinstance(each.value, ast.Name) or each is not node.args[-1]:
                    raise self.fail("`*rest` is a name and stands last", each)
                rest = each.value.id
            else:
                arguments.append(self.term(each))
        if node.keywords or not arguments:
            raise self.fail("an operator variable is called with positional arguments", node)
        return OperatorCall(name, tuple(arguments), rest, None, self.place(node))

    def _alternatives(self, node: ast.Call) -> Term:
        branches: list[tuple[str, Term]] = []
        for index, each in enumerate(node.args):
            branches.append((str(index), self.term(each)))
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.fail("`**` is not part of the language", keyword.value)
            branches.append((str(keyword.arg), self.term(keyword.value)))
        if len(branches) < 2:
            raise self.fail("alt has two branches or more: alt(relu=..., silu=...)", node)
        return Alternatives(tuple(branches), None, self.place(node))

    def _optional(self, node: ast.Call) -> Term:
        inner = self.term(node.args[0]) if len(node.args) == 1 and not node.keywords else None
        if not isinstance(inner, Call):
            raise self.fail("opt has one call: opt(aten.add.Tensor(x, m))", node)
        return Optional(inner, None, self.place(node))

    def _through(self, node: ast.Call) -> Term:
        if len(node.args) != 2 or node.keywords:
            raise self.fail("thru has a term and a list of operators: thru(x, [aten.clone.default])", node)
        listed = node.args[1].elts if isinstance(node.args[1], ast.List | ast.Tuple) else [node.args[1]]
        ops: list[Any] = []
        for each in listed:
            dotted = dotted_name(each)
            if dotted is None:
                raise self.fail("thru names operators", each)
            ops += self.family(each, dotted)
        return Through(self.term(node.args[0]), tuple(ops), self.place(node))

    def family(self, node: ast.expr, dotted: str) -> list[Any]:
        """Return an operator, or the operators of a family.

        Raises:
            PatternError: There is no such operator.
        """
        if dotted in FAMILIES:
            return list(family_members((dotted,)))
        try:
            return [self.scope.table.find(dotted)]
        except UnknownNameError as error:
            raise self.fail(error.message, node, code="EK213", hint=error.hint) from None

    # Macros

    def _expanded(self, node: ast.Call, parameters: list[str], text: str) -> Term:
        if len(self._at) >= _MACRO_DEPTH:
            raise self.fail("macros call each other without end", node)
        if node.keywords or len(node.args) != len(parameters):
            raise self.fail(f"this macro takes {len(parameters)} arguments: {', '.join(parameters)}", node)
        given = {key: self.term(value) for key, value in zip(parameters, node.args, strict=True)}
        place = self.place(node)
        try:
            expression = parse_expression(text)
        except ExpressionError as error:
            raise self.fail(f"the macro is wrong: {error.message}", node) from None
        self._arguments.append(given)
        self._at.append(place)
        try:
            return self.term(expression)
        finally:
            self._arguments.pop()
            self._at.pop()

    # Diagnostics

    def place(self, node: ast.AST | None) -> Place:
        """Return where a piece of syntax stands."""
        # What is wrong inside a macro is shown where the macro is used.
        return self._at[0] if self._at else place_of(node)

    def _wrong(self, message: str, node: ast.AST | None, *, code: str = "EK211", hint: str | None = None) -> None:
        self.scope.complain(self.text, code, message, self.place(node), hint)

    def fail(self, message: str, node: ast.AST | None, *, code: str = "EK211", hint: str | None = None) -> PatternError:
        """Note an error at a piece of syntax; return what is to be raised."""
        self._wrong(message, node, code=code, hint=hint)
        return PatternError()


_FORMS: dict[str, Callable[[PatternParser, ast.Call], Term]] = {
    "alt": PatternParser._alternatives,
    "opt": PatternParser._optional,
    "thru": PatternParser._through,
    "chain": parse_chain,
    **dict.fromkeys(VALUE_ROOTS, only_a_root),
}
"""Calls that are not of operators."""


def _whole_fan(node: ast.expr) -> ast.expr:
    """Return `p` for `each(u in users(p))`: all results of a call, however many."""
    match node:
        case ast.Call(
            func=ast.Name(id="each"),
            args=[
                ast.Compare(ops=[ast.In()], comparators=[ast.Call(func=ast.Name(id="users"), args=[ast.Name() as of])])
            ],
        ):
            return of
    return node

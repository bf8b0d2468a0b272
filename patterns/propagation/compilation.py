"""What all declarations of analyses share: names of operators looked up, expressions and programs compiled, draws."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.ir import Diagnostic, SourceText, YamlPath, YamlSource, did_you_mean
from exirkit.patterns.books.model import OperatorDefinition
from exirkit.patterns.functions.words import WORDS
from exirkit.patterns.matching.compiled_rule import variables_of
from exirkit.patterns.operators.defined import define_operator
from exirkit.patterns.operators.table import FAMILIES, OperatorTable, UnknownNameError
from exirkit.patterns.syntax.expressions import Compiled, ExpressionCompiler, ExpressionError, parse_expression, truth
from exirkit.patterns.syntax.programs import Program, ProgramCalls, Scope, compile_program
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.types.scalars import family_members

from .model import Draw


@dataclass(frozen=True)
class Expression:
    """A compiled expression.

    Attributes:
        text: As it was written, with its place.
        compute: Evaluates it over names.
    """

    text: SourceText
    compute: Compiled

    def value(self, names: Mapping[str, Any]) -> Any:
        """Return its value.

        Raises:
            ExpressionError: It has none for these names.
        """
        return self.compute(names)

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Return whether it is true as a condition; one that sizes leave open, or that has no value, is not."""
        try:
            return truth(self.compute(names)) is True
        except (ExpressionError, TypeError):
            return False


@dataclass(frozen=True)
class DrawnCall:
    """How trials make calls of an operator.

    Attributes:
        variables: Types by name.
        call: Program that makes the call.
        gen: Condition on the values.
    """

    variables: Mapping[str, Any]
    call: Program
    gen: str | None


class DeclarationCompiler:
    """Compiles the parts of a declaration, and notes what is wrong with them.

    Args:
        source: The file and its places.
        found: Where diagnostics go.
    """

    def __init__(self, source: YamlSource, found: list[Diagnostic]) -> None:
        self.source = source
        self.found = found
        self.table = OperatorTable()

    def define_operators(self, definitions: Mapping[str, OperatorDefinition]) -> None:
        """Make operators of the file known."""
        for name, definition in definitions.items():
            text = self.source.text(("ops", name, "define"), definition.define)
            schema = self.source.text(("ops", name, "schema"), definition.schema_)
            made = define_operator(name, definition, text, schema, self.scope())
            if made is not None:
                self.table.defined[name] = made

    def scope(self) -> Scope:
        """Return where names are looked up."""
        return Scope(self.table, found=self.found)

    def complain(
        self, path: YamlPath, code: str, message: str, hint: str | None = None, *, is_key: bool = False
    ) -> None:
        """Note a diagnostic."""
        text = self.source.key(path) if is_key else self.source.text(path)
        length = len(text.value.split("\n")[0])
        self.found.append(text.diagnostic(code, message, length=max(1, length), hint=hint))

    def in_order(self) -> None:
        """Sort what was found by place."""
        order = {id(one): at for at, one in enumerate(self.found)}
        self.found.sort(key=lambda one: (one.location.line or 0, one.location.column or 0, order[id(one)]))

    def expression(self, path: YamlPath, written: str, names: Collection[str]) -> Expression | None:
        """Compile an expression that asks nothing about the graph: trials have none."""
        text = self.source.text(path, written)
        scope = self.scope()
        calls = ProgramCalls(scope, allows_operators=False)
        compiler = ExpressionCompiler(calls)
        try:
            compiled = compiler.compile(parse_expression(written))
        except ExpressionError as error:
            scope.complain_of(text, "EK220", error)
            return None
        for name in sorted(calls.uses_words):
            if WORDS[name].needs_facts:
                message = f"{name} asks about the graph, and a row is tried without one"
                self.found.append(text.diagnostic("EK291", message))
                return None
        for name, node in compiler.free.items():
            if name not in names:
                hint = did_you_mean(name, names) or f"it may name {', '.join(sorted(names))}"
                scope.complain(text, "EK220", f"{name!r} has no meaning here", node, hint)
                return None
        return Expression(text, compiled)

    def program(self, path: YamlPath, written: str, names: Collection[str]) -> Program | None:
        """Compile a program over names; None if something is wrong."""
        text = self.source.text(path, written)
        scope = self.scope()
        program = compile_program(text, scope)
        if program is None:
            return None
        for name in sorted(program.uses - set(names)):
            hint = did_you_mean(name, names) or f"it may name {', '.join(sorted(names))}"
            scope.complain(text, "EK221", f"{name!r} has no meaning here", None, hint)
            return None
        if program.opaque:
            scope.complain(text, "EK291", f"{program.opaque[0]} is registered code, which trials cannot judge", None)
            return None
        return program

    def operators(self, path: YamlPath, ops: Sequence[str], families: Sequence[str]) -> tuple[Operator, ...] | None:
        """Return the operators that a row names; None if one of them is not known."""
        found: dict[Operator, None] = {}
        before = len(self.found)
        for at, name in enumerate(ops):
            place = (*path, "ops", at) if (*path, "ops", at) in self.source.places else (*path, "ops")
            try:
                found[self.table.find(name)] = None
            except UnknownNameError as error:
                self.complain(place, "EK291", error.message, error.hint)
        for at, name in enumerate(families):
            place = (*path, "family", at) if (*path, "family", at) in self.source.places else (*path, "family")
            if name not in FAMILIES:
                hint = did_you_mean(name, FAMILIES) or f"families are {', '.join(FAMILIES)}"
                self.complain(place, "EK291", f"{name!r} is not a family of operators", hint)
            else:
                found.update(dict.fromkeys(family_members((name,))))
        return None if len(self.found) > before else tuple(found)

    def draw(self, name: str, draw: Draw) -> tuple[Operator, DrawnCall] | None:
        """Return an operator and how its calls are drawn; None if something is wrong."""
        path = ("draw", name)
        try:
            op = self.table.find(name)
        except UnknownNameError as error:
            self.complain(path, "EK291", error.message, error.hint, is_key=True)
            return None
        scope = self.scope()
        texts = {key: self.source.text((*path, "vars", key), written) for key, written in draw.vars.items()}
        before = len(scope.found)
        variables, symbols = variables_of(draw.vars, texts, self.source.text(path), scope)
        if len(scope.found) > before:
            return None
        program = self.program((*path, "call"), draw.call, {*variables, *symbols})
        if program is None:
            return None
        if program.operators[-1:] != (op,):
            self.complain((*path, "call"), "EK291", f"this does not end in a call of {name}")
            return None
        return op, DrawnCall(variables, program, draw.gen)


def holds_tensors(argument: Any) -> bool:
    """Whether an argument of a schema is a tensor or a list of tensors."""
    return "Tensor" in str(argument.type)


def is_covered_kind(value: Any) -> bool:
    """Whether a recorded value is a strided tensor: others have no values."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def is_plain(value: Any) -> bool:
    """Whether a field of an attribute is plain data: numbers, text, dtypes, none, and lists of them."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | torch.dtype)

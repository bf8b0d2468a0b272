"""Guards, `let` and replacements: expressions in which builtins, operators and macros can be called."""

from __future__ import annotations

import ast
import difflib
import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from exirkit.ir import Diagnostic, SourceText, value_of
from exirkit.patterns.functions import graph, tensors
from exirkit.patterns.functions.registered import builder_named, builder_names, run_builder, word_named
from exirkit.patterns.functions.words import WORDS, Word, tensor_facts
from exirkit.patterns.operators.arguments import bind_written, normaliser
from exirkit.patterns.operators.table import CONSTANTS, OperatorTable, UnknownNameError, dotted_name
from exirkit.patterns.syntax.attributes import Attribute, compile_field, compile_no, compile_written
from exirkit.patterns.syntax.bodies import compile_applied, compile_body
from exirkit.patterns.syntax.chains import compile_along, compile_links
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import (
    CallCompiler,
    Compiled,
    ExpressionCompiler,
    ExpressionError,
    Names,
    OwnNames,
    parse_expression,
    parse_statements,
)
from exirkit.patterns.syntax.loops import Loop, LoopCompiler, Step
from exirkit.patterns.syntax.replacement_words import BUILDER, REPLACEMENT_WORDS
from exirkit.patterns.syntax.table_calls import compile_row_call, compile_table
from exirkit.patterns.syntax.terms import Operator, Place
from exirkit.patterns.types.bodies import BodyVariable
from exirkit.patterns.types.scalars import OperatorVariable

# What the names in a rule can stand for, and the list that diagnostics about them go to

MACROS: dict[str, str] = {
    "addc(t, c)": "alt(scalar=aten.add.Scalar(t, c), tensor=aten.add.Tensor(t, c))",
    "subc(t, c)": "alt(scalar=aten.sub.Scalar(t, c), tensor=aten.sub.Tensor(t, c))",
    "mulc(t, c)": "alt(scalar=aten.mul.Scalar(t, c), tensor=aten.mul.Tensor(t, c))",
    "divc(t, c)": "alt(scalar=aten.div.Scalar(t, c), tensor=aten.div.Tensor(t, c))",
    "powc(t, c)": "alt(scalar=aten.pow.Tensor_Scalar(t, c), tensor=aten.pow.Tensor_Tensor(t, c))",
    "matmul(a, b)": "alt(matmul=aten.matmul.default(a, b), mm=aten.mm.default(a, b), bmm=aten.bmm.default(a, b))",
    "transpose_last2(t)": (
        "alt(transpose=aten.transpose.int(t, -2, -1), swapped=aten.transpose.int(t, -1, -2), mT=aten.mT.default(t),"
        " t=aten.t.default(t), permute2=aten.permute.default(t, [1, 0]), permute3=aten.permute.default(t, [0, 2, 1]),"
        " permute4=aten.permute.default(t, [0, 1, 3, 2]), transpose_copy=aten.transpose_copy.int(t, -2, -1),"
        " copy2=aten.permute_copy.default(t, [1, 0]), copy3=aten.permute_copy.default(t, [0, 2, 1]),"
        " copy4=aten.permute_copy.default(t, [0, 1, 3, 2]))"
    ),
}
"""Families that every book knows: overloads, as a number becomes a constant tensor in Edge; ways to say one thing."""


@dataclass
class Scope:
    """What a rule can name.

    Attributes:
        table: Operators.
        variables: Types of its variables, by name.
        symbols: Names of sizes that the types bind, `N` and the `B` of `*B`.
        macros: Texts by signature `addc(t, c)`.
        found: Diagnostics so far.
        tables: Tables of the book by name.
        attributes: Attributes that the book declares, by name.
    """

    table: OperatorTable
    variables: Mapping[str, Any] = field(default_factory=dict)
    symbols: frozenset[str] = frozenset()
    macros: Mapping[str, str] = field(default_factory=lambda: dict(MACROS))
    found: list[Diagnostic] = field(default_factory=list)
    tables: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def macro(self, name: str) -> tuple[list[str], str] | None:
        """Return the parameters and the text of a macro, or None if there is none of that name."""
        for signature, text in self.macros.items():
            head, _, rest = signature.partition("(")
            if head.strip() == name:
                return [each.strip() for each in rest.rstrip(") ").split(",") if each.strip()], text
        return None

    def complain(
        self,
        text: SourceText,
        code: str,
        message: str,
        place: Place | ast.AST | None,
        hint: str | None = None,
        expected: str | None = None,
    ) -> None:
        """Note an error at a place of a text."""
        at = place if isinstance(place, Place) else place_of(place)
        self.found.append(
            text.diagnostic(
                code, message, line=at.line, offset=at.offset, length=at.length, hint=hint, expected=expected
            )
        )

    def complain_of(self, text: SourceText, code: str, error: ExpressionError) -> None:
        """Note an error that an expression raised."""
        self.complain(text, code, error.message, error.node, error.hint)


def place_of(node: ast.AST | None) -> Place:
    """Return where a piece of syntax stands."""
    line = getattr(node, "lineno", 1)
    offset = getattr(node, "col_offset", 0)
    end_line, end = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", offset + 1)
    return Place(line, offset, max(1, end - offset) if end_line == line else 1)


# These three register words.
_REGISTERED = (graph, tensors)


@dataclass
class ProgramCalls(CallCompiler):
    """What can be called and looked up in guards, `let` and replacements.

    Attributes:
        scope: Names of the rule.
        allows_operators: Operators may be called; otherwise only words.
        operators: Those that were called so far.
        writes: Attributes that calls were given so far.
    """

    scope: Scope
    allows_operators: bool
    operators: list[Operator] = field(default_factory=list)
    uses_words: set[str] = field(default_factory=set)
    uses_builders: set[str] = field(default_factory=set)
    uses_tables: set[str] = field(default_factory=set)
    writes: list[str] = field(default_factory=list)

    @property
    def opaque(self) -> tuple[str, ...]:
        """Registered predicates and builders that were called."""
        words = {name for name in self.uses_words if WORDS[name].is_opaque}
        return tuple(sorted(words | self.uses_builders))

    def name(self, node: ast.Name) -> Compiled | None:
        """Compile the names of dtypes and formats."""
        if node.id == "none" and "none" not in self.scope.variables:
            return lambda names: None
        if node.id in self.scope.tables and node.id not in self.scope.variables:
            return compile_table(node.id, self)
        if node.id in self.scope.variables or node.id not in CONSTANTS:
            return None
        value = CONSTANTS[node.id]
        return lambda names: value

    def attribute(self, node: ast.Attribute, compiler: ExpressionCompiler) -> Compiled:
        """Compile `x.dtype`, `x.shape`, `y.alt`, `iinfo(x).min`, `torch.float32` ..."""
        dotted = dotted_name(node)
        if dotted is not None and dotted.startswith("torch.") and "torch" not in self.scope.variables:
            value = getattr(torch, node.attr, None) if dotted.count(".") == 1 else None
            if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
                return lambda names: value
            raise ExpressionError(f"{dotted} is not part of the language", node)
        field_of = compile_field(node, compiler, self)
        if field_of is not None:
            return field_of
        read = _ATTRIBUTES.get(node.attr)
        if read is None:
            close = difflib.get_close_matches(node.attr, list(_ATTRIBUTES), n=1)
            hint = f"did you mean .{close[0]}?" if close else f"there are {', '.join(sorted(_ATTRIBUTES))}"
            raise ExpressionError(f"there is no attribute {node.attr!r}", node, hint)
        if node.attr == "alt" and isinstance(node.value, ast.Name):
            key = f"{node.value.id}.alt"
            compiler.free.setdefault(key, node.value)
            return lambda names: names[key]
        base = compiler.compile(node.value)

        def look_up(names: Names) -> Any:
            try:
                return read(base(names))
            except (AttributeError, TypeError, ValueError) as error:
                raise ExpressionError(str(error), node) from error

        return look_up

    def body(self, node: ast.Lambda, compiler: ExpressionCompiler) -> Compiled:
        """Compile `lambda x, *rest: ...`."""
        return compile_body(node, self, compiler)

    def attributed(self, node: ast.BinOp, compiler: ExpressionCompiler) -> Compiled:
        """Compile `call @ attribute(...)`."""
        return compile_written(node, compiler, self)

    def call(self, node: ast.Call, compiler: ExpressionCompiler) -> Compiled:
        """Compile a call of a word, of an operator or of an operator variable."""
        dotted = dotted_name(node.func)
        if dotted is None:
            return compile_row_call(node, self, compiler)
        if dotted in _TERM_WORDS:
            return _TERM_WORDS[dotted](node, compiler, self)
        if dotted == "target.has":
            dotted = "target_has"
        if dotted in ("all", "any", "sum", "max", "min", "prod") and len(node.args) == 1:
            return self._word(node, WORDS[dotted], compiler)
        variable = self.scope.variables.get(dotted)
        if isinstance(variable, OperatorVariable | BodyVariable):
            return self._variable(node, dotted, compiler)
        if dotted in REPLACEMENT_WORDS and self.allows_operators:
            return REPLACEMENT_WORDS[dotted](node, self, compiler)
        if dotted.startswith("build."):
            return self._builder(node, dotted.removeprefix("build."), compiler)
        found = None if "." in dotted else word_named(dotted)
        if found is not None:
            self.uses_words.add(dotted)
            return self._word(node, found, compiler)
        macro = self._macro(node, dotted, compiler)
        if macro is not None:
            return macro
        return self._operator(node, dotted, compiler)

    def _builder(self, node: ast.Call, name: str, compiler: ExpressionCompiler) -> Compiled:
        if not self.allows_operators:
            raise ExpressionError("builders belong into `replace`", node)
        found = builder_named(name)
        if found is None:
            close = difflib.get_close_matches(name, builder_names(), n=1)
            hint = f"did you mean build.{close[0]}?" if close else "register a function with @builder(...)"
            raise ExpressionError(f"no builder {name!r} is registered", node.func, hint)
        self.uses_builders.add(f"build.{name}")
        positional, named = compiler.arguments(node)

        def build(names: Names) -> Any:
            kwargs = {key: part(names) for key, part in named.items()}
            return run_builder(found, names[BUILDER], names.get(FACTS), positional(names), kwargs)

        return build

    def _word(self, node: ast.Call, found: Word, compiler: ExpressionCompiler) -> Compiled:
        positional, named = compiler.arguments(node)
        is_question = found.of_tensor is not None and len(node.args) == 1 and not node.keywords
        if not is_question and not any(isinstance(each, ast.Starred) for each in node.args):
            _check_arity(found, len(node.args), set(named), node)
        compute, needs_facts, of_tensor = found.compute, found.needs_facts, found.of_tensor

        def evaluate(names: Names) -> Any:
            args = [names[FACTS], *positional(names)] if needs_facts else positional(names)
            try:
                if of_tensor is not None and len(args) == 1 and isinstance(value_of(args[0]), torch.Tensor):
                    return of_tensor(names[FACTS], args[0])
                return compute(*args, **{key: part(names) for key, part in named.items()})
            except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError) as error:
                raise ExpressionError(f"{found.name}: {error}".splitlines()[0], node) from error

        return evaluate

    def _operator(self, node: ast.Call, dotted: str, compiler: ExpressionCompiler) -> Compiled:
        if not self.allows_operators:
            close = difflib.get_close_matches(dotted, list(WORDS), n=1)
            hint = f"did you mean {close[0]}?" if close else "operators belong into `match` and `replace`"
            raise ExpressionError(f"there is no word {dotted!r}", node.func, hint)
        try:
            op = self.scope.table.find(dotted)
        except UnknownNameError as error:
            close = difflib.get_close_matches(dotted, list(WORDS), n=1) if "." not in dotted else []
            meant = error.hint or (f"did you mean {close[0]}?" if close else None)
            raise ExpressionError(error.message, node.func, meant) from None
        return self.operator_call(node, op, dotted, compiler)

    def operator_call(self, node: ast.Call, op: Operator, dotted: str, compiler: ExpressionCompiler) -> Compiled:
        """Compile a call of a known operator.

        Raises:
            ExpressionError: The arguments are not those of its schema.
        """
        written = bind_written(op, dotted, node, node.args)
        if written.is_open:
            raise ExpressionError("`...` has no meaning in a replacement", node)
        for message, place, advice in written.wrong:
            raise ExpressionError(message, place, advice)
        self.operators.append(op)
        kinds = {argument.name: argument.type for argument in op._schema.arguments}
        given = [(key, normaliser(kinds[key]), compiler.compile(value)) for key, value in written.given.items()]
        positional = [argument.name for argument in op._schema.arguments if not argument.kwarg_only]
        # As many leading arguments by position as are given without a gap, the rest by name: as torch prints calls.
        leading = list(itertools.takewhile(written.given.__contains__, positional))

        def build(names: Names) -> Any:
            values = {}
            for key, normalise, part in given:
                value = part(names)
                values[key] = value if normalise is None else normalise(value)
            args = tuple(values.pop(key) for key in leading)
            try:
                return names[BUILDER].call(op, args, values)
            except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError) as error:
                text = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise ExpressionError(f"{dotted}: {text}", node) from error

        return build

    def _variable(self, node: ast.Call, name: str, compiler: ExpressionCompiler) -> Compiled:
        if isinstance(self.scope.variables[name], BodyVariable):
            return compile_applied(node, name, self, compiler)
        return self._operator_variable(node, name, compiler)

    def _operator_variable(self, node: ast.Call, name: str, compiler: ExpressionCompiler) -> Compiled:
        if not self.allows_operators:
            raise ExpressionError("operators belong into `match` and `replace`", node)
        compiler.free.setdefault(name, ast.Name(name))
        positional, _ = compiler.arguments(node)

        def build(names: Names) -> Any:
            return names[BUILDER].call(names[name], tuple(positional(names)), {})

        return build

    def _macro(self, node: ast.Call, name: str, compiler: ExpressionCompiler) -> Compiled | None:
        """Compile a macro of the book that is an expression; patterns with `alt` have no value."""
        macro = self.scope.macro(name)
        if macro is None:
            return None
        keys, text = macro
        if len(keys) != len(node.args) or node.keywords:
            raise ExpressionError(f"this macro takes {len(keys)} arguments: {', '.join(keys)}", node)
        given = dict(zip(keys, node.args, strict=True))
        return compiler.compile(_Substitution(given).visit(parse_expression(text)))


_TERM_WORDS: dict[str, Callable[[ast.Call, ExpressionCompiler, ProgramCalls], Compiled]] = {
    "along": compile_along,
    "links": compile_links,
    "no": compile_no,
}
"""Words that speak of a named term of the pattern and not of its value."""


class _Substitution(ast.NodeTransformer):
    """Substitutes the arguments of a macro for its parameters."""

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a parameter."""
        return self.given.get(node.id, node)


def _check_arity(found: Word, count: int, named: set[str], node: ast.Call) -> None:
    try:
        signature = inspect.signature(found.compute)
    except (TypeError, ValueError):
        return
    given = [None] * (count + found.needs_facts)
    try:
        signature.bind(*given, **dict.fromkeys(named))
    except TypeError as error:
        raise ExpressionError(f"{found.name}: {error}", node) from None


_ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "dtype": lambda x: tensor_facts(x).dtype,
    "shape": lambda x: list(tensor_facts(x).shape),
    "ndim": lambda x: tensor_facts(x).dim(),
    "rank": lambda x: tensor_facts(x).dim(),
    "alt": lambda x: x.alt,
    "min": lambda x: x.min,
    "max": lambda x: x.max,
    "bits": lambda x: x.bits,
    "eps": lambda x: x.eps,
    "tiny": lambda x: x.tiny,
    "lo": lambda x: x.lo,
    "hi": lambda x: x.hi,
    "nan": lambda x: x.nan,
    "scale": lambda x: x.scale,
    "zero_point": lambda x: x.zero_point,
    "quant_min": lambda x: x.quant_min,
    "quant_max": lambda x: x.quant_max,
    "ints": lambda x: x.ints,
    "axis": lambda x: x.axis,
}


# Compiles guards, `let` and replacements: expressions in which the words of the language can be called


class Builder(Protocol):
    """A meaning for calls of operators."""

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        ...


@dataclass(frozen=True)
class Program:
    """A compiled program.

    Attributes:
        steps: Names to assign, and how to compute the value.
        results: How to compute the results; `True` marks one that stands for several.
        uses: Names that it needs.
        operators: Operators that it calls.
        assigns: Names that it gives.
        opaque: Registered predicates and builders that it uses.
        loops: Its loops.
        writes: Attributes that it gives to calls.
    """

    steps: tuple[Step, ...]
    results: tuple[tuple[bool, Compiled], ...]
    uses: frozenset[str]
    operators: tuple[Operator, ...] = ()
    assigns: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()
    loops: tuple[Loop, ...] = ()
    writes: tuple[str, ...] = ()

    def run(self, names: Names, builder: Builder | None = None) -> list[Any]:
        """Compute the results.

        Raises:
            ExpressionError: Something cannot be computed.
        """
        inner = self._assign(names, builder)
        results: list[Any] = []
        for is_splat, compute in self.results:
            value = compute(inner)
            results.extend(value) if is_splat else results.append(value)
        return results

    def assigned(self, names: Names, builder: Builder | None = None) -> dict[str, Any]:
        """Return the values of the names that the program assigns."""
        return self._assign(names, builder).own

    def _assign(self, names: Names, builder: Builder | None) -> OwnNames:
        inner = OwnNames(names)
        if builder is not None:
            inner.own[BUILDER] = builder
        for keys, compute in self.steps:
            value = compute(inner)
            values = [value] if len(keys) == 1 else list(value)
            if len(values) != len(keys):
                raise ExpressionError(f"{len(values)} values for the names {', '.join(keys)}")
            inner.own.update(zip(keys, values, strict=True))
        return inner


def compile_guard(text: SourceText, scope: Scope) -> tuple[Compiled, frozenset[str], tuple[str, ...]] | None:
    """Compile a condition.

    Returns:
        The closure, the names it needs, and the registered predicates it uses; or None, and the diagnostic is in the
        scope.
    """
    calls = ProgramCalls(scope, allows_operators=False)
    compiler = ExpressionCompiler(calls)
    try:
        compiled = compiler.compile(parse_expression(text.value))
    except ExpressionError as error:
        scope.complain_of(text, "EK220", error)
        return None
    except RecursionError:
        scope.complain(text, "EK220", "this condition nests too deeply", None)
        return None
    return compiled, frozenset(compiler.free), calls.opaque


def compile_program(text: SourceText, scope: Scope, *, is_let: bool = False) -> Program | None:
    """Compile a replacement, a definition, or a `let`, which assigns only and calls no operators.

    Returns:
        The program; or None, and the diagnostics are in the scope.
    """
    calls = ProgramCalls(scope, allows_operators=not is_let)
    compiler = ExpressionCompiler(calls)
    loops = LoopCompiler(compiler, lambda line: _step(line, compiler, is_let))
    steps: list[Step] = []
    results: list[tuple[bool, Compiled]] = []
    assigned: list[str] = []
    uses: set[str] = set()
    before = len(scope.found)
    try:
        for statement in _statements(text.value, is_let):
            if isinstance(statement, ast.Return) and not is_let:
                results = _results(statement, compiler)
            elif isinstance(statement, ast.For) and not is_let:
                steps.append(loops.compile(statement, {*assigned, *scope.variables, *scope.symbols}))
            else:
                steps.append(_step(statement, compiler, is_let))
            loops.check_used(compiler.free)
            uses |= {name for name in compiler.free if name.partition(".")[0] not in assigned}
            compiler.free.clear()
            if steps and not results:
                assigned += steps[-1][0]
                loops.inner -= set(assigned)
    except ExpressionError as error:
        scope.complain_of(text, "EK221", error)
    except RecursionError:
        scope.complain(text, "EK221", "this program nests too deeply", None)
    if len(scope.found) > before:
        return None
    return Program(
        tuple(steps), tuple(results), frozenset(uses), tuple(calls.operators), tuple(assigned), calls.opaque,
        tuple(loops.loops), tuple(calls.writes),
    )  # fmt: skip


def _statements(text: str, is_let: bool) -> list[ast.stmt]:
    """Return the lines of a program, of which the last one and no other is a `return`, or of a `let`."""
    statements = parse_statements(text)
    for statement in statements[:-1]:
        if isinstance(statement, ast.Return):
            raise ExpressionError("nothing may follow `return`", statement)
    if not is_let and not (statements and isinstance(statements[-1], ast.Return)):
        raise ExpressionError("a program ends in `return`", statements[-1] if statements else None)
    return statements


def _results(statement: ast.Return, compiler: ExpressionCompiler) -> list[tuple[bool, Compiled]]:
    value = statement.value
    parts = list(value.elts) if isinstance(value, ast.Tuple) else [value]
    made: list[tuple[bool, Compiled]] = []
    for part in parts:
        if part is None:
            raise ExpressionError("`return` names at least one value", statement)
        is_splat = isinstance(part, ast.Starred)
        made.append((is_splat, compiler.compile(part.value if isinstance(part, ast.Starred) else part)))
    return made


def _step(statement: ast.stmt, compiler: ExpressionCompiler, is_let: bool) -> Step:
    if isinstance(statement, ast.For):
        raise ExpressionError(
            "loops belong into `replace`", statement, "a comprehension makes a list: `[n * 2 for n in shape(x)]`"
        )
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        what = "`let` has lines `name = ...`" if is_let else "a program has lines `name = ...` and ends in `return ...`"
        raise ExpressionError(what, statement)
    target = statement.targets[0]
    names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    keys = tuple(name.id for name in names if isinstance(name, ast.Name))
    if len(keys) != len(names):
        raise ExpressionError("only names can be assigned to", target)
    return keys, compiler.compile(statement.value)

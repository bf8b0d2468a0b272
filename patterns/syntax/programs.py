"""Guards, `let` and replacements: expressions in which builtins, operators and macros can be called."""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from exirkit.ir import SourceText
from exirkit.patterns.functions import graph, tensors
from exirkit.patterns.functions.registered import builder_named, builder_names, run_builder, word_named
from exirkit.patterns.functions.words import WORDS, Word, tensor_facts
from exirkit.patterns.operators.arguments import bind_written, normalised_literal
from exirkit.patterns.operators.table import CONSTANTS, UnknownNameError, dotted_name
from exirkit.patterns.syntax.expressions import (
    CallCompiler,
    Compiled,
    ExpressionCompiler,
    ExpressionError,
    Names,
    parse_expression,
    parse_statements,
)
from exirkit.patterns.syntax.scope import Scope
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.types.scalars import OperatorVariable

# These three register words.
_REGISTERED = (graph, tensors)

FACTS = "$facts"
BUILDER = "$builder"


@dataclass
class ProgramCalls(CallCompiler):
    """What can be called and looked up in guards, `let` and replacements.

    Attributes:
        scope: Names of the rule.
        allows_operators: Operators may be called; otherwise only words.
        operators: Those that were called so far.
    """

    scope: Scope
    allows_operators: bool
    operators: list[Operator] = field(default_factory=list)
    uses_words: set[str] = field(default_factory=set)
    uses_builders: set[str] = field(default_factory=set)

    @property
    def opaque(self) -> tuple[str, ...]:
        """Registered predicates and builders that were called."""
        words = {name for name in self.uses_words if WORDS[name].is_opaque}
        return tuple(sorted(words | self.uses_builders))

    def name(self, node: ast.Name) -> Compiled | None:
        """Compile the names of dtypes and formats."""
        if node.id == "none" and "none" not in self.scope.variables:
            return lambda names: None
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

    def call(self, node: ast.Call, compiler: ExpressionCompiler) -> Compiled:
        """Compile a call of a word, of an operator or of an operator variable."""
        dotted = dotted_name(node.func)
        if dotted is None:
            raise ExpressionError("this cannot be called", node)
        if dotted == "target.has":
            dotted = "target_has"
        if dotted in ("all", "any", "sum", "max", "min", "prod") and len(node.args) == 1:
            return self._word(node, WORDS[dotted], compiler)
        if "." not in dotted and isinstance(self.scope.variables.get(dotted), OperatorVariable):
            return self._operator_variable(node, dotted, compiler)
        if dotted.startswith("build."):
            return self._builder(node, dotted.removeprefix("build."), compiler)
        found = word_named(dotted)
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
        parts = [compiler.compile(each) for each in node.args]
        if any(keyword.arg is None for keyword in node.keywords):
            raise ExpressionError("`**` is not part of the language", node)
        named = {str(keyword.arg): compiler.compile(keyword.value) for keyword in node.keywords}

        def build(names: Names) -> Any:
            args, kwargs = [part(names) for part in parts], {key: part(names) for key, part in named.items()}
            return run_builder(found, names[BUILDER], names.get(FACTS), args, kwargs)

        return build

    def _word(self, node: ast.Call, found: Word, compiler: ExpressionCompiler) -> Compiled:
        parts = [
            (isinstance(each, ast.Starred), compiler.compile(each.value if isinstance(each, ast.Starred) else each))
            for each in node.args
        ]
        if any(keyword.arg is None for keyword in node.keywords):
            raise ExpressionError("`**` is not part of the language", node)
        named = {str(keyword.arg): compiler.compile(keyword.value) for keyword in node.keywords}
        if not any(is_splat for is_splat, _ in parts):
            _check_arity(found, len(parts), set(named), node)
        compute, needs_facts = found.compute, found.needs_facts

        def evaluate(names: Names) -> Any:
            args: list[Any] = [names[FACTS]] if needs_facts else []
            for is_splat, part in parts:
                args.extend(part(names)) if is_splat else args.append(part(names))
            try:
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
        written = bind_written(op, dotted, node, node.args)
        if written.is_open:
            raise ExpressionError("`...` has no meaning in a replacement", node)
        for message, place, advice in written.wrong:
            raise ExpressionError(message, place, advice)
        self.operators.append(op)
        kinds = {argument.name: argument.type for argument in op._schema.arguments}
        given = {key: (kinds[key], compiler.compile(value)) for key, value in written.given.items()}
        positional = [argument.name for argument in op._schema.arguments if not argument.kwarg_only]
        # As many leading arguments by position as are given without a gap, the rest by name: as torch prints calls.
        leading = list(given)[:0]
        for name in positional:
            if name not in given:
                break
            leading.append(name)

        def build(names: Names) -> Any:
            values = {key: normalised_literal(kind, part(names)) for key, (kind, part) in given.items()}
            args = tuple(values.pop(key) for key in leading)
            try:
                return names[BUILDER].call(op, args, values)
            except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError) as error:
                text = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise ExpressionError(f"{dotted}: {text}", node) from error

        return build

    def _operator_variable(self, node: ast.Call, name: str, compiler: ExpressionCompiler) -> Compiled:
        if not self.allows_operators:
            raise ExpressionError("operators belong into `match` and `replace`", node)
        compiler.free.setdefault(name, ast.Name(name))
        parts = [
            (isinstance(each, ast.Starred), compiler.compile(each.value if isinstance(each, ast.Starred) else each))
            for each in node.args
        ]

        def build(names: Names) -> Any:
            args: list[Any] = []
            for is_splat, part in parts:
                args.extend(part(names)) if is_splat else args.append(part(names))
            return names[BUILDER].call(names[name], tuple(args), {})

        return build

    def _macro(self, node: ast.Call, name: str, compiler: ExpressionCompiler) -> Compiled | None:
        """Compile a macro of the book that is an expression; patterns with `alt` have no value."""
        for signature, text in self.scope.macros.items():
            head, _, rest = signature.partition("(")
            if head.strip() != name:
                continue
            keys = [each.strip() for each in rest.rstrip(") ").split(",") if each.strip()]
            if len(keys) != len(node.args) or node.keywords:
                raise ExpressionError(f"this macro takes {len(keys)} arguments: {', '.join(keys)}", node)
            given = dict(zip(keys, node.args, strict=True))
            return compiler.compile(_Substitution(given).visit(parse_expression(text)))
        return None


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
    """

    steps: tuple[tuple[tuple[str, ...], Compiled], ...]
    results: tuple[tuple[bool, Compiled], ...]
    uses: frozenset[str]
    operators: tuple[Operator, ...] = ()
    assigns: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()

    def run(self, names: Names, builder: Builder | None = None) -> list[Any]:
        """Compute the results.

        Raises:
            ExpressionError: Something cannot be computed.
        """
        inner = _Assigned(names, builder)
        self._assign(inner)
        results: list[Any] = []
        for is_splat, compute in self.results:
            value = compute(inner)
            results.extend(value) if is_splat else results.append(value)
        return results

    def assigned(self, names: Names, builder: Builder | None = None) -> dict[str, Any]:
        """Return the values of the names that the program assigns."""
        inner = _Assigned(names, builder)
        self._assign(inner)
        return inner.own

    def _assign(self, inner: _Assigned) -> None:
        for keys, compute in self.steps:
            value = compute(inner)
            if len(keys) == 1:
                inner.own[keys[0]] = value
                continue
            values = list(value)
            if len(values) != len(keys):
                raise ExpressionError(f"{len(values)} values for the names {', '.join(keys)}")
            inner.own.update(zip(keys, values, strict=True))


class _Assigned(Mapping[str, Any]):
    """Names of a program over those around it."""

    def __init__(self, outer: Names, builder: Builder | None) -> None:
        self.outer = outer
        self.own: dict[str, Any] = {} if builder is None else {BUILDER: builder}

    def __getitem__(self, key: str) -> Any:
        own = self.own
        return own[key] if key in own else self.outer[key]

    def __iter__(self) -> Any:
        return iter({**self.outer, **self.own})

    def __len__(self) -> int:
        return len({**self.outer, **self.own})


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
    steps: list[tuple[tuple[str, ...], Compiled]] = []
    results: list[tuple[bool, Compiled]] = []
    assigned: list[str] = []
    uses: set[str] = set()
    before = len(scope.found)
    try:
        for statement in _statements(text.value, is_let):
            if isinstance(statement, ast.Return) and not is_let:
                results = _results(statement, compiler)
            else:
                steps.append(_step(statement, compiler, is_let))
            uses |= {name for name in compiler.free if name.partition(".")[0] not in assigned}
            compiler.free.clear()
            if steps and not results:
                assigned += steps[-1][0]
    except ExpressionError as error:
        scope.complain_of(text, "EK221", error)
    except RecursionError:
        scope.complain(text, "EK221", "this program nests too deeply", None)
    if len(scope.found) > before:
        return None
    return Program(tuple(steps), tuple(results), frozenset(uses), tuple(calls.operators), tuple(assigned), calls.opaque)


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


def _step(statement: ast.stmt, compiler: ExpressionCompiler, is_let: bool) -> tuple[tuple[str, ...], Compiled]:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        what = "`let` has lines `name = ...`" if is_let else "a program has lines `name = ...` and ends in `return ...`"
        raise ExpressionError(what, statement)
    target = statement.targets[0]
    names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    keys = tuple(name.id for name in names if isinstance(name, ast.Name))
    if len(keys) != len(names):
        raise ExpressionError("only names can be assigned to", target)
    return keys, compiler.compile(statement.value)

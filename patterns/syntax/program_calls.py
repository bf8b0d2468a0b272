"""What can be called and looked up in guards, `let` and replacements: words, operators, macros, Python by name."""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from exirkit.patterns.functions import graph, layout, quantization, tensors
from exirkit.patterns.functions.registered import builder_named, builder_names, run_builder, word_named
from exirkit.patterns.functions.words import WORDS, Word, tensor_facts
from exirkit.patterns.operators.argument_binding import bind_written, normalised_literal
from exirkit.patterns.operators.table import CONSTANTS, UnknownNameError, dotted_name
from exirkit.patterns.types.scalars import OperatorVariable

from .expression_syntax import ExpressionError, parse_expression
from .expressions import CallCompiler, Compiled, ExpressionCompiler, Names
from .scope import Scope
from .terms import Operator

# These three register words.
_REGISTERED = (graph, layout, quantization, tensors)

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

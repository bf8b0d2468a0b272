"""Variants of rules about floats for quantized values: `quantized: {b: per_channel(0 -> 1), result: any}`.

The variant matches operands that are dequantized, and a result that is quantized. In its replacement what moves data is
done on integers: an operand is dequantized after it was moved, and the result is quantized before it is.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from exirkit.ir import Diagnostic, SourceText
from exirkit.patterns.books.model import Equivalence, Rule
from exirkit.patterns.matching.compiled_rule import RuleTexts
from exirkit.patterns.operators.table import OperatorTable, UnknownNameError, dotted_name, traits_of
from exirkit.patterns.syntax.expressions import ExpressionError, parse_statements
from exirkit.patterns.types.parser import parse_variable
from exirkit.patterns.types.scanner import VariableSyntaxError
from exirkit.patterns.types.sizes import dims_text
from exirkit.patterns.types.tensors import TensorVariable

RESULT = "result"

_CHANNEL = re.compile(r"per_channel\(\s*(\d+)\s*->\s*(\d+)\s*\)")
_WAYS = "any, per_tensor, per_channel(0 -> 1), or some of them with `or` between"
_WHY = "computed in another order, and what a NaN becomes as an integer is undefined"


@dataclass(frozen=True)
class _Operand:
    """How an operand is quantized.

    Attributes:
        schemes: What follows `per` in its type; empty for any.
        moved_axis: Dim of the channels after the operand was moved.
    """

    schemes: str
    moved_axis: int | None = None


class _NoVariantError(Exception):
    """There is no such variant."""

    def __init__(self, message: str, hint: str | None = None, code: str = "EK278") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def quantized_variant(rule: Rule, texts: RuleTexts, table: OperatorTable) -> tuple[Rule, RuleTexts] | Diagnostic:
    """Return the variant of a rule for quantized values, over quantized variables, or why there is none.

    Args:
        rule: A rule with `quantized`.
        texts: Its texts with places.
        table: Operators of its book.
    """
    try:
        return _Variant(rule, texts, table).made()
    except _NoVariantError as error:
        return texts.rule.diagnostic(error.code, error.message, length=len(rule.id), hint=error.hint)


class _Variant:
    def __init__(self, rule: Rule, texts: RuleTexts, table: OperatorTable) -> None:
        self.rule = rule
        self.texts = texts
        self.moves = _Moves(table, frozenset(rule.quantized) - {RESULT})
        self.has_result = RESULT in rule.quantized

    def made(self) -> tuple[Rule, RuleTexts]:
        """Return the variant.

        Raises:
            _NoVariantError: There is none.
        """
        rule, texts = self.rule, self.texts
        if RESULT in rule.vars:
            raise _NoVariantError("a variable is called result", "rename it: `result` is what the rule gives")
        replacements = [self._replacement(text) for *_, text in texts.cases]
        types = dict(rule.vars)
        for name, way in rule.quantized.items():
            types[name] = self._type(name, way)
        if not self.has_result and not self.moves.was_moved:
            hint = "name `result` too, or leave `quantized` out"
            raise _NoVariantError("the rule itself does all that the variant would do", hint, "EK279")
        equiv = rule.equiv
        if self.has_result:
            equiv = Equivalence(lsb=max(1, equiv.lsb or 0), values="normal", why=_WHY)
        match = self._pattern(texts.match)
        where = [self._condition(text) for text in texts.where]
        listed = [
            (when if when is None else self._condition(when), let, replace(text, value=value))
            for (when, let, text), value in zip(texts.cases, replacements, strict=True)
        ]
        changed = {
            "id": f"{rule.id}[quantized]",
            "vars": types,
            "match": match,
            "where": tuple(
                guard.model_copy(update={"expr": text.value}) for guard, text in zip(rule.where, where, strict=True)
            ),
            "replace": replacements[0] if isinstance(rule.replace, str) else tuple(
                case.model_copy(update={"when": None if when is None else when.value, "replace": text.value})
                for case, (when, _, text) in zip(rule.replace, listed, strict=True)
            ),
            "equiv": equiv,
            "quantized": {},
        }  # fmt: skip
        variant = rule.model_copy(update=changed).with_origin(rule.id)
        places = {name: texts.vars.get(name, texts.rule) for name in types}
        return variant, replace(
            texts,
            rule=replace(texts.rule, value=variant.id),
            match=replace(texts.match, value=match),
            vars={name: replace(places[name], value=written) for name, written in types.items()},
            where=tuple(where),
            cases=tuple(listed),
        )

    def _type(self, name: str, way: str) -> str:
        operand = _operand(name, way, is_moved=name in self.moves.was_moved)
        per = f" per {operand.schemes}" if operand.schemes else ""
        if name == RESULT:
            if "channel" in operand.schemes:
                raise _NoVariantError("a result is quantized per tensor", f"{RESULT}: any")
            return "q8 params per tensor or tensors []"
        try:
            variable = parse_variable(name, self.rule.vars.get(name, ""))
        except VariableSyntaxError:
            variable = None
        if not isinstance(variable, TensorVariable) or ("f32" not in variable.dtypes.names and not _has_f32(variable)):
            raise _NoVariantError(f"{name} is not a float tensor of the rule", "quantized: {name of a variable: any}")
        if variable.allows_none or variable.domain is not None:
            raise _NoVariantError(f"{name} may be none, or is limited to some values", "leave it a float tensor")
        if any(text is not None and _mentions(text.value, name) for text in (self.texts.let, *self._lets())):
            raise _NoVariantError(f"`let` computes with {name}, which would be stored as floats", "leave it out")
        if operand.moved_axis is not None:
            self.moves.axes[name] = operand.moved_axis
        dims = "" if variable.dims is None else f" {dims_text(variable.dims)}"
        return " ".join([*variable.qualifiers, f"q8{per}{dims}"])

    def _lets(self) -> list[SourceText | None]:
        return [let for _, let, _ in self.texts.cases]

    def _pattern(self, text: SourceText) -> str:
        statements = _statements(text)
        last = statements[-1]
        if self.has_result:
            if not isinstance(last, ast.Return) or last.value is None or isinstance(last.value, ast.Tuple):
                raise _NoVariantError("a rule with several results has no quantized result", "leave `result` out")
            last.value = _quantized(last.value)
        return _unparsed(statements)

    def _condition(self, text: SourceText) -> SourceText:
        """Return a condition in which what is asked of an operand is asked of the dequantized value."""
        try:
            tree = ast.parse(text.value.strip(), mode="eval")
        except SyntaxError:
            return text
        return replace(text, value=ast.unparse(_AsFloat(self.moves.operands).visit(tree)))

    def _replacement(self, text: SourceText) -> str:
        # Axes are known only after the types were read.
        for name, way in self.rule.quantized.items():
            operand = _operand(name, way, is_moved=True)
            if operand.moved_axis is not None:
                self.moves.axes[name] = operand.moved_axis
        statements = [_AsFloat(self.moves.operands).visit(one) for one in _statements(text)]
        made: list[ast.stmt] = []
        for statement in statements:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                moved = self.moves.integers(statement.value)
                if moved is not None:
                    self.moves.names[statement.targets[0].id] = moved[1]
                    made.append(ast.Assign(statement.targets, moved[0]))
                    continue
            if isinstance(statement, ast.Return) and self.has_result and statement.value is not None:
                statement = ast.Return(self.moves.below(statement.value))
            made.append(self.moves.visit(statement))
        return _unparsed(made)


def _operand(name: str, way: str, *, is_moved: bool) -> _Operand:
    """Read `per_tensor or per_channel(0 -> 1)`.

    Raises:
        _NoVariantError: It is something else.
    """
    schemes: list[str] = []
    moved_axis: int | None = None
    for part in (one.strip() for one in way.split(" or ")):
        channel = _CHANNEL.fullmatch(part)
        if channel is not None:
            schemes.append(f"channel {channel.group(1)}")
            moved_axis = int(channel.group(2))
        elif part in ("any", "per_tensor"):
            schemes += ["tensor", "tensors"]
            if part == "any" and not is_moved and name != RESULT:
                return _Operand("")
        else:
            raise _NoVariantError(f"{name} cannot be quantized {part!r}", _WAYS)
    return _Operand(" or ".join(dict.fromkeys(schemes)), moved_axis)


def _has_f32(variable: TensorVariable) -> bool:
    return any(str(one) == "torch.float32" for one in variable.dtypes.members)


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text) is not None


def _statements(text: SourceText) -> list[ast.stmt]:
    try:
        return parse_statements(text.value)
    except ExpressionError as error:
        raise _NoVariantError(f"the rule cannot be read: {error.message}") from None


def _unparsed(statements: list[ast.stmt]) -> str:
    return "\n".join(ast.unparse(ast.fix_missing_locations(one)) for one in statements)


def _quantized(value: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("quantized"), [value, ast.Name(RESULT)], [])


class _AsFloat(ast.NodeTransformer):
    """What is asked of an operand is asked of the value that it is dequantized to."""

    def __init__(self, operands: frozenset[str]) -> None:
        self.operands = operands

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace `x.dtype` and `x.shape`."""
        self.generic_visit(node)
        if not isinstance(node.value, ast.Name) or node.value.id not in self.operands:
            return node
        if node.attr == "dtype":
            return ast.Name("f32")
        words = {"shape": "shape", "rank": "rank", "ndim": "rank"}
        return ast.Call(ast.Name(words[node.attr]), [node.value], []) if node.attr in words else node


class _Moves(ast.NodeTransformer):
    """Moves integers instead of floats.

    Args:
        table: Operators.
        operands: Names of those that are quantized.
    """

    def __init__(self, table: OperatorTable, operands: frozenset[str]) -> None:
        self.table = table
        self.operands = operands
        self.axes: dict[str, int] = {}
        self.names: dict[str, str] = {}
        """Names that stand for integers of an operand that were moved, and the operand."""
        self.was_moved: set[str] = set()

    def is_move(self, node: ast.expr) -> bool:
        """Whether a call moves the data of its first argument, and that alone."""
        dotted = dotted_name(node.func) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or dotted is None or "." not in dotted or not node.args:
            return False
        try:
            op = self.table.find(dotted)
        except UnknownNameError:
            return False
        return traits_of(op).moves_data and not isinstance(node.args[0], ast.List | ast.Tuple)

    def integers(self, node: ast.expr) -> tuple[ast.expr, str] | None:
        """Return moves of an operand made on its integers, and the operand; None if it is something else."""
        if not self.is_move(node):
            return None
        assert isinstance(node, ast.Call)
        first = node.args[0]
        if isinstance(first, ast.Name) and first.id in self.operands:
            below: tuple[ast.expr, str] | None = ast.Attribute(first, "q"), first.id
        elif isinstance(first, ast.Name) and first.id in self.names:
            below = first, self.names[first.id]
        else:
            below = self.integers(first)
        if below is None:
            return None
        self.was_moved.add(below[1])
        return ast.Call(node.func, [below[0], *node.args[1:]], node.keywords), below[1]

    def below(self, node: ast.expr) -> ast.expr:
        """Return a result that is quantized before it is moved."""
        if not self.is_move(node) or self.integers(node) is not None:
            return _quantized(node)
        assert isinstance(node, ast.Call)
        self.was_moved.add(RESULT)
        return ast.Call(node.func, [self.below(node.args[0]), *node.args[1:]], node.keywords)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Dequantize an operand after it was moved."""
        moved = self.integers(node)
        if moved is None:
            self.generic_visit(node)
            return node
        return self._dequantized(*moved)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Dequantize integers that have a name."""
        return self._dequantized(node, self.names[node.id]) if node.id in self.names else node

    def _dequantized(self, value: ast.expr, operand: str) -> ast.expr:
        axis = self.axes.get(operand)
        keywords = [] if axis is None else [ast.keyword("axis", ast.Constant(axis))]
        return ast.Call(ast.Name("dequantized"), [value, ast.Name(operand)], keywords)

"""What a program in torch's JSON form that comes from elsewhere may name: operators, and sizes that are arithmetic."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

# Of names with two underscores in front, which Python objects have too, only those of ATen's bitwise operators.
_NAME = r"(?!__)\w+"
_BITWISE = r"__i?(?:and|or|xor|lshift|rshift)__"
_TARGET = re.compile(
    rf"torch\.ops\.{_NAME}\.(?:{_NAME}|{_BITWISE})(?:\.{_NAME})?"
    r"|_operator\.[a-z]\w*|math\.[a-z]\w*|torch\._?sym_\w+"
)
_EXPRESSIONS = {
    "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Mod", "Eq", "Equality", "Ne",
    "Unequality", "Lt", "Le", "Gt", "Ge", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "And",
    "Or", "Not", "Piecewise", "ExprCondPair", "Tuple", "Abs", "floor", "ceiling", "FloorDiv", "CeilDiv",
    "ModularIndexing", "CleanDiv", "PythonMod", "IntTrueDiv", "FloatTrueDiv", "FloatPow", "PowByNatural", "ToFloat",
    "TruncToInt", "TruncToFloat", "CeilToInt", "FloorToInt", "RoundToInt", "RoundDecimal", "Identity", "Where",
    "LShift", "RShift",
}  # fmt: skip


def check_stored_program(document: Any) -> None:
    """Raise if a program names anything but operators, or has sizes that are more than arithmetic.

    Raises:
        ValueError: It does.
    """
    _require(not document.get("guards_code"), "it has guards as code")
    for one in _objects(document):
        target, text = one.get("target"), one.get("expr_str")
        if "inputs" in one and "outputs" in one and isinstance(target, str):
            _require(_TARGET.fullmatch(target) is not None, f"{target[:80]!r} is not an operator")
        if isinstance(text, str):
            _require(_is_arithmetic(text), f"{text[:80]!r} is not a size")


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            yield one
            pending += one.values()
        elif isinstance(one, list):
            pending += one


_ALLOWED = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare,
    ast.operator, ast.unaryop, ast.cmpop, ast.Tuple,
)  # fmt: skip


def _is_arithmetic(text: str) -> bool:
    """Return whether an expression calls nothing but functions of arithmetic, and has no attributes."""
    return all(_is_allowed(node) for node in ast.walk(ast.parse(text, mode="eval")))


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _EXPRESSIONS
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.fullmatch(r"[\w.+-]{1,60}", node.value) is not None
    return isinstance(node, _ALLOWED)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)

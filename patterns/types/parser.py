"""From the string of a type to the type: `parse_variable("x", "const f32 [*B, K] | none")`."""

from __future__ import annotations

from dataclasses import replace

from .lists import (
    AxesVariable,
    AxisVariable,
    FactorsVariable,
    ListVariable,
    PartitionVariable,
    PermutationVariable,
    ShapeVariable,
)
from .scalars import (
    BoolVariable,
    ChoiceVariable,
    DtypeVariable,
    FloatVariable,
    IntVariable,
    OperatorVariable,
    ScalarVariable,
    StringVariable,
)
from .scanner import QUALIFIERS, Token, TypeScanner, VariableSyntaxError, did_you_mean, is_dtype
from .tensors import DimsVariable, TensorListVariable, TensorVariable
from .variable import Variable

TYPES: tuple[type[Variable], ...] = (
    TensorVariable,
    TensorListVariable,
    IntVariable,
    FloatVariable,
    ScalarVariable,
    BoolVariable,
    StringVariable,
    ListVariable,
    ShapeVariable,
    ChoiceVariable,
    PermutationVariable,
    AxesVariable,
    AxisVariable,
    FactorsVariable,
    PartitionVariable,
    DimsVariable,
    DtypeVariable,
    OperatorVariable,
)
"""All types, in the order of the reference page."""

_BY_KEYWORD = {keyword: kind for kind in TYPES for keyword in kind.KEYWORDS}
TypeScanner.keywords = tuple(_BY_KEYWORD)
_NONE = ("none", "None")


def parse_variable(name: str, text: str) -> Variable:
    """Return the type that a string describes.

    Args:
        name: Name of the variable.
        text: Its type, `f32 [*B, K]`.

    Raises:
        VariableSyntaxError: It is not a type; the error has the column.
    """
    scanner = TypeScanner(name, text)
    allows_none = False
    if scanner.token.text in _NONE and scanner.peek().text in ("|", "or"):
        scanner.take()
        scanner.take()
        allows_none = True
    variable = _parse_type(scanner)
    while scanner.accept("|", "or"):
        token = scanner.token
        if scanner.name("none after '|'") not in _NONE:
            scanner.fail(f"only none may follow '|', not {token.text!r}", token, hint=_union_hint(token, variable))
        allows_none = True
    if scanner.token.kind != "end":
        scanner.fail(f"unexpected {scanner.token.shown}", hint=_surplus_hint(scanner.token, variable))
    return replace(variable, allows_none=allows_none) if allows_none else variable


def _parse_type(scanner: TypeScanner) -> Variable:
    token = scanner.token
    if token.kind == "end":
        scanner.fail("expected a type", hint='such as "f32 [*S]", "int in [0, 3]" or "bool"')
    if token.text == "scalar" and is_dtype(scanner.peek().text):
        scanner.take()
        return ScalarVariable.of_dtype(scanner)
    kind = _BY_KEYWORD.get(token.text)
    if kind is None or (token.text == "bool" and scanner.bool_is_dtype()):
        return TensorVariable.parse_tensor(scanner)
    return kind.parse(scanner, scanner.take())


def _union_hint(token: Token, variable: Variable) -> str | None:
    if is_dtype(token.text) and isinstance(variable, TensorVariable):
        return "write the dtypes before the dims: f16|f32 [*S]"
    return did_you_mean(token.text, ["none"])


def _surplus_hint(token: Token, variable: Variable) -> str | None:
    if token.kind == "name":
        words = ["in", "none", "layouts", "of", "at", *QUALIFIERS]
        if isinstance(variable, TensorVariable) and token.text in QUALIFIERS:
            return "qualifiers stand before the dtype"
        return did_you_mean(token.text, words, 0.5)
    if token.text == "?":
        return "a value that may be missing is written '| none'"
    return None


__all__ = ["TYPES", "VariableSyntaxError", "parse_variable"]

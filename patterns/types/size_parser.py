"""Sizes, signatures, literals and bounds in the text of a type."""

from __future__ import annotations

import math
from typing import Any

from .dtypes import DTYPE_NAMES, SPELLINGS
from .literals import NAMED_VALUES, Choice, Literal, Reference, literal
from .scanner import Scanner, Token, VariableSyntaxError
from .sizes import (
    AnyDim,
    Arithmetic,
    BroadcastDim,
    Dim,
    Dims,
    Measure,
    Name,
    Number,
    SequenceDim,
    SizeDim,
    SizeExpression,
)

_MEASURES = ("len", "rank", "numel")
_MAX_TERMS = 40
_MAX_INTEGER = 1 << 63
MAX_RANK = 64


def parse_size(scanner: Scanner) -> SizeExpression:
    """Parse a sum of products.

    Raises:
        VariableSyntaxError: It is none, or has no value.
    """
    start = scanner.token
    result = _sum(scanner)
    try:
        result.evaluate({})
    except ArithmeticError:
        scanner.fail("a division by zero", start)
    return result


def _sum(scanner: Scanner) -> SizeExpression:
    result = _product(scanner)
    for _ in range(_MAX_TERMS):
        sign = scanner.accept("+", "-")
        if sign is None:
            return result
        result = Arithmetic(sign.text, result, _product(scanner))
    raise VariableSyntaxError(f"a size of more than {_MAX_TERMS} terms", scanner.token.offset)


def _product(scanner: Scanner) -> SizeExpression:
    result = _factor(scanner)
    for _ in range(_MAX_TERMS):
        sign = scanner.accept("*", "//", "%")
        if sign is None:
            if scanner.token.text == "/":
                scanner.fail("a size is an integer", hint="write // for the quotient that is one")
            return result
        result = Arithmetic(sign.text, result, _factor(scanner))
    raise VariableSyntaxError(f"a size of more than {_MAX_TERMS} factors", scanner.token.offset)


def _factor(scanner: Scanner) -> SizeExpression:
    token = scanner.token
    if scanner.accept("("):
        inner = _sum(scanner)
        scanner.expect(")", "after the size")
        return inner
    if scanner.accept("-"):
        inner = _factor(scanner)
        return Number(-inner.value) if isinstance(inner, Number) else Arithmetic("-", Number(0), inner)
    if token.kind == "number":
        return Number(integer(scanner.take()))
    if token.kind == "name" and scanner.peek().text == "(":
        return _measure(scanner)
    return Name(scanner.name("a size").text)


def _measure(scanner: Scanner) -> SizeExpression:
    word = scanner.take()
    if word.text not in _MEASURES:
        scanner.fail(f"{word.text!r} cannot be asked of a size", word, hint="len(S), rank(x) and numel(x) can")
    scanner.expect("(", "after the word")
    name = scanner.name("the name of a tensor or a shape").text
    scanner.expect(")", "after the name")
    return Measure(word.text, name)


def integer(token: Token) -> int:
    """Return a literal that must be an integer.

    Raises:
        VariableSyntaxError: It is none, or too large.
    """
    if not token.text.isdigit():
        raise VariableSyntaxError(f"an integer is expected, not {token.shown}", token.offset)
    value = int(token.text)
    if value >= _MAX_INTEGER:
        raise VariableSyntaxError("an integer of more than 63 bits", token.offset)
    return value


def parse_dims(scanner: Scanner) -> Dims:
    """Parse a signature in brackets."""
    scanner.expect("[", "before the dims")
    dims: list[Dim] = []
    while not scanner.accept("]"):
        if dims:
            scanner.expect(",", "or ']' after a dim")
            if scanner.accept("]"):
                break
        dims.append(_dim(scanner))
        if len(dims) > MAX_RANK:
            scanner.fail(f"more than {MAX_RANK} dims")
    return tuple(dims)


def _dim(scanner: Scanner) -> Dim:
    if scanner.accept("..."):
        return SequenceDim()
    if scanner.accept("*"):
        token = scanner.name("a name after '*'")
        return SequenceDim(None if token.text == "_" else token.text)
    if scanner.accept("~"):
        return BroadcastDim(scanner.name("the name of a shape after '~'").text)
    if scanner.token.text == "_":
        scanner.take()
        return AnyDim()
    token = scanner.token
    if token.text in ("?", ":"):
        scanner.fail("a dim of any size is written _", token, hint="write _")
    size = parse_size(scanner)
    if not size.names():
        value = size.evaluate({})
        if value < 0:
            raise VariableSyntaxError("a size is not negative", token.offset)
        return SizeDim(Number(value))
    return SizeDim(size)


def parse_number(scanner: Scanner) -> int | float:
    """Parse a number with its sign.

    Raises:
        VariableSyntaxError: Something else stands here.
    """
    sign = -1 if scanner.accept("-") else 1
    if sign == 1:
        scanner.accept("+")
    token = scanner.take()
    if token.text in ("inf", "nan"):
        return sign * float(token.text)
    if token.kind != "number":
        raise VariableSyntaxError(f"a number is expected, not {token.shown}", token.offset)
    if token.text.isdigit():
        return sign * integer(token)
    value = float(token.text)
    if math.isinf(value):
        raise VariableSyntaxError("a number beyond the largest float", token.offset)
    return sign * value


def parse_choice(scanner: Scanner) -> Choice:
    """Parse a value, a list of values, or the name of a variable."""
    token = scanner.token
    if token.text == "[":
        return literal(_literal_list(scanner))
    if token.kind == "string":
        return literal(scanner.take().text[1:-1])
    if token.kind != "name" or token.text in ("inf", "nan"):
        return literal(parse_number(scanner))
    scanner.take()
    known = named_value(token.text)
    if known is not None:
        return known
    if "." in token.text:
        scanner.fail(f"{token.text!r} is no value", token)
    return Reference(token.text)


def named_value(word: str) -> Literal | None:
    """Return the value of a name that stands for one: True, channels_last, f32."""
    short = word.removeprefix("torch.")
    if short in NAMED_VALUES:
        value = NAMED_VALUES[short]
        text = repr(value) if value is None or isinstance(value, bool | float) else short
        return literal(value, text)
    dtype = SPELLINGS.get(short, short)
    if dtype in DTYPE_NAMES and (dtype != "bool" or word.startswith("torch.")):
        return literal(DTYPE_NAMES[dtype], "torch.bool" if dtype == "bool" else dtype)
    return None


def _literal_list(scanner: Scanner) -> list[Any]:
    scanner.expect("[", "before the values")
    values: list[Any] = []
    while not scanner.accept("]"):
        if values:
            scanner.expect(",", "or ']' after a value")
            if scanner.accept("]"):
                break
        token = scanner.token
        choice = parse_choice(scanner)
        if isinstance(choice, Reference):
            scanner.fail(f"{choice.name!r} is no value", token, hint="a list inside one_of has literals only")
        values.append(choice.value)
    return values

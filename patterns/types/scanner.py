"""Scanning the string of a type: tokens with columns, sizes, dims, literals, bounds and dtypes.

Python's `tokenize` does not fit: `~S`, `f32+` and `aten.relu.default` are not Python, and `?` is an error there.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from exirkit.patterns.types.literals import (
    DTYPE_CLASSES,
    DTYPE_NAMES,
    NAMED_VALUES,
    SPELLINGS,
    Choice,
    DtypeClass,
    Interval,
    Literal,
    Reference,
    ValueSet,
    literal,
)

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

QUALIFIERS = ("const", "param", "buffer", "mutable", "input", "shared")
"""What a tensor of the graph can be required to be, in the order of the canonical string."""

CLOSING = {"[": "]", "(": ")", "{": "}"}
_MEASURES = ("len", "rank", "numel")
_MAX_TEXT = 2000
_MAX_NESTING = 30
_MAX_DIGITS = 40
_MAX_TERMS = 40
_MAX_INTEGER = 1 << 63
_MAX_RANK = 64
_MAX_CHOICES = 200

_TOKEN = re.compile(
    r"""(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
      | (?P<string>'[^'\\]*'|"[^"\\]*")
      | (?P<sign>\.\.\.|//|>=|<=|[][(){},|*~+\-%=<>/?:])""",
    re.VERBOSE,
)


class VariableSyntaxError(Exception):
    """The string is not a type.

    Attributes:
        message: What is wrong.
        offset: Characters before the place in the string.
        hint: What may have been meant, or what to do.
        name: The variable, where several are checked together.
    """

    def __init__(self, message: str, offset: int = 0, hint: str | None = None, name: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint
        self.name = name


@dataclass(frozen=True)
class Token:
    """A token.

    Attributes:
        kind: `number`, `name`, `string`, `sign` or `end`.
        text: As written.
        offset: Characters before it.
    """

    kind: str
    text: str
    offset: int

    @property
    def shown(self) -> str:
        """How an error names it."""
        return "the end" if self.kind == "end" else repr(self.text)


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return a suggestion for an unknown word."""
    close = difflib.get_close_matches(word, list(dict.fromkeys(known)), n=1, cutoff=cutoff)
    return f"did you mean {close[0]}?" if close else None


class TypeScanner:
    """Reads one type from left to right.

    Args:
        variable: Name of the variable.
        text: Its type.
    """

    keywords: tuple[str, ...] = ()
    """Words that types start with, for suggestions."""

    def __init__(self, variable: str, text: str) -> None:
        self.variable = variable
        self.tokens = _tokens(text)
        self.at = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def peek(self, ahead: int = 1) -> Token:
        """Return a later token."""
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Return the next token and advance."""
        token = self.token
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def accept(self, *texts: str) -> Token | None:
        """Take the next token if it is one of these words or signs."""
        token = self.token
        return self.take() if token.kind in ("name", "sign") and token.text in texts else None

    def expect(self, text: str, where: str) -> Token:
        """Take a sign that must be next.

        Raises:
            VariableSyntaxError: Another token is.
        """
        token = self.accept(text)
        if token is None:
            self.fail(f"expected {text!r} {where}, got {self.token.shown}")
        return token

    def name(self, what: str) -> str:
        """Take a name.

        Raises:
            VariableSyntaxError: The next token is not a name.
        """
        if self.token.kind != "name" or "." in self.token.text:
            self.fail(f"expected {what}, got {self.token.shown}")
        return self.take().text

    def fail(self, message: str, at: Token | None = None, hint: str | None = None) -> NoReturn:
        """Raise an error at a token, by default the next one.

        Raises:
            VariableSyntaxError: Always.
        """
        raise VariableSyntaxError(message, (at or self.token).offset, hint)

    # Sizes and dims

    def size(self) -> SizeExpression:
        """Parse a sum of products.

        Raises:
            VariableSyntaxError: It is not a size, or has no value.
        """
        start = self.token
        result = self._sum()
        try:
            result.evaluate({})
        except ArithmeticError:
            self.fail("division by zero", start)
        return result

    def _sum(self) -> SizeExpression:
        return self._chain(self._product, ("+", "-"), "terms")

    def _product(self) -> SizeExpression:
        result = self._chain(self._factor, ("*", "//", "%"), "factors")
        if self.token.text == "/":
            self.fail("a size is an integer", hint="write // for integer division")
        return result

    def _chain(self, operand: Callable[[], SizeExpression], signs: tuple[str, ...], what: str) -> SizeExpression:
        result = operand()
        for _ in range(_MAX_TERMS):
            sign = self.accept(*signs)
            if sign is None:
                return result
            result = Arithmetic(sign.text, result, operand())
        raise VariableSyntaxError(f"a size of more than {_MAX_TERMS} {what}", self.token.offset)

    def _factor(self) -> SizeExpression:
        token = self.token
        if self.accept("("):
            inner = self._sum()
            self.expect(")", "after the size")
            return inner
        if self.accept("-"):
            inner = self._factor()
            return Number(-inner.value) if isinstance(inner, Number) else Arithmetic("-", Number(0), inner)
        if token.kind == "number":
            return Number(self.integer())
        if token.kind == "name" and self.peek().text == "(":
            return self._measure()
        return Name(self.name("a size"))

    def _measure(self) -> SizeExpression:
        word = self.take()
        if word.text not in _MEASURES:
            self.fail(f"{word.text!r} is not a function of sizes", word, hint="use len(S), rank(x) or numel(x)")
        self.expect("(", "after the function")
        name = self.name("the name of a tensor or a shape")
        self.expect(")", "after the name")
        return Measure(word.text, name)

    def integer(self) -> int:
        """Take an integer literal.

        Raises:
            VariableSyntaxError: It is not an integer, or too large.
        """
        token = self.take()
        if not token.text.isdigit():
            self.fail(f"expected an integer, got {token.shown}", token)
        value = int(token.text)
        if value >= _MAX_INTEGER:
            self.fail("an integer of more than 63 bits", token)
        return value

    def dims(self) -> Dims:
        """Parse a signature in brackets."""
        return tuple(self._listed(self._dim, "dims", "dim", _MAX_RANK))

    def _listed(self, parse: Callable[[], Any], what: str, one: str, most: int) -> list[Any]:
        """Parse what stands in brackets, with commas between the elements and perhaps one behind them."""
        self.expect("[", f"before the {what}")
        found: list[Any] = []
        while not self.accept("]"):
            if found:
                self.expect(",", f"or ']' after a {one}")
                if self.accept("]"):
                    break
            found.append(parse())
            if len(found) > most:
                self.fail(f"more than {most} {what}")
        return found

    def _dim(self) -> Dim:
        if self.accept("..."):
            return SequenceDim()
        if self.accept("*"):
            name = self.name("a name after '*'")
            return SequenceDim(None if name == "_" else name)
        if self.accept("~"):
            return BroadcastDim(self.name("the name of a shape after '~'"))
        if self.token.text == "_":
            self.take()
            return AnyDim()
        token = self.token
        if token.text in ("?", ":"):
            self.fail("a dim of any size is written _", token, hint="write _")
        size = self.size()
        if not size.names():
            value = size.evaluate({})
            if value < 0:
                self.fail("a size is not negative", token)
            return SizeDim(Number(value))
        return SizeDim(size)

    # Literals

    def number(self) -> int | float:
        """Parse a number with its sign.

        Raises:
            VariableSyntaxError: It is not a number.
        """
        sign = -1 if self.accept("-") else 1
        if sign == 1:
            self.accept("+")
        token = self.token
        if token.kind == "number" and token.text.isdigit():
            return sign * self.integer()
        self.take()
        if token.text in ("inf", "nan"):
            return sign * float(token.text)
        if token.kind != "number":
            self.fail(f"expected a number, got {token.shown}", token)
        value = float(token.text)
        if math.isinf(value):
            self.fail("a number beyond the largest float", token)
        return sign * value

    def choice(self) -> Choice:
        """Parse a value, a list of values, or the name of a variable."""
        token = self.token
        if token.text == "[":
            return literal(self._listed(self._literal_value, "values", "value", _MAX_CHOICES))
        if token.kind == "string":
            return literal(self.take().text[1:-1])
        if token.kind != "name" or token.text in ("inf", "nan"):
            return literal(self.number())
        self.take()
        known = named_value(token.text)
        if known is not None:
            return known
        if "." in token.text:
            self.fail(f"{token.text!r} is not a value", token)
        return Reference(token.text)

    def _literal_value(self) -> Any:
        token = self.token
        choice = self.choice()
        if isinstance(choice, Reference):
            self.fail(f"{choice.name!r} is not a value", token, hint="a list inside one_of has only literals")
        return choice.value

    def choices(self) -> list[tuple[Choice, Token]]:
        """Parse values with commas between them, in brackets of any kind or in none."""
        closing = CLOSING.get(self.token.text)
        if closing == "]" and self._is_followed_by_list():
            closing = None
        if closing is not None:
            self.take()
        items: list[tuple[Choice, Token]] = []
        while True:
            token = self.token
            if token.kind == "end" or (closing and token.text == closing):
                self.fail("expected a value", token)
            items.append((self.choice(), token))
            if len(items) > _MAX_CHOICES:
                self.fail(f"more than {_MAX_CHOICES} values", token)
            if not self.accept(","):
                break
        if closing is not None:
            self.expect(closing, "after the values")
        return items

    def _is_followed_by_list(self) -> bool:
        """Whether a bracket closes before a comma: `[0, 1], [1, 0]` are two lists, `[0, 1]` are two values."""
        depth = ahead = 0
        while True:
            token = self.peek(ahead)
            depth += (token.text == "[") - (token.text == "]")
            ahead += 1
            if depth == 0 or token.kind == "end":
                return self.peek(ahead).text == ","

    def value_set(self) -> ValueSet:
        """Parse numbers in braces."""
        self.expect("{", "before the values")
        values: dict[Literal, None] = {}
        while True:
            token = self.token
            one = self.choice()
            if not isinstance(one, Literal) or one.kind not in ("int", "float", "bool"):
                self.fail("expected a number", token)
            values[literal(int(one.value)) if one.kind == "bool" else one] = None
            if self.accept("}"):
                return ValueSet(tuple(values))
            self.expect(",", "or '}' after a value")

    # Bounds

    def domain(self) -> Interval | ValueSet | None:
        """Parse what elements of a tensor may be, if it is next."""
        if self.token.text not in ("in", ">=", "<="):
            return None
        if self.token.text == "in" and self.peek().text == "{":
            self.take()
            return self.value_set()
        return Interval(*self.bounds(self.number))

    def float_bounds(self) -> dict[str, Any]:
        """Parse bounds as floats: the fields `low` and `high` of a type."""
        low, high = (None if one is None else float(one) for one in self.bounds(self.number))
        return {"low": low, "high": high}

    def size_bounds(self) -> dict[str, Any]:
        """Parse bounds as sizes: the fields `low` and `high` of a type."""
        low, high = self.bounds(self.size)
        return {"low": low, "high": high}

    def bounds(self, parse: Callable[[], Any]) -> tuple[Any, Any]:
        """Parse `in [a, b]`, `>= a` or `<= b`, if one of them is next."""
        if self.accept(">="):
            return parse(), None
        if self.accept("<="):
            return None, parse()
        if self.token.text in (">", "<"):
            self.fail("bounds are inclusive", hint="write >=, <= or in [low, high]")
        if not self.accept("in"):
            return None, None
        start = self.token
        if start.text == "(":
            self.fail("bounds are inclusive", hint="write in [low, high]")
        self.expect("[", "before the bounds")
        low = parse()
        self.expect(",", "between the bounds")
        high = parse()
        if self.token.text == ",":
            self.fail("more than two bounds", hint="write one_of for some values")
        self.expect("]", "after the bounds")
        if _number_of(low) is not None and _number_of(high) is not None and not _number_of(low) <= _number_of(high):
            self.fail(f"nothing is between {low} and {high}", start)
        return low, high

    # Dtypes

    def dtype_class(self) -> DtypeClass:
        """Parse `f32`, `f16|f32` or `=x`."""
        if self.accept("="):
            return DtypeClass(same_as=self.name("the name of a tensor after '='"))
        names = [self.dtype_name()]
        while self.token.text == "|" and self.peek().text not in ("none", "None"):
            self.take()
            names.append(self.dtype_name())
        return DtypeClass(tuple(dict.fromkeys(names)))

    def dtype_name(self) -> str:
        """Parse one dtype or class, in any spelling."""
        token = self.token
        if token.kind != "name":
            self.fail(f"expected a type, got {token.shown}")
        self.take()
        if token.text in ("f", "i", "u", "c") and self.accept("*"):
            return f"{token.text}*"
        word = token.text.removeprefix("torch.")
        word = SPELLINGS.get(word, word)
        if word not in DTYPE_NAMES and word not in DTYPE_CLASSES:
            hint = did_you_mean(token.text, [*DTYPE_NAMES, *DTYPE_CLASSES, *QUALIFIERS, *self.keywords, *SPELLINGS])
            self.fail(f"{token.text!r} is not a dtype, qualifier or variable type", token, hint=hint)
        return word

    def bool_is_dtype(self) -> bool:
        """Whether `bool`, which is next, is the dtype of a tensor: `bool [N]`, `bool|u8`."""
        follower, after = self.peek(), self.peek(2)
        if follower.text == "|":
            return after.text not in ("none", "None")
        return follower.text in ("[", "{", "layouts")


def is_dtype(word: str) -> bool:
    """Whether a word starts a class of dtypes."""
    short = word.removeprefix("torch.")
    return SPELLINGS.get(short, short) in {*DTYPE_NAMES, *DTYPE_CLASSES} or word in ("f", "i", "u", "c")


def named_value(word: str) -> Literal | None:
    """Return the value of a name such as True, channels_last or f32."""
    short = word.removeprefix("torch.")
    if short in NAMED_VALUES:
        value = NAMED_VALUES[short]
        text = repr(value) if value is None or isinstance(value, bool | float) else short
        return literal(value, text)
    dtype = SPELLINGS.get(short, short)
    if dtype in DTYPE_NAMES and (dtype != "bool" or word.startswith("torch.")):
        return literal(DTYPE_NAMES[dtype], "torch.bool" if dtype == "bool" else dtype)
    return None


def _number_of(bound: Any) -> Any:
    return bound.evaluate({}) if isinstance(bound, SizeExpression) else bound


def _tokens(text: str) -> list[Token]:
    if len(text) > _MAX_TEXT:
        raise VariableSyntaxError(f"a type of more than {_MAX_TEXT} characters", _MAX_TEXT)
    found: list[Token] = []
    at = nesting = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            what = "unterminated string" if text[at] in "'\"" else f"unexpected character {text[at]!r}"
            raise VariableSyntaxError(what, at)
        token = Token(match.lastgroup or "", match.group(), at)
        nesting += (token.text in CLOSING) - (token.text in CLOSING.values())
        if nesting > _MAX_NESTING:
            raise VariableSyntaxError(f"brackets nest deeper than {_MAX_NESTING}", at)
        if token.kind == "number" and len(token.text) > _MAX_DIGITS:
            raise VariableSyntaxError(f"a number of more than {_MAX_DIGITS} characters", at)
        found.append(token)
        at = match.end()
    found.append(Token("end", "", len(text.rstrip())))
    return found

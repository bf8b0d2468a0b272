"""Types of tensors in the text of a type, and the classes of dtypes, values and bounds that other kinds share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .dtypes import DTYPE_CLASSES, DTYPE_NAMES, SPELLINGS, DtypeClass
from .literals import Interval, Literal, ValueSet, literal
from .scanner import Scanner, did_you_mean
from .size_parser import parse_choice, parse_dims, parse_number, parse_size
from .sizes import SizeExpression
from .variables import QUALIFIERS, TensorVariable


class TensorParser:
    """Parses one text.

    Args:
        name: Name of the variable.
        text: Its type.
    """

    words: tuple[str, ...] = ()
    """Words that start other kinds of types, for suggestions."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.scanner = Scanner(text)

    def tensor(self) -> TensorVariable:
        """Parse qualifiers, dtypes, domain, layouts and dims."""
        scanner = self.scanner
        qualifiers: set[str] = set()
        while scanner.token.text in QUALIFIERS:
            qualifiers.add(scanner.take().text)
        # A qualifier alone says nothing about the dtype.
        bare = bool(qualifiers) and (scanner.token.kind == "end" or scanner.token.text in ("[", "|"))
        dtypes = DtypeClass(("any",)) if bare else self.dtype_class()
        domain: Interval | ValueSet | None = None
        if scanner.accept("+"):
            domain = Interval(0, None)
        if scanner.token.text == "{":
            domain = self.value_set()
        domain = self._domain() or domain
        layouts = scanner.accept("layouts") is not None
        dims = parse_dims(scanner) if scanner.token.text == "[" else None
        layouts = scanner.accept("layouts") is not None or layouts
        domain = self._domain() or domain
        ordered = tuple(one for one in QUALIFIERS if one in qualifiers)
        return TensorVariable(
            name=self.name, qualifiers=ordered, dtypes=dtypes, dims=dims, domain=domain, layouts=layouts
        )

    def dtype_class(self) -> DtypeClass:
        """Parse `f32`, `f16|f32` or `=x`."""
        scanner = self.scanner
        if scanner.accept("="):
            return DtypeClass(same_as=scanner.name("the name of a tensor after '='").text)
        names = [self.dtype_name()]
        while scanner.token.text == "|" and scanner.peek().text not in ("none", "None"):
            scanner.take()
            names.append(self.dtype_name())
        return DtypeClass(tuple(dict.fromkeys(names)))

    def dtype_name(self) -> str:
        """Parse one dtype or class, in any spelling."""
        scanner = self.scanner
        token = scanner.token
        if token.kind != "name":
            scanner.fail(f"a type is expected, not {token.shown}")
        scanner.take()
        if token.text in ("f", "i", "u", "c") and scanner.accept("*"):
            return f"{token.text}*"
        word = token.text.removeprefix("torch.")
        word = SPELLINGS.get(word, word)
        if word not in DTYPE_NAMES and word not in DTYPE_CLASSES:
            hint = did_you_mean(token.text, [*DTYPE_NAMES, *DTYPE_CLASSES, *QUALIFIERS, *self.words, *SPELLINGS])
            scanner.fail(f"{token.text!r} is no dtype, qualifier or kind of variable", token, hint=hint)
        return word

    def value_set(self) -> ValueSet:
        """Parse values in braces."""
        scanner = self.scanner
        scanner.expect("{", "before the values")
        values: dict[Literal, None] = {}
        while True:
            token = scanner.token
            one = parse_choice(scanner)
            if not isinstance(one, Literal) or one.kind not in ("int", "float", "bool"):
                scanner.fail("a number is expected", token)
            values[literal(int(one.value)) if one.kind == "bool" else one] = None
            if scanner.accept("}"):
                return ValueSet(tuple(values))
            scanner.expect(",", "or '}' after a value")

    def _domain(self) -> Interval | ValueSet | None:
        scanner = self.scanner
        if scanner.token.text not in ("in", ">=", "<="):
            return None
        if scanner.token.text == "in" and scanner.peek().text == "{":
            scanner.take()
            return self.value_set()
        low, high = self.number_bounds()
        return Interval(low, high)

    def number_bounds(self) -> tuple[Any, Any]:
        """Parse bounds that are numbers, if they stand here."""
        return self._bounds(parse_number)

    def size_bounds(self) -> tuple[Any, Any]:
        """Parse bounds that are sizes, if they stand here."""
        return self._bounds(parse_size)

    def _bounds(self, parse: Callable[[Scanner], Any]) -> tuple[Any, Any]:
        """Parse `in [a, b]`, `>= a` or `<= b`, if one of them stands here."""
        scanner = self.scanner
        if scanner.accept(">="):
            return parse(scanner), None
        if scanner.accept("<="):
            return None, parse(scanner)
        if scanner.token.text in (">", "<"):
            scanner.fail("bounds belong to the values", hint="write >=, <= or in [low, high]")
        if not scanner.accept("in"):
            return None, None
        start = scanner.token
        if start.text == "(":
            scanner.fail("bounds belong to the values", hint="write in [low, high]")
        scanner.expect("[", "before the bounds")
        low = parse(scanner)
        scanner.expect(",", "between the bounds")
        high = parse(scanner)
        if scanner.token.text == ",":
            scanner.fail("bounds are two", hint="write one_of for some values")
        scanner.expect("]", "after the bounds")
        if _number_of(low) is not None and _number_of(high) is not None and not _number_of(low) <= _number_of(high):
            scanner.fail(f"there is nothing between {low} and {high}", start)
        return low, high


def is_dtype(word: str) -> bool:
    """Whether a word starts a class of dtypes."""
    short = word.removeprefix("torch.")
    return SPELLINGS.get(short, short) in {*DTYPE_NAMES, *DTYPE_CLASSES} or word in ("f", "i", "u", "c")


def as_float(value: float | None) -> float | None:
    """Return a bound as a float."""
    return None if value is None else float(value)


def _number_of(bound: Any) -> Any:
    return bound.evaluate({}) if isinstance(bound, SizeExpression) else bound

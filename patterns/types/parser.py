"""From the text of a type to the type: `parse_variable("x", "const f32 [*B, K] | none")`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .dtypes import DTYPE_CLASSES, DTYPE_NAMES, DtypeClass
from .literals import Choice, Literal
from .operators import FAMILIES
from .scanner import Token, VariableSyntaxError, did_you_mean
from .size_parser import integer, parse_choice, parse_dims, parse_size
from .sizes import BroadcastDim, SizeExpression
from .tensor_parser import TensorParser, as_float, is_dtype
from .variables import (
    QUALIFIERS,
    AxesVariable,
    AxisVariable,
    BoolVariable,
    ChoiceVariable,
    DimsVariable,
    DtypeVariable,
    FactorsVariable,
    FloatVariable,
    IntVariable,
    ListVariable,
    OperatorVariable,
    PartitionVariable,
    PermutationVariable,
    ScalarVariable,
    ShapeVariable,
    StringVariable,
    TensorListVariable,
    TensorVariable,
    Variable,
)

_MAX_CHOICES = 200


def parse_variable(name: str, text: str) -> Variable:
    """Return the type that a text describes.

    Args:
        name: Name of the variable.
        text: Its type, `f32 [*B, K]`.

    Raises:
        VariableSyntaxError: The text is no type; the error has the column inside the text.
    """
    return _VariableParser(name, text).parse()


class _VariableParser(TensorParser):
    def parse(self) -> Variable:
        scanner = self.scanner
        allows_none = False
        if scanner.token.text in ("none", "None") and scanner.peek().text in ("|", "or"):
            scanner.take()
            scanner.take()
            allows_none = True
        variable = self._type()
        while scanner.accept("|", "or"):
            token = scanner.name("none after '|'")
            if token.text not in ("none", "None"):
                scanner.fail(f"after '|' stands none, not {token.text!r}", token, hint=_union_hint(token, variable))
            allows_none = True
        if scanner.token.kind != "end":
            scanner.fail(f"{scanner.token.shown} is not expected here", hint=_surplus_hint(scanner.token, variable))
        return replace(variable, allows_none=allows_none) if allows_none else variable

    def _type(self) -> Variable:
        scanner = self.scanner
        token = scanner.token
        if token.kind == "end":
            scanner.fail("a type is expected", hint='such as "f32 [*S]", "int in [0, 3]" or "bool"')
        if token.text == "scalar" and is_dtype(scanner.peek().text):
            scanner.take()
            return self._scalar_of_dtype()
        starter = _STARTERS.get(token.text)
        if starter is None or (token.text == "bool" and self._bool_is_dtype()):
            return self.tensor()
        scanner.take()
        return starter(self, token)

    def _bool_is_dtype(self) -> bool:
        follower, after = self.scanner.peek(), self.scanner.peek(2)
        if follower.text == "|":
            return after.text not in ("none", "None")
        return follower.text in ("[", "{", "layouts")

    # Kinds with a word of their own

    def _int(self, word: Token) -> Variable:
        if self.scanner.token.text == "[":
            hint = "a tensor of integers is i64, i32 or i*; ints is a list of numbers"
            self.scanner.fail("int is one number", word, hint=hint)
        if self.scanner.token.text == "in" and self.scanner.peek().text == "{":
            self.scanner.take()
            return ChoiceVariable(name=self.name, choices=tuple(self.value_set().values))
        low, high = self.size_bounds()
        return IntVariable(name=self.name, low=low, high=high)

    def _float(self, word: Token) -> Variable:
        if self.scanner.token.text == "[":
            self.scanner.fail("float is one number", word, hint="a tensor of floats is f32, f16 or f*")
        low, high = self.number_bounds()
        return FloatVariable(name=self.name, low=as_float(low), high=as_float(high))

    def _scalar(self, word: Token) -> Variable:
        low, high = self.number_bounds()
        return ScalarVariable(name=self.name, low=as_float(low), high=as_float(high))

    def _scalar_of_dtype(self) -> Variable:
        names = self.dtype_class().names
        if all(DTYPE_NAMES[each].is_floating_point for name in names for each in DTYPE_CLASSES.get(name, (name,))):
            low, high = self.number_bounds()
            return FloatVariable(name=self.name, low=as_float(low), high=as_float(high))
        if names == ("bool",):
            return BoolVariable(name=self.name)
        if all(name.startswith(("i", "u")) for name in names):
            low, high = self.size_bounds()
            return IntVariable(name=self.name, low=low, high=high)
        low, high = self.number_bounds()
        return ScalarVariable(name=self.name, low=as_float(low), high=as_float(high))

    def _bool(self, word: Token) -> Variable:
        return BoolVariable(name=self.name)

    def _string(self, word: Token) -> Variable:
        if not self.scanner.accept("in"):
            return StringVariable(name=self.name)
        found: dict[str, None] = {}
        for choice, token in self._items():
            if not isinstance(choice, Literal) or choice.kind != "str":
                self.scanner.fail("a text in quotes is expected", token, hint=f"write '{token.text}'")
            found[choice.value] = None
        return StringVariable(name=self.name, choices=tuple(found))

    def _list(self, word: Token) -> Variable:
        scanner = self.scanner
        if word.text == "list" and scanner.token.text != "in":
            return self._list_of()
        count = None if self._list_ends() else parse_size(scanner)
        return self._list_with("int" if word.text == "list" else word.text.removesuffix("s"), count)

    def _list_of(self) -> Variable:
        scanner = self.scanner
        count = None if scanner.token.text == "of" or self._list_ends() else parse_size(scanner)
        if not scanner.accept("of"):
            return self._list_with("int", count)
        word = scanner.token
        element = word.text.removesuffix("s")
        if element in ("int", "float", "bool") and not (element == "bool" and self._bool_is_dtype()):
            scanner.take()
            return self._list_with(element, count)
        return TensorListVariable(name=self.name, element=self.tensor(), count=count)

    def _list_ends(self) -> bool:
        return self.scanner.token.kind == "end" or self.scanner.token.text in ("in", "|", "or", ">=", "<=")

    def _list_with(self, element: str, count: SizeExpression | None) -> Variable:
        low: Any
        high: Any
        low, high = (None, None) if element == "bool" else self.size_bounds() if element == "int" else (
            self.number_bounds()
        )  # fmt: skip
        if element == "float":
            low, high = as_float(low), as_float(high)
        return ListVariable(name=self.name, element=element, count=count, low=low, high=high)

    def _choice(self, word: Token) -> Variable:
        if word.text == "one":
            self.scanner.expect("of", "after 'one'")
        self.scanner.accept("in", "of")
        found = {choice: None for choice, _ in self._items()}
        return ChoiceVariable(name=self.name, choices=tuple(found))

    def _items(self) -> list[tuple[Choice, Token]]:
        """Parse values with commas between them, in brackets of any kind or in none."""
        scanner = self.scanner
        closing = {"[": "]", "(": ")", "{": "}"}.get(scanner.token.text)
        if closing == "]" and self._is_followed_by_list():
            closing = None
        if closing is not None:
            scanner.take()
        items: list[tuple[Choice, Token]] = []
        while True:
            token = scanner.token
            if token.kind == "end" or (closing and token.text == closing):
                scanner.fail("a value is expected", token)
            items.append((parse_choice(scanner), token))
            if len(items) > _MAX_CHOICES:
                scanner.fail(f"more than {_MAX_CHOICES} values", token)
            if not scanner.accept(","):
                break
        if closing is not None:
            scanner.expect(closing, "after the values")
        return items

    def _is_followed_by_list(self) -> bool:
        """Whether a bracket closes before a comma: `[0, 1], [1, 0]` are two lists, `[0, 1]` are two values."""
        depth = ahead = 0
        while True:
            token = self.scanner.peek(ahead)
            depth += (token.text == "[") - (token.text == "]")
            ahead += 1
            if depth == 0 or token.kind == "end":
                return self.scanner.peek(ahead).text == ","

    def _about(self, kind: Callable[..., Variable]) -> Callable[[Token], Variable]:
        def parse(word: Token) -> Variable:
            scanner = self.scanner
            has_bracket = scanner.accept("(") is not None
            if not has_bracket and not scanner.accept("of"):
                scanner.fail(f"'of' is expected after {word.text!r}, not {scanner.token.shown}",
                             hint=f"write {word.text} of x")  # fmt: skip
            of = scanner.name("the name of a tensor or a shape").text
            if has_bracket:
                scanner.expect(")", "after the name")
            return kind(name=self.name, of=of)

        return parse

    def _partition(self, word: Token) -> Variable:
        scanner = self.scanner
        variable = self._about(PartitionVariable)(word)
        assert isinstance(variable, PartitionVariable)
        scanner.expect("at", "after the tensor, before the dim")
        sign = -1 if scanner.accept("-") else 1
        is_number = scanner.token.kind == "number"
        at = sign * integer(scanner.take()) if is_number else scanner.name("a dim").text
        return replace(variable, at=at)

    def _dims(self, word: Token) -> Variable:
        scanner = self.scanner
        start = scanner.token
        dims = parse_dims(scanner)
        if any(isinstance(dim, BroadcastDim) for dim in dims):
            scanner.fail("a shape cannot be named by what broadcasts to it", start, hint="write sizes, or *S")
        return DimsVariable(name=self.name, dims=dims)

    def _shape(self, word: Token) -> Variable:
        return self._dims(word) if self.scanner.token.text == "[" else ShapeVariable(name=self.name)

    def _dtype(self, word: Token) -> Variable:
        scanner = self.scanner
        if not scanner.accept("in"):
            same = scanner.token.text == "="
            return DtypeVariable(name=self.name, dtypes=self.dtype_class() if same else None)
        closing = {"[": "]", "{": "}", "(": ")"}.get(scanner.token.text)
        if closing is None:
            dtypes = self.dtype_class()
            names = list(dtypes.names)
            if dtypes.same_as is not None:
                return DtypeVariable(name=self.name, dtypes=dtypes)
        else:
            scanner.take()
            names = [self.dtype_name()]
        while scanner.accept(","):
            names.append(self.dtype_name())
        if closing is not None:
            scanner.expect(closing, "after the dtypes")
        return DtypeVariable(name=self.name, dtypes=DtypeClass(tuple(dict.fromkeys(names))))

    def _operator(self, word: Token) -> Variable:
        scanner = self.scanner
        if not scanner.accept("in"):
            scanner.fail("'in' is expected after 'op'", hint=f"op in {FAMILIES[0]}")
        closing = {"[": "]", "{": "}", "(": ")"}.get(scanner.token.text)
        if closing is not None:
            scanner.take()
        families: dict[str, None] = {}
        while True:
            token = scanner.token
            if token.kind != "name" or ("." not in token.text and token.text not in FAMILIES):
                hint = did_you_mean(token.text, FAMILIES) or f"families are {', '.join(FAMILIES)}"
                scanner.fail(f"{token.shown} is no family of operators", token, hint=hint)
            families[scanner.take().text] = None
            if not scanner.accept(",", "|"):
                break
        if closing is not None:
            scanner.expect(closing, "after the families")
        return OperatorVariable(name=self.name, families=tuple(families))


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


_Starter = Callable[[_VariableParser, Token], Variable]


def _about_starter(kind: Callable[..., Variable]) -> _Starter:
    return lambda parser, word: parser._about(kind)(word)


_STARTERS: dict[str, _Starter] = {
    **dict.fromkeys(("int",), _VariableParser._int),
    **dict.fromkeys(("float",), _VariableParser._float),
    **dict.fromkeys(("scalar",), _VariableParser._scalar),
    **dict.fromkeys(("bool",), _VariableParser._bool),
    **dict.fromkeys(("str", "string"), _VariableParser._string),
    **dict.fromkeys(("ints", "floats", "bools", "list"), _VariableParser._list),
    **dict.fromkeys(("one_of", "oneof", "one"), _VariableParser._choice),
    **dict.fromkeys(("perm", "permutation"), _about_starter(PermutationVariable)),
    **dict.fromkeys(("axes",), _about_starter(AxesVariable)),
    **dict.fromkeys(("axis", "dim"), _about_starter(AxisVariable)),
    **dict.fromkeys(("factors",), _about_starter(FactorsVariable)),
    **dict.fromkeys(("partition",), _VariableParser._partition),
    **dict.fromkeys(("dims",), _VariableParser._dims),
    **dict.fromkeys(("shape",), _VariableParser._shape),
    **dict.fromkeys(("dtype",), _VariableParser._dtype),
    **dict.fromkeys(("op", "operator"), _VariableParser._operator),
}

_VariableParser.words = tuple(_STARTERS)

__all__ = ["VariableSyntaxError", "parse_variable"]

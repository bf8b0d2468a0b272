"""Literals of traces: what is decided about each, under which name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from exirkit.ir import Diagnostic, UsageError, same_argument
from exirkit.patterns.books.loading import mark
from exirkit.patterns.matching.arguments import rounds_to, same_literal, shortest_number
from exirkit.patterns.operators.arguments import default_of
from exirkit.patterns.operators.table import CONSTANTS, name_of, traits_of
from exirkit.patterns.types.parser import parse_variable
from exirkit.patterns.types.scanner import VariableSyntaxError

_SIZE_NAMES = ("N", "K", "M", "L", "P", "Q", "R", "T")
_NAMES = {value: name for name, value in CONSTANTS.items() if not isinstance(value, float)}
WAYS = "exact, any, default, sizes, a type such as 'float in [0.1, 2.0]', or the name of another literal"


@dataclass(frozen=True)
class TracedLiteral:
    """A literal in a traced pattern or replacement.

    Attributes:
        name: Name under which it is decided on.
        value: Its value in the trace, as text of the rule language.
        argument: `dim of aten._softmax.default`.
        default: Default of that argument as text, if it has one.
        is_pattern: It is in the pattern.
    """

    name: str
    value: str
    argument: str
    default: str | None
    is_pattern: bool


@dataclass
class Decisions:
    """What is decided about the literals of one rule, and which are left.

    Attributes:
        given: Decision by name: one of `WAYS`.
        scalars: Example values of arguments that are not tensors; literals that are equal take their names.
        sizes: Names of sizes in the types of tensors, by size.
        taken: Names that mean something else.
        literals: Every literal that was met, by name.
        wildcards: Types of the literals that became wildcards.
        open: Names of those that are undecided.
        defaults: What the pattern asks for without saying it: arguments that the trace leaves out.
    """

    given: Mapping[str, str]
    scalars: Mapping[str, Any]
    sizes: Mapping[int, str]
    taken: set[str]
    literals: dict[str, TracedLiteral] = field(default_factory=dict)
    wildcards: dict[str, str] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)

    def example_of(self, constant: torch.Tensor) -> Any:
        """Return the number that became a constant: an example that is rounded to it, or the shortest such number."""
        found = constant.item()
        if type(found) is float:
            for one in self.scalars.values():
                if type(one) in (int, float) and rounds_to(one, found, constant.dtype):
                    return one
        return shortest_number(constant)

    def written(self, op: Any, argument: Any, value: Any, *, first: str | None, is_pattern: bool) -> str | None:
        """Return the text that stands for a literal, or None if the argument is left out.

        Args:
            op: Operator that is called.
            argument: Argument of its schema.
            value: The literal.
            first: Name of the input that is the first argument of the call, if it is one.
            is_pattern: The call is in the pattern.
        """
        name = self._name(op, argument, value, is_pattern)
        default = literal_text(default_of(argument)) if argument.has_default_value() else None
        text = literal_text(value)
        literal = TracedLiteral(name, text, f"{argument.name} of {name_of(op)}", default, is_pattern)
        self.literals.setdefault(name, literal)
        way = self.given.get(name)
        if way is None:
            self.open += [] if name in self.open else [name]
            return mark(name, text)
        if way == "exact":
            return text
        if way == "default":
            if not argument.has_default_value() or not same_argument(value, default_of(argument)):
                raise _impossible(name, f"{text} is not the default of {self.literals[name].argument}")
            return None
        if way == "sizes":
            return self._sizes(name, value)
        return self._wildcard(name, way, is_pattern, _type_of(op, argument, value, first), text)

    def left_out(self, op: Any, argument: Any, *, first: str | None) -> str | None:
        """Return the wildcard for an argument that the trace of a pattern leaves out, or None: then it is the default.

        Torch leaves out what has its default, written or not. The rule then asks for the default, which is told; a
        decision can widen it.
        """
        value = default_of(argument)
        text = literal_text(value)
        name = unused(f"{operator_word(op)}_{argument.name}", {*self.taken, *self.literals})
        self.literals[name] = TracedLiteral(name, text, f"{argument.name} of {name_of(op)}", text, True)
        way = self.given.get(name, "default")
        if way in ("default", "exact"):
            said = f"{name} ({argument.name}={text} of {name_of(op)})"
            self.defaults.append(said)
            return None
        return self._wildcard(name, way, True, _type_of(op, argument, value, first), text)

    def check_all_met(self) -> None:
        """Reject decisions about literals that are not there.

        Raises:
            UsageError: EK265.
        """
        for name in self.given:
            if name not in self.literals:
                close = difflib.get_close_matches(name, list(self.literals), n=1)
                known = ", ".join(self.literals) or "no literals"
                raise UsageError(
                    Diagnostic(
                        code="EK265",
                        message=f"the trace has no literal {name!r}",
                        hint=f"did you mean {close[0]}?" if close else f"it has {known}",
                    )
                )

    def _name(self, op: Any, argument: Any, value: Any, is_pattern: bool) -> str:
        for name, example in self.scalars.items():
            if _is_equal(example, value):
                return name
        base = f"{'' if is_pattern else 'new_'}{operator_word(op)}_{argument.name}"
        return unused(base, {*self.taken, *self.literals})

    def _sizes(self, name: str, value: Any) -> str:
        values = value if isinstance(value, list | tuple) else [value]
        if not any(type(one) is int and one in self.sizes for one in values):
            raise _impossible(name, f"{literal_text(value)} has no size of an example in it")
        parts = [self.sizes.get(one, literal_text(one)) if type(one) is int else literal_text(one) for one in values]
        return f"[{', '.join(parts)}]" if isinstance(value, list | tuple) else parts[0]

    def _wildcard(self, name: str, way: str, is_pattern: bool, usual: str | None, text: str) -> str:
        if name in self.wildcards:
            return name
        if way in self.wildcards:
            return way
        if way in self.open:
            # It stands for what is not decided itself.
            self.open += [] if name in self.open else [name]
            return mark(name, text)
        if not is_pattern:
            raise _impossible(name, "it is in the replacement: only what the pattern binds can stand there")
        kind = usual if way == "any" else way
        if kind is None:
            raise _impossible(name, f"no type of variables fits {text}")
        try:
            parse_variable(name, kind)
        except VariableSyntaxError as error:
            raise _impossible(name, f"{way!r} is not a decision: {error.message}") from None
        self.wildcards[name] = kind
        return name


def literal_text(value: Any) -> str:
    """Return a literal as the rule language writes it.

    Raises:
        TypeError: The language has no such literal.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal_text(one) for one in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout | torch.device):
        return _NAMES.get(value, str(value))
    raise TypeError(f"the rule language has no literal for {value!r}")


def operator_word(op: Any) -> str:
    """Return a word for the results of an operator: `softmax` for `aten._softmax.default`."""
    return str(op._schema.name).rpartition("::")[2].strip("_")


def unused(base: str, taken: Iterable[str]) -> str:
    """Return a name like `base` that is not taken."""
    names = set(taken)
    number, name = 1, base
    while name in names:
        number += 1
        name = f"{base}_{number}"
    return name


def _type_of(op: Any, argument: Any, value: Any, first: str | None) -> str | None:
    if first is not None and argument.name in traits_of(op).dims:
        return f"{'axes' if isinstance(value, list | tuple) else 'axis'} of {first}"
    kinds: list[tuple[Any, str]] = [
        (bool, "bool"), (int, "int"), (float, "float"), (str, "str"), (torch.dtype, "dtype"),
    ]  # fmt: skip
    for kind, text in kinds:
        if isinstance(value, kind):
            return text
    if isinstance(value, list | tuple) and value:
        for element, text in ((int, "ints"), (float, "floats")):
            if all(type(one) is element for one in value):
                return text
    return None


def _is_equal(example: Any, value: Any) -> bool:
    """Whether a literal is the value of an argument; lowering may have made a float of an integer."""
    if isinstance(example, bool) or isinstance(value, bool) or not isinstance(example, int | float):
        return same_literal(example, value)
    return isinstance(value, int | float) and value == example


def _impossible(name: str, why: str) -> UsageError:
    return UsageError(Diagnostic(code="EK265", message=f"{name} cannot be decided like this: {why}", expected=WAYS))


def size_names(shapes: Iterable[Sequence[Any]], taken: Collection[str]) -> dict[int, str]:
    """Name the sizes in order of appearance; a size of one stays one, since it may broadcast."""
    names: dict[int, str] = {}
    for shape in shapes:
        for size in shape:
            if isinstance(size, int) and size > 1 and size not in names:
                used = {*taken, *names.values()}
                free = next((one for one in _SIZE_NAMES if one not in used), None)
                names[size] = free or unused("D", used)
    return names

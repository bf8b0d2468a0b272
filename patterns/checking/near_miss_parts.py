"""The parts of a rule that must be shown to be necessary, and what could replace them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.terms import Alternatives, Call, Term, Variable, children, walk
from exirkit.patterns.syntax.terms import Literal as LiteralTerm

from .pattern_execution import Shape, shapes_of

Kind = Literal["guard", "literal", "default", "repeated"]

_USERS = re.compile(r"\s*users\(\s*(\w+)\s*\)\s*==\s*1\s*")
# Words that ask the program around a match, or the target; no values of a match decide what they say.
_OF_THE_GRAPH = re.compile(
    r"\b(users|is_output|is_input|in_module|module_type|from_rule|tag|consumed_by|produced_by|option|op_legal|shared"
    r"|mutable|param|buffer|const|only_index|pure|same_graph|static|distance|no_mutation_between)\s*\(|\b(target|op)\s*[.(]"
)


@dataclass(frozen=True)
class Part:
    """A guard, a literal, a default that is left out, or a variable that the pattern has more than once.

    Attributes:
        kind: Which of them.
        text: How it is named in reports.
        index: Number of the guard.
        term: The literal, written or a default.
        others: What is tried instead of the literal.
        users_of: Name of the value of which a guard demands that nothing else uses it.
        is_structural: It asks for something that no values can show.
    """

    kind: Kind
    text: str
    index: int = 0
    term: LiteralTerm | None = None
    others: tuple[Any, ...] = ()
    users_of: str | None = None
    is_structural: bool = False


def parts_of(rule: CompiledRule) -> list[Part]:
    """Return the parts of a rule, always in the same order."""
    parts = [_guard(index, guard.text) for index, guard in enumerate(rule.guards)]
    parts += _literals(rule)
    parts += [Part("repeated", name) for name in repeated_variables(rule)]
    return parts


def _guard(index: int, text: str) -> Part:
    users = _USERS.fullmatch(text)
    if users is not None:
        return Part("guard", text, index, users_of=users.group(1))
    return Part("guard", text, index, is_structural=_OF_THE_GRAPH.search(text) is not None)


def _literals(rule: CompiledRule) -> Iterator[Part]:
    seen: set[int] = set()
    for root in rule.pattern.roots:
        for term in walk(root):
            if not isinstance(term, Call):
                continue
            types = {one.name: str(one.real_type) for one in term.op._schema.arguments}
            for name, argument in term.arguments.items():
                if isinstance(argument, LiteralTerm) and id(argument) not in seen:
                    seen.add(id(argument))
                    others = others_of(argument.value, types.get(name, ""))
                    text = f"{name_of(term.op)}: {name} = {argument.value!r}"
                    yield Part("default" if argument.is_default else "literal", text, 0, argument, tuple(others))


_IN_PLACE_OF_NOTHING: dict[str, list[Any]] = {
    "Optional[ScalarType]": [torch.float64, torch.int32],
    "Optional[number]": [0.5, -1],
    "Optional[float]": [0.5, 2.0],
    "Optional[int]": [1, 2],
    "Optional[bool]": [True],
    "Optional[List[int]]": [[0], [2, 2]],
    "Optional[List[float]]": [[1.0, 1.0]],
    "Optional[MemoryFormat]": [torch.channels_last, torch.contiguous_format],
}


def others_of(value: Any, type_name: str = "") -> list[Any]:
    """Return values that a literal could be taken for.

    Args:
        value: The literal.
        type_name: Type of the argument in the schema, for none.
    """
    if value is None:
        return _IN_PLACE_OF_NOTHING.get(type_name, [])
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, -value] if value else [1, -1, 2]
    if isinstance(value, float):
        return [value + 0.5, -value, value * 2] if value else [1.0, -0.5]
    if isinstance(value, str):
        return ["tanh", "none"] if value in ("none", "tanh") else [f"{value}_"]
    if isinstance(value, torch.dtype):
        return [one for one in (torch.float64, torch.int32, torch.float16) if one != value]
    if isinstance(value, list) and value and all(type(one) is int for one in value):
        return [[value[0] + 1, *value[1:]], value[::-1]]
    return []


def others_than(value: Any) -> list[Any]:
    """Return values of the same type as one that a variable has, and different."""
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bool:
            return [~value]
        return [value.flip(0).add(1) if value.dim() else value + 1]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1]
    if isinstance(value, list) and value and all(type(one) is int for one in value):
        changed = [value[::-1], [value[0] + 1, *value[1:]], [value[0] - 1, *value[1:]]]
        return [one for one in changed if one != value]
    return []


def repeated_variables(rule: CompiledRule) -> Sequence[str]:
    """Return the variables that some way through the pattern meets more than once."""
    most: Counter[str] = Counter()
    for shape in shapes_of(rule.pattern):
        most |= _occurrences(rule, shape)
    return [name for name, count in most.items() if count > 1]


def _occurrences(rule: CompiledRule, shape: Shape) -> Counter[str]:
    """Count the variables on one way; a call that several others use is one call."""
    counts: Counter[str] = Counter()
    seen: set[int] = set()
    pending: list[Term | Any] = list(rule.pattern.roots)
    while pending:
        one = pending.pop()
        if isinstance(one, Variable):
            counts[one.name] += 1
            continue
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Alternatives):
            pending.append(one.branches[shape.branches.get(id(one), 0)][1])
        else:
            pending += children(one)
    return counts

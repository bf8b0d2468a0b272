"""Arguments that a pattern leaves open: `_`, and what `...` stands for. Trials have to give them every value."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.ir import operators_with
from exirkit.patterns.operators.arguments import default_of
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.terms import Anything, Call, Pattern, walk

_INDIFFERENT = frozenset({"device", "generator", "layout", "memory_format", "non_blocking", "pin_memory"})
_LIMITS = {"quant_min": (-128, -127, 0), "quant_max": (127, 100)}
_TEXTS = {"rounding_mode": (None, "floor", "trunc"), "approximate": ("none", "tanh"), "reduction": (1, 2)}


@dataclass(frozen=True)
class OpenArgument:
    """One argument that may be anything.

    Attributes:
        call: Identity of the call, as in `Shape.opened`.
        op: Name of the operator.
        name: Name of the argument.
        choices: Values that trials give it, its default among them.
        is_required: It has no default.
    """

    call: int
    op: str
    name: str
    choices: tuple[Any, ...]
    is_required: bool

    @property
    def key(self) -> tuple[int, str]:
        """Key in `Shape.opened`."""
        return self.call, self.name


def open_arguments(pattern: Pattern) -> tuple[OpenArgument, ...]:
    """Return the arguments that a pattern leaves open and that trials can give values."""
    calls: dict[int, Call] = {}
    for root in pattern.roots:
        calls.update({id(term): term for term in walk(root) if isinstance(term, Call)})
    return tuple(one for call in calls.values() for one in _of_call(call))


def chosen_values(arguments: tuple[OpenArgument, ...], rng: random.Random) -> dict[tuple[int, str], Any]:
    """Return a value for each open argument; one of three is left at its default."""
    return {one.key: rng.choice(one.choices) for one in arguments if one.is_required or rng.random() < 0.67}


def least_values(arguments: tuple[OpenArgument, ...]) -> dict[tuple[int, str], Any]:
    """Return values for those open arguments only that cannot be left out."""
    return {one.key: one.choices[0] for one in arguments if one.is_required}


def shown_values(arguments: tuple[OpenArgument, ...], opened: dict[tuple[int, str], Any]) -> dict[str, str]:
    """Return the values of open arguments as text, by argument and operator."""
    return {f"{one.name} of {one.op}": str(opened[one.key]) for one in arguments if one.key in opened}


def _of_call(call: Call) -> Iterator[OpenArgument]:
    for argument in call.op._schema.arguments:
        is_open = isinstance(call.arguments.get(argument.name, Anything()), Anything)
        if not is_open or argument.name in _INDIFFERENT:
            continue
        # Programs say the dtype of what they create, and a result of another dtype never replaces it.
        if argument.name == "dtype" and call.op in operators_with("creates"):
            continue
        has_default = argument.has_default_value()
        choices = _choices(argument.name, str(argument.type), default_of(argument) if has_default else None)
        if choices:
            yield OpenArgument(id(call), name_of(call.op), argument.name, choices, not has_default)


def _choices(name: str, kind: str, default: Any) -> tuple[Any, ...]:
    """Return values for an argument of a type; none for tensors, and for what changes no value."""
    optional = kind.startswith("Optional[")
    kind = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
    if name in _LIMITS or name in _TEXTS:
        return (*_LIMITS.get(name, ()), *_TEXTS.get(name, ()))
    if kind == "bool":
        made: tuple[Any, ...] = (False, True)
    elif kind in ("number", "Scalar", "float"):
        made = (2, -1, 0.5) if kind != "float" else (2.0, -1.0, 0.5)
    elif kind in ("int", "SymInt"):
        # Dtypes are integers to schemas, and nothing else that may be missing is of this kind.
        made = (torch.float32, torch.int32, torch.float64) if name == "dtype" else (0, 1, 2, -1)
    elif kind in ("ScalarType",):
        made = (torch.float32, torch.int32, torch.float64)
    elif kind in ("List[int", "List[SymInt") or kind.startswith(("List[int]", "List[SymInt]")):
        length = len(default) if isinstance(default, list | tuple) else 1
        made = tuple([number] * length for number in (0, 1, 2)) if length else ()
    else:
        return ()
    return (default, *(one for one in made if one != default)) if optional or default is not None else made

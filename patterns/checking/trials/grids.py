"""Trials of rules that ask `grid(x)`: tensors drawn on a grid, numbers that guards compare with it, and programs."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.ir import register_quantized_decomposed
from exirkit.patterns.functions.grids import Grid, quantised
from exirkit.patterns.operators.table import DTYPES
from exirkit.patterns.propagation.domains import GRIDS

_DRAWS = 24
_FIELDS = ("scale", "zero_point", "quant_min", "quant_max", "ints", "axis")


@dataclass(frozen=True)
class EqualField:
    """A variable of a rule that a condition compares with a field of the grid of a tensor.

    Attributes:
        variable: Its name.
        tensor: Name of the tensor.
        field: Name of the field.
        is_stored: The variable is a stored tensor whose elements are compared.
        literal: What stands there instead of a variable, then without a name.
    """

    variable: str
    tensor: str
    field: str
    is_stored: bool = False
    literal: Any = None


def asked_for(guards: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the tensors whose grids conditions ask for, each once."""
    found: dict[str, None] = {}
    for text in guards:
        for node in _nodes(text):
            name = _tensor_of(node)
            if name is not None:
                found.setdefault(name)
    return tuple(found)


def equal_fields(guards: Iterable[str]) -> list[EqualField]:
    """Return which variables of a rule conditions compare with fields of grids."""
    found: list[EqualField] = []
    for text in guards:
        for node in _nodes(text):
            if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
                continue
            for one, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
                found += _compared(one, other)
    return found


def _compared(one: ast.expr, other: ast.expr) -> Iterator[EqualField]:
    """Yield what follows from `grid(x).scale == s`, and from `grid(x) == grid(s, z, ...)`."""
    name = _tensor_of(one)
    if name is not None and isinstance(other, ast.Call) and ast.unparse(other.func) == "grid":
        for field, part in zip(_FIELDS, other.args, strict=False):
            yield from _given(part, name, field)
    if isinstance(one, ast.Attribute) and one.attr in _FIELDS:
        name = _tensor_of(one.value)
        if name is not None:
            yield from _given(other, name, one.attr)


def _given(part: ast.expr, tensor: str, field: str) -> Iterator[EqualField]:
    match part:
        case ast.Name(id=name) if name in DTYPES:
            yield EqualField("", tensor, field, literal=DTYPES[name])
        case ast.Name(id=name):
            yield EqualField(name, tensor, field)
        case ast.Call(func=ast.Name(id="elements"), args=[ast.Name(id=name)], keywords=[]):
            yield EqualField(name, tensor, field, is_stored=True)
        case ast.Constant(value=int() as value):
            yield EqualField("", tensor, field, literal=value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            yield EqualField("", tensor, field, literal=-value)


def with_grids(names: dict[str, Any], tensors: Iterable[str], equal: Iterable[EqualField], rng: random.Random) -> None:
    """Draw tensors again, on grids, and make variables those of the grids, now and then not."""
    equal = list(equal)
    for name in tensors:
        value = names.get(name)
        if isinstance(value, torch.Tensor):
            names[name] = _drawn(value, [one for one in equal if one.tensor == name and not one.variable], rng)
    for one in equal:
        grid = _grid_of(names.get(one.tensor))
        if grid is not None and one.variable in names and rng.random() < 0.9:
            names[one.variable] = _with_field(names[one.variable], getattr(grid, one.field), one.is_stored)


def _drawn(value: torch.Tensor, literals: Sequence[EqualField], rng: random.Random) -> torch.Tensor:
    """Return a tensor on a grid whose fields are what conditions say, now and then on another one."""
    made = GRIDS.drawn(value, rng)
    for _ in range(_DRAWS if literals and rng.random() < 0.9 else 0):
        grid = _grid_of(made)
        if grid is not None and all(getattr(grid, one.field) == one.literal for one in literals):
            break
        made = GRIDS.drawn(value, rng)
    return made


def _with_field(old: Any, field: Any, is_stored: bool) -> Any:
    """Return what makes a comparison true; the variable as it was if its type does not allow it."""
    if not is_stored:
        return old if field is None or isinstance(field, tuple) else field
    if not isinstance(old, torch.Tensor) or not isinstance(field, tuple) or old.shape != (len(field),):
        return old
    return torch.tensor(field, dtype=old.dtype)


def _grid_of(value: Any) -> Grid | None:
    found = GRIDS.of_tensor(value) if isinstance(value, torch.Tensor) else None
    return found if isinstance(found, Grid) else None


def known_grids(names: Mapping[str, Any], inputs: Iterable[str]) -> dict[str, Grid]:
    """Return the grids of inputs that were drawn on one."""
    found = {name: _grid_of(names[name]) for name in inputs}
    return {name: grid for name, grid in found.items() if grid is not None}


def integers_of(value: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Return the integers that a program is given for a tensor on a grid."""
    return quantised(value, grid)


def from_integers(integers: torch.Tensor, grid: Grid, channels: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the tensor, by the call from which a graph knows its grid.

    Args:
        integers: What the program is given.
        grid: The grid.
        channels: Stored scales and zero points of a grid per channel.
    """
    register_quantized_decomposed()
    ops = torch.ops.quantized_decomposed
    limits = grid.quant_min, grid.quant_max, grid.ints
    found: torch.Tensor
    if grid.axis is None:
        found = ops.dequantize_per_tensor.default(integers, grid.scale, grid.zero_point, *limits)
    else:
        found = ops.dequantize_per_channel.default(integers, *channels, grid.axis, *limits)
    return found


def _nodes(text: str) -> Iterable[ast.AST]:
    try:
        return list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except SyntaxError:
        return []


def _tensor_of(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Name(id="grid"), args=[ast.Name(id=name)], keywords=[]):
            return name
    return None

"""Trials of rules that ask `grid(x)`: tensors drawn on a grid, numbers that guards compare with it, and programs."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from exirkit.ir import register_quantized_decomposed
from exirkit.patterns.functions.grids import Grid, quantised
from exirkit.patterns.propagation.domains import GRIDS

_FIELDS = {"scale": "scale", "zero_point": "zero_point", "quant_min": "quant_min", "quant_max": "quant_max"}
Repair = Callable[[dict[str, Any]], None]


def asked_for(guards: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the tensors whose grids conditions ask for, each once."""
    found: dict[str, None] = {}
    for text in guards:
        for node in _nodes(text):
            name = _tensor_of(node)
            if name is not None:
                found.setdefault(name)
    return tuple(found)


def equal_fields(guards: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return which numbers of a rule conditions compare with fields of grids: number, tensor, field."""
    found: list[tuple[str, str, str]] = []
    for text in guards:
        for node in _nodes(text):
            if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
                continue
            for one, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
                if isinstance(one, ast.Attribute) and isinstance(other, ast.Name) and one.attr in _FIELDS:
                    name = _tensor_of(one.value)
                    found += [] if name is None else [(other.id, name, one.attr)]
    return found


def with_grids(
    names: dict[str, Any], tensors: Iterable[str], equal: Iterable[tuple[str, str, str]], rng: random.Random
) -> None:
    """Draw tensors again, on grids, and make numbers those of the grids, now and then not."""
    for name in tensors:
        value = names.get(name)
        if isinstance(value, torch.Tensor):
            names[name] = GRIDS.drawn(value, rng)
    for number, name, field in equal:
        grid = GRIDS.of_tensor(names[name]) if isinstance(names.get(name), torch.Tensor) else None
        if grid is not None and number in names and rng.random() < 0.9:
            names[number] = getattr(grid, field)


def known_grids(names: Mapping[str, Any], inputs: Iterable[str]) -> dict[str, Grid]:
    """Return the grids of inputs that were drawn on one."""
    found = {name: GRIDS.of_tensor(names[name]) for name in inputs if isinstance(names.get(name), torch.Tensor)}
    return {name: grid for name, grid in found.items() if grid is not None}


def integers_of(value: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Return the integers that a program is given for a tensor on a grid."""
    return quantised(value, grid)


def from_integers(integers: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Return the tensor, by the call from which a graph knows its grid."""
    register_quantized_decomposed()
    dequantize = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    found: torch.Tensor = dequantize(integers, grid.scale, grid.zero_point, grid.quant_min, grid.quant_max, grid.ints)
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

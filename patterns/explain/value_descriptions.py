"""Values of a program in words, spelt as rules spell them: `%mul, aten.mul.Tensor, f32 [2, 3]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.matching.arguments import scalar_behind
from exirkit.patterns.operators.table import DTYPES, name_of
from exirkit.patterns.syntax.expressions import SYMBOLIC

_MOST_ELEMENTS = 12
_SPELLINGS = {dtype: name for name, dtype in DTYPES.items()}
_KINDS = (("param", "a parameter"), ("buffer", "a buffer"), ("input", "an input"), ("const", "a constant"))


def shown(value: Any) -> str:
    """Return a value without saying where it comes from: `%x`, `[2, 3]`, `f32`, `aten.add.Tensor`."""
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, torch.dtype):
        return _SPELLINGS.get(value, str(value))
    if isinstance(value, torch.Tensor):
        return tensor_text(value)
    if isinstance(value, list | tuple):
        return _listed([shown(one) for one in value])
    if isinstance(value, SYMBOLIC):
        return str(value)
    if hasattr(value, "_schema"):
        return name_of(value)
    return repr(value) if isinstance(value, str | int | float | None) else str(value)


def described(value: Any, facts: ProgramFacts) -> str:
    """Return a value, and for a node what makes it and its dtype and shape."""
    if not isinstance(value, Node):
        return shown(value)
    parts = [f"%{value.name}", _origin(value, facts)]
    recorded = value.meta.get("val")
    if isinstance(recorded, torch.Tensor | list | tuple | torch.SymInt | torch.SymFloat | torch.SymBool):
        parts.append(shown(recorded))
    number = scalar_behind(value, facts)
    if isinstance(number, int | float):
        parts.append(f"value {number!r}")
    return ", ".join(part for part in parts if part)


def tensor_text(value: torch.Tensor) -> str:
    """Return dtype and sizes, `f32 [2, s0]`."""
    return f"{shown(value.dtype)} {shape_text(value.shape)}"


def shape_text(sizes: Sequence[Any]) -> str:
    """Return sizes, `[2, s0]`."""
    return f"[{', '.join(str(size) for size in sizes)}]"


def _origin(node: Node, facts: ProgramFacts) -> str:
    if node.op == "call_function":
        return facts.operator_name(node)
    return next((text for kind, text in _KINDS if facts.is_kind(node, kind)), node.op)


def _listed(parts: Sequence[str]) -> str:
    more = f", ... {len(parts) - _MOST_ELEMENTS} more" if len(parts) > _MOST_ELEMENTS else ""
    return f"[{', '.join(parts[:_MOST_ELEMENTS])}{more}]"

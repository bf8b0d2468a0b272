"""Operands in odd layouts: a kernel of torch that cannot take them, or misreads them, says nothing about a rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.syntax.terms import Call, walk


def is_about_layouts(rule: CompiledRule) -> bool:
    """Whether a rule speaks of strides, so that they are part of what it has to be right for."""
    if rule.rule.equiv.strides or any(getattr(variable, "layouts", False) for variable in rule.variables.values()):
        return True
    if any("is_contiguous" in guard.text or "stride" in guard.text for guard in rule.guards):
        return True
    called = [one.op for root in rule.pattern.roots for one in walk(root) if isinstance(one, Call)]
    called += [op for case in rule.cases for op in case.replace.operators]
    return any("as_strided" in str(op) for op in called)


def row_by_row(names: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the same values with all tensors row by row; None if they are so already."""
    dense = {name: value.contiguous() if isinstance(value, torch.Tensor) else value for name, value in names.items()}
    return dense if any(dense[name] is not value for name, value in names.items()) else None

"""Tensors without elements, which some operators take without a result of any use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.facts import operators_with
from exirkit.patterns.syntax.terms import Call, walk


def is_undefined(rule: CompiledRule, values: Iterable[Any]) -> bool:
    """Whether a value has no elements, and the rule has operators whose results are of no use then."""
    if not any(isinstance(value, torch.Tensor) and 0 in value.shape for value in values):
        return False
    called = [one.op for root in rule.pattern.roots for one in walk(root) if isinstance(one, Call)]
    called += [op for case in rule.cases for op in case.replace.operators]
    return any(op in operators_with("undefined_for_empty") for op in called)

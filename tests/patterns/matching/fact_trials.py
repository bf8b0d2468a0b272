"""What trials of the facts about operators have in common."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from exirkit.ir import Commutes, catalogue, underlying
from exirkit.patterns import FAMILIES, OperatorTable


@dataclass(frozen=True)
class Facts:
    """One column of the operator catalogue each, by name of the operator; families by name of the family."""

    commutes: dict[str, Commutes]
    dims: dict[str, tuple[str, ...]]
    result_dims: dict[str, tuple[str, ...]]
    pairs: dict[str, tuple[str, ...]]
    defaults: dict[str, dict[str, str]]
    families: dict[str, tuple[str, ...]]


@cache
def shipped_facts() -> Facts:
    """Return what the catalogue states."""
    entries = sorted(catalogue().items())
    return Facts(
        **{
            column: {name: value for name, facts in entries if (value := getattr(facts, column))}
            for column in ("commutes", "dims", "result_dims", "pairs", "defaults")
        },
        families={
            family: tuple(name for name, facts in entries if family in facts.traits)
            for family in (*FAMILIES, "creates", "undefined_for_empty")
        },
    )


def planted(**changes: Any) -> Facts:
    """Return the facts with some of them changed."""
    return replace(shipped_facts(), **changes)


def find(name: str) -> Any:
    """Return an operator that can be called."""
    return underlying(OperatorTable().find(name))


def tensor(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor without equal elements, so that every exchange is seen."""
    count = 1
    for size in shape:
        count *= size
    values = list(range(count))
    rng.shuffle(values)
    made = torch.tensor(values, dtype=torch.float64).reshape(shape) - count // 3
    return (made % 3 > 1) if dtype == torch.bool else (made * (0.37 if dtype.is_floating_point else 1)).to(dtype)


def same(one: Any, other: Any) -> bool:
    """Whether two results are equal, element for element, as far as layout and dtype."""
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
    )


def outcome(op: Callable[..., Any], *args: Any, **others: Any) -> Any:
    """Return the results of a call, or None if the operator does not take its arguments."""
    try:
        return op(*args, **others)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None

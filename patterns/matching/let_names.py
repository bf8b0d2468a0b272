"""Conditions over what `let` computes: it is computed as soon as the names are bound that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from exirkit.patterns.syntax.programs import FACTS, Program

from .state import CompiledGuard


def with_let(guard: CompiledGuard, let: Program) -> CompiledGuard:
    """Return a condition that can be asked before `let` has run.

    Args:
        guard: A condition, perhaps over names that `let` assigns.
        let: The program.
    """
    assigned = frozenset(let.assigns)
    if not guard.needs & assigned:
        return guard
    compiled = guard.compiled

    def ask(names: Mapping[str, Any]) -> Any:
        return compiled(_WithLet(names, let))

    return replace(guard, compiled=ask, needs=(guard.needs - assigned) | (let.uses - {FACTS}))


class _WithLet(Mapping[str, Any]):
    """Names of a match, and what `let` makes of them."""

    def __init__(self, names: Mapping[str, Any], let: Program) -> None:
        self.names = names
        self.let = let
        self._own: dict[str, Any] | None = None

    def __getitem__(self, key: str) -> Any:
        if key not in self.let.assigns:
            return self.names[key]
        if self._own is None:
            self._own = self.let.assigned(_Real(self.names))
        return self._own[key]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.names, **dict.fromkeys(self.let.assigns)})

    def __len__(self) -> int:
        return len({*self.names, *self.let.assigns})


class _Real(Mapping[str, Any]):
    """Names in which constants are real tensors."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names

    def __getitem__(self, key: str) -> Any:
        value = self.names[key]
        if not isinstance(value, Node) or not isinstance(value.meta.get("val"), torch.Tensor):
            return value
        known = self.names[FACTS].value(value)
        return value if known is None else known

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

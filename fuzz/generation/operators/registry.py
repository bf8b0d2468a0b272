"""Who proposes calls: one function for each family of the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from exirkit.fuzz.generation.method.scope import Scope

from .catalogue import Operator

Proposer: TypeAlias = Callable[[Scope, Operator], None]

PROPOSERS: dict[str, Proposer] = {}
"""By family: adds one call of an operator to a method, and whatever calls it needs before."""


def proposes(family: str) -> Callable[[Proposer], Proposer]:
    """Register the decorated function for a family."""

    def register(function: Proposer) -> Proposer:
        PROPOSERS[family] = function
        return function

    return register

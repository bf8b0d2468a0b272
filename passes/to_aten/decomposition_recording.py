"""What the decomposition of an operator did, written down so that it can be put in the place of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class InputRef:
    """Stands in a recording for the n-th tensor argument of the decomposed node."""

    index: int


@dataclass(frozen=True, slots=True)
class StepRef:
    """Stands in a recording for a step's result, or for one item of it."""

    step: int
    item: int | None = None


@dataclass(frozen=True, slots=True)
class SizeRef:
    """Stands in a recording for a size that varies: that of a dim of the n-th tensor argument."""

    index: int
    dim: int


@dataclass(frozen=True, slots=True)
class Step:
    """One core operator call of a recording, with the value it computed."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any


@dataclass(frozen=True, slots=True)
class Recording:
    """What an operator does in terms of core operators.

    Attributes:
        steps: Calls in order; tensors are `InputRef`s and `StepRef`s.
        result: Reference, or list of references and Nones, that is the operator's result.
    """

    steps: tuple[Step, ...]
    result: Any

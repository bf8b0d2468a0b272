"""Why sites are missed: one line for each cause, as the table gives it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """A cause, and the sites it explains.

    Attributes:
        why: What the table says.
        concept: Regular expression for concepts.
        model: Regular expression for names of models.
        path: Regular expression for modules.
        columns: The columns in which it holds; all when empty.
    """

    why: str
    concept: str = ".*"
    model: str = ".*"
    path: str = ".*"
    columns: tuple[str, ...] = ()

    def holds(self, model: str, concept: str, path: str, column: str) -> bool:
        return (
            re.fullmatch(self.concept, concept) is not None
            and re.fullmatch(self.model, model) is not None
            and re.fullmatch(self.path, path) is not None
            and (not self.columns or column in self.columns)
        )


REASONS: tuple[Reason, ...] = (
    Reason(
        "scores go through a hyperbolic tangent before the softmax (soft capping), which the operator does not compute",
        concept="attention.*",
        model="gemma2.*",
    ),
    Reason(
        "channels are moved to the last dim between the convolution and the activation",
        concept=r"conv \+ activation",
        model="segformer",
    ),
)
"""In the order in which they are asked."""

UNKNOWN = "not looked into yet"


def reason_for(model: str, concept: str, path: str, column: str) -> str:
    """Return why a site is missed."""
    return next((one.why for one in REASONS if one.holds(model, concept, path, column)), UNKNOWN)

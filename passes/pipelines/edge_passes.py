"""The passes that turn a functional program of core ATen operators into an Edge program, in their order."""

from __future__ import annotations

from torch._ops import OpOverload

from exirkit.passes.contract import Pass
from .pipeline import Pipeline


def decomposition_passes(preserved: frozenset[OpOverload] = frozenset()) -> list[Pass]:
    """Return the passes from an exported program to functional core ATen, each an edit of what it touches.

    They are those of the group `decompose` of the shipped pipeline `to_edge`.

    Args:
        preserved: Operators that stay whole.
    """
    settings = {"preserved-operators": tuple(preserved)}
    return Pipeline.shipped("to_edge").passes(settings, group="decompose")


def to_edge_passes(*, skip_dim_order: bool = False) -> list[Pass]:
    """Return the passes from core ATen to Edge.

    They are those of the group `legalize` of the shipped pipeline `to_edge`.

    Args:
        skip_dim_order: Keep memory formats instead of dim orders.
    """
    return Pipeline.shipped("to_edge").passes({"skip-dim-order": skip_dim_order}, group="legalize")

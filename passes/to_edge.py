"""The passes that turn a functional program of core ATen operators into an Edge program, in their order."""

from __future__ import annotations

from torch._ops import OpOverload

from .contract import Pass
from .convert_to_edge_operators import ConvertToEdgeOperators
from .decompose_to_core import DecomposeToCore
from .eliminate_dead_code import EliminateDeadCode
from .functionalize import Functionalize
from .generate_debug_handles import GenerateDebugHandles
from .inline_grad_regions import InlineGradRegions
from .lift_constants import LiftConstants
from .promote_types import PromoteTypes
from .remove_metadata_asserts import RemoveMetadataAsserts
from .remove_noops import RemoveNoops
from .remove_unused_inputs import RemoveUnusedInputs
from .replace_views_with_copies import ReplaceViewsWithCopies
from .scalars_to_tensors import ScalarsToTensors, SymbolsToTensors
from .use_dim_order_operators import UseDimOrderOperators


def decomposition_passes(preserved: frozenset[OpOverload] = frozenset()) -> list[Pass]:
    """Return the passes from an exported program to functional core ATen, each an edit of what it touches.

    Args:
        preserved: Operators that stay whole.
    """
    return [
        # Handles are given before anything is taken apart, so that all parts of an operator share one.
        GenerateDebugHandles(),
        InlineGradRegions(),
        DecomposeToCore(preserved),
        # Core operators say what they alias; composite ones do not. Functional twins may be composite again.
        Functionalize(),
        DecomposeToCore(preserved),
        EliminateDeadCode(),
    ]


def to_edge_passes(*, skip_dim_order: bool = False) -> list[Pass]:
    """Return the passes from core ATen to Edge.

    Args:
        skip_dim_order: Keep memory formats instead of dim orders.
    """
    passes: list[Pass] = [
        # Constants first: every later pass may then take all tensors for placeholders or results.
        LiftConstants(),
        RemoveMetadataAsserts(),
        ReplaceViewsWithCopies(),
        ScalarsToTensors(),
        SymbolsToTensors(),
        PromoteTypes(),
        # After promotion, which knows nothing of copies, and before the copies take other names.
        RemoveNoops(),
        *([] if skip_dim_order else [UseDimOrderOperators()]),
        ConvertToEdgeOperators(),
        EliminateDeadCode(),
        # Last, because dead code may have been the only reader of a weight.
        RemoveUnusedInputs(),
        GenerateDebugHandles(),
    ]
    return passes

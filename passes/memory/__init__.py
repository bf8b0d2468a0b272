"""Memory planning: when each tensor is needed, and where in the arenas it lies."""

from .algorithms import MemoryAlgoResult, MemoryAlgorithm, MemoryPlanningAlgorithmSuite, SpecAllocResult
from .greedy import greedy
from .lifetimes import compute_lifetimes, update_lifetimes
from .naive import naive
from .planning_pass import MemoryPlanningPass

__all__ = [
    "MemoryAlgoResult",
    "MemoryAlgorithm",
    "MemoryPlanningAlgorithmSuite",
    "MemoryPlanningPass",
    "SpecAllocResult",
    "compute_lifetimes",
    "greedy",
    "naive",
    "update_lifetimes",
]

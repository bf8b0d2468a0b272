"""Memory planning: when each tensor is needed, and where in the arenas it lies."""

from .algorithms import (
    MemoryAlgoResult,
    MemoryAlgorithm,
    MemoryPlanningAlgorithmSuite,
    SpecAllocResult,
)
from .greedy import greedy
from .naive import naive

__all__ = [
    "MemoryAlgoResult",
    "MemoryAlgorithm",
    "MemoryPlanningAlgorithmSuite",
    "SpecAllocResult",
    "greedy",
    "naive",
]

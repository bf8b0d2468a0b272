"""Memory planning: when each tensor is needed, and where in the arenas it lies."""

from .algorithms import MemoryAlgoResult, MemoryAlgorithm, MemoryPlanningAlgorithmSuite, SpecAllocResult
from .exact import exact_placement
from .greedy import greedy
from .lifetimes import compute_lifetimes, update_lifetimes
from .naive import naive
from .planners import PLANNERS, solve
from .planning_pass import MemoryPlanningPass
from .portfolio import exact, portfolio
from .problem import Body, PlannedValue, PlanningProblem, PlanningResult, Pool

__all__ = [
    "PLANNERS",
    "Body",
    "MemoryAlgoResult",
    "MemoryAlgorithm",
    "MemoryPlanningAlgorithmSuite",
    "MemoryPlanningPass",
    "PlannedValue",
    "PlanningProblem",
    "PlanningResult",
    "Pool",
    "SpecAllocResult",
    "compute_lifetimes",
    "exact",
    "exact_placement",
    "greedy",
    "naive",
    "portfolio",
    "solve",
    "update_lifetimes",
]

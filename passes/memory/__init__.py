"""Memory planning: when each tensor is needed, and where in the arenas it lies."""

from .algorithms import (
    MemoryAlgoResult,
    MemoryAlgorithm,
    MemoryPlanningAlgorithmSuite,
    SpecAllocResult,
    exact,
    greedy,
    naive,
    portfolio,
)
from .arenas import pool_of_arenas
from .graph.specs import compute_lifetimes, update_lifetimes
from .graph.value_uses import ValueUse, value_uses
from .methods import finalize_methods, reject_readers
from .packing.exact import exact_placement
from .packing.pools import PooledPlan, PoolRequest, plan_pools
from .planners import PLANNERS, solve
from .planning_pass import MemoryPlanningPass
from .policy import (
    MemoryPolicy,
    MemoryPool,
    NbytesRange,
    PlacementRule,
    load_memory_policy,
    memory_policy_schema,
    memory_policy_schema_text,
    parse_memory_policy,
)
from .problem import Body, PlannedValue, PlanningProblem, PlanningResult, Pool

__all__ = [
    "PLANNERS",
    "Body",
    "MemoryAlgoResult",
    "MemoryAlgorithm",
    "MemoryPlanningAlgorithmSuite",
    "MemoryPlanningPass",
    "MemoryPolicy",
    "MemoryPool",
    "NbytesRange",
    "PlacementRule",
    "PlannedValue",
    "PlanningProblem",
    "PlanningResult",
    "Pool",
    "PoolRequest",
    "PooledPlan",
    "SpecAllocResult",
    "ValueUse",
    "compute_lifetimes",
    "exact",
    "exact_placement",
    "finalize_methods",
    "greedy",
    "load_memory_policy",
    "memory_policy_schema",
    "memory_policy_schema_text",
    "naive",
    "parse_memory_policy",
    "plan_pools",
    "pool_of_arenas",
    "portfolio",
    "reject_readers",
    "solve",
    "update_lifetimes",
    "value_uses",
]

"""Memory policies: which memories there are and what lies in which, declared as data."""

from exirkit.passes.config.policies import NbytesRange

from .model import (
    MemoryPolicy,
    MemoryPool,
    PlacementRule,
    check_policy,
    load_memory_policy,
    memory_policy_schema,
    memory_policy_schema_text,
    parse_memory_policy,
    planned_inputs,
    planned_outputs,
    plans_all,
)
from .planner import PooledPlanner

__all__ = [
    "MemoryPolicy",
    "MemoryPool",
    "NbytesRange",
    "PlacementRule",
    "PooledPlanner",
    "check_policy",
    "load_memory_policy",
    "memory_policy_schema",
    "memory_policy_schema_text",
    "parse_memory_policy",
    "planned_inputs",
    "planned_outputs",
    "plans_all",
]

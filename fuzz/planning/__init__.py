"""Memory planners on generated problems, checked by marking bytes."""

from .bench import FAST_PLANNERS, GAPS, PlanningBench
from .checking import Finding, check_limits, check_plan, possible_runs
from .instances import Instance, draw_instance

__all__ = [
    "FAST_PLANNERS",
    "GAPS",
    "Finding",
    "Instance",
    "PlanningBench",
    "check_limits",
    "check_plan",
    "draw_instance",
    "possible_runs",
]

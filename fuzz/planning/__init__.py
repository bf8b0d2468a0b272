"""Memory planners on generated problems, checked by painting bytes."""

from .campaign import FAST_PLANNERS, GAPS, Tally, run_campaign, run_chunk
from .instances import Instance, draw_instance
from .painting import Finding, check_limits, check_plan, possible_runs

__all__ = [
    "FAST_PLANNERS",
    "GAPS",
    "Finding",
    "Instance",
    "Tally",
    "check_limits",
    "check_plan",
    "draw_instance",
    "possible_runs",
    "run_campaign",
    "run_chunk",
]

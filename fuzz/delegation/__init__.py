"""Delegation on generated graphs and programs."""

from .campaign import Tally, check_growing, check_tags, run_campaign, run_chunk
from .graphs import Instance, draw_instance
from .reachability import units_on_circles

__all__ = [
    "Instance",
    "Tally",
    "check_growing",
    "check_tags",
    "draw_instance",
    "run_campaign",
    "run_chunk",
    "units_on_circles",
]

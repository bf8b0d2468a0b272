"""Delegation on generated graphs and programs."""

from .campaign import Tally, check_growing, check_tags, run_campaign, run_chunk
from .checking_backend import CheckingBackend, OtherCheckingBackend
from .cutting import RandomPartitioner, cut_at_random, cut_manager
from .graphs import Instance, draw_instance
from .reachability import units_on_circles

__all__ = [
    "CheckingBackend",
    "Instance",
    "OtherCheckingBackend",
    "RandomPartitioner",
    "Tally",
    "check_growing",
    "check_tags",
    "cut_at_random",
    "cut_manager",
    "draw_instance",
    "run_campaign",
    "run_chunk",
    "units_on_circles",
]

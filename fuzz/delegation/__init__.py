"""Delegation on generated graphs and programs."""

from .bench import DelegationBench, check_growing, check_tags
from .checking_backend import CheckingBackend, OtherCheckingBackend
from .cutting import RandomPartitioner, cut_at_random, cut_manager
from .graphs import Instance, draw_instance
from .reachability import units_on_cycles

__all__ = [
    "CheckingBackend",
    "DelegationBench",
    "Instance",
    "OtherCheckingBackend",
    "RandomPartitioner",
    "check_growing",
    "check_tags",
    "cut_at_random",
    "cut_manager",
    "draw_instance",
    "units_on_cycles",
]

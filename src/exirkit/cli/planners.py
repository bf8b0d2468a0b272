"""The names of planners on the command line; nothing here loads torch."""

from __future__ import annotations

from enum import StrEnum


class Planner(StrEnum):
    """Algorithms for planning memory."""

    PORTFOLIO = "portfolio"
    GREEDY = "greedy"
    NAIVE = "naive"
    EXACT = "exact"

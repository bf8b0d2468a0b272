"""The order of independent instructions, so that less memory is needed at once."""

from .orders import (
    Found,
    OrderProblem,
    Schedule,
    best_order,
    find_schedule,
    is_order,
    late_order,
    list_order,
    needs_of_order,
    peak_of_order,
)

__all__ = [
    "Found",
    "OrderProblem",
    "Schedule",
    "best_order",
    "find_schedule",
    "is_order",
    "late_order",
    "list_order",
    "needs_of_order",
    "peak_of_order",
]

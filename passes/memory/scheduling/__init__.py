"""The order of independent instructions, so that less memory is needed at once."""

from .best_first import Found, best_order
from .list_orders import late_order, list_order
from .local_search import Schedule, find_schedule
from .order_problem import OrderProblem, is_order, needs_of_order, peak_of_order

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

"""What must hold: invariants of programs, checked without the passes that establish them."""

from .dialect_legality import check_aten_program, check_edge_program
from .memory_plan import check_memory_plan

__all__ = [
    "check_aten_program",
    "check_edge_program",
    "check_memory_plan",
]

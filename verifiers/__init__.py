"""What must hold: invariants of programs, checked without the passes that establish them."""

from .memory_plan import check_memory_plan

__all__ = ["check_memory_plan"]

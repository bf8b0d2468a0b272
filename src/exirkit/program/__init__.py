"""The lowering chain: `to_edge`, the managers of its two halves, and nothing that another room can do."""

from .edge import EdgeProgramManager
from .executorch import ExecutorchProgramManager
from .lowering import to_edge, to_edge_transform_and_lower

__all__ = ["EdgeProgramManager", "ExecutorchProgramManager", "to_edge", "to_edge_transform_and_lower"]

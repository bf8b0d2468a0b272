"""The lowering chain: `to_edge`, the managers of its two halves, delegation, and nothing that another room can do."""

from exirkit.patterns import offer_lowering

from .cheap_tracing import cheap_tracing
from .delegation import LoweredBackendModule, to_backend
from .demo_backend import AddMulPartitionerDemo, BackendWithCompilerDemo
from .edge import EdgeProgramManager
from .executorch import ExecutorchProgramManager
from .lowering import lower_to_backends, to_edge, to_edge_keeping_whole, to_edge_transform_and_lower
from .optimizing import kernels_of
from .reference_backend import ReferenceBackend

offer_lowering("edge", lambda program: to_edge(program).exported_program())

__all__ = [
    "AddMulPartitionerDemo",
    "BackendWithCompilerDemo",
    "EdgeProgramManager",
    "ExecutorchProgramManager",
    "LoweredBackendModule",
    "ReferenceBackend",
    "cheap_tracing",
    "kernels_of",
    "lower_to_backends",
    "to_backend",
    "to_edge",
    "to_edge_keeping_whole",
    "to_edge_transform_and_lower",
]

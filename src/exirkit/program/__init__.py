"""The lowering chain: `to_edge`, the managers of its two halves, delegation, and nothing that another room can do."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .entry import to_edge, to_edge_transform_and_lower

if TYPE_CHECKING:
    from .cheap_tracing import cheap_tracing
    from .delegation import LoweredBackendModule, to_backend
    from .demo_backend import AddMulPartitionerDemo, BackendWithCompilerDemo
    from .edge import EdgeProgramManager
    from .executorch import ExecutorchProgramManager
    from .lowering import lower_to_backends, to_edge_keeping_whole
    from .optimizing import kernels_of
    from .reference_backend import ReferenceBackend

# Fetched on first use: what lowers imports every other room.
_HOMES = {
    "AddMulPartitionerDemo": "demo_backend",
    "BackendWithCompilerDemo": "demo_backend",
    "EdgeProgramManager": "edge",
    "ExecutorchProgramManager": "executorch",
    "LoweredBackendModule": "delegation",
    "ReferenceBackend": "reference_backend",
    "cheap_tracing": "cheap_tracing",
    "kernels_of": "optimizing",
    "lower_to_backends": "lowering",
    "to_backend": "delegation",
    "to_edge_keeping_whole": "lowering",
}

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


def __getattr__(name: str) -> Any:
    """Fetch a name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value

"""The lowering chain: `to_edge`, the managers of its two halves, delegation, and nothing that another room can do."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .entry import to_edge as to_edge
from .entry import to_edge_transform_and_lower as to_edge_transform_and_lower

if TYPE_CHECKING:
    from .certification.checking import CertificateReport as CertificateReport
    from .certification.checking import check_certificate as check_certificate
    from .certification.document import FileCertificate as FileCertificate
    from .certification.document import certificate_file as certificate_file
    from .certification.document import read_certificate as read_certificate
    from .certification.recording import RecordedLowering as RecordedLowering
    from .certification.recording import recording_lowering as recording_lowering
    from .cheap_tracing import cheap_tracing as cheap_tracing
    from .delegation import LoweredBackendModule as LoweredBackendModule
    from .delegation import to_backend as to_backend
    from .demo_backend import AddMulPartitionerDemo as AddMulPartitionerDemo
    from .demo_backend import BackendWithCompilerDemo as BackendWithCompilerDemo
    from .demo_backend import ReferenceBackend as ReferenceBackend
    from .lowering import lower_to_backends as lower_to_backends
    from .lowering import to_edge_keeping_whole as to_edge_keeping_whole
    from .managers import EdgeProgramManager as EdgeProgramManager
    from .managers import ExecutorchProgramManager as ExecutorchProgramManager
    from .one_method import kernels_of as kernels_of
    from .program_bundle import BundledPrograms as BundledPrograms
    from .program_bundle import read_bundle as read_bundle
    from .program_bundle import write_bundle as write_bundle
    from .weights import with_weights as with_weights

# Fetched on first use: what lowers imports every other room.
_HOMES = {
    "AddMulPartitionerDemo": "demo_backend",
    "BackendWithCompilerDemo": "demo_backend",
    "EdgeProgramManager": "managers",
    "ExecutorchProgramManager": "managers",
    "BundledPrograms": "program_bundle",
    "LoweredBackendModule": "delegation",
    "ReferenceBackend": "demo_backend",
    "CertificateReport": "certification.checking",
    "FileCertificate": "certification.document",
    "RecordedLowering": "certification.recording",
    "certificate_file": "certification.document",
    "check_certificate": "certification.checking",
    "read_certificate": "certification.document",
    "recording_lowering": "certification.recording",
    "cheap_tracing": "cheap_tracing",
    "kernels_of": "one_method",
    "lower_to_backends": "lowering",
    "read_bundle": "program_bundle",
    "to_backend": "delegation",
    "to_edge_keeping_whole": "lowering",
    "write_bundle": "program_bundle",
    "with_weights": "weights",
}


def __getattr__(name: str) -> Any:
    """Fetch a name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value

"""What a program means: loader, static checks, kernels and interpreter of the reference runtime."""

from .checks import verify_program
from .limits import Limits
from .metadata import MetadataIndexError, MethodMetadata, TensorInfo
from .registry import BackendRegistry, OperatorRegistry
from .runtime import Method, Program, Runtime, UnknownMethodError, Verification

__all__ = [
    "BackendRegistry",
    "Limits",
    "MetadataIndexError",
    "Method",
    "MethodMetadata",
    "OperatorRegistry",
    "Program",
    "Runtime",
    "TensorInfo",
    "UnknownMethodError",
    "Verification",
    "verify_program",
]

"""What a program means: loader, static checks, kernels and interpreter of the reference runtime."""

from .backends import BackendRegistry, DelegateContext, LoadedDelegate
from .checks.plan_kernels import check_plan_kernels, facts_of_plan
from .checks.program import verify_program
from .kernels.registry import OperatorRegistry
from .limits import Limits
from .metadata import MetadataIndexError, MethodMetadata, TensorInfo
from .runtime import UNKNOWN_KERNEL_HINT, Method, Program, Runtime, UnknownMethodError, Verification
from .sanitizer.planned_lives import LifeKind, PlannedLife, lives_of_program

__all__ = [
    "UNKNOWN_KERNEL_HINT",
    "BackendRegistry",
    "DelegateContext",
    "LifeKind",
    "Limits",
    "LoadedDelegate",
    "MetadataIndexError",
    "Method",
    "MethodMetadata",
    "OperatorRegistry",
    "PlannedLife",
    "Program",
    "Runtime",
    "TensorInfo",
    "UnknownMethodError",
    "Verification",
    "check_plan_kernels",
    "facts_of_plan",
    "lives_of_program",
    "verify_program",
]

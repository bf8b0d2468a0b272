"""What a program means: loader, static checks, kernels and interpreter of the reference runtime."""

from exirkit.ir import deprecated_names

from .backends import BackendRegistry, DelegateContext, LoadedDelegate
from .checks.plan_kernels import check_plan_kernels, facts_of_plan
from .checks.program import verify_program
from .kernels.registry import OperatorRegistry
from .limits import Limits
from .metadata import MetadataIndexError, MethodMetadata, TensorInfo
from .runtime import UNKNOWN_KERNEL_HINT, Method, Program, Runtime, UnknownMethodError, Verification
from .sanitizer.lifetimes import LifetimeKind, PlannedLifetime, lifetimes_of_program

__all__ = [
    "UNKNOWN_KERNEL_HINT",
    "BackendRegistry",
    "DelegateContext",
    "LifetimeKind",
    "Limits",
    "LoadedDelegate",
    "MetadataIndexError",
    "Method",
    "MethodMetadata",
    "OperatorRegistry",
    "PlannedLifetime",
    "Program",
    "Runtime",
    "TensorInfo",
    "UnknownMethodError",
    "Verification",
    "check_plan_kernels",
    "facts_of_plan",
    "lifetimes_of_program",
    "verify_program",
]

__getattr__ = deprecated_names(
    __name__,
    {
        "LifeKind": "exirkit.runtime_ref:LifetimeKind",
        "PlannedLife": "exirkit.runtime_ref:PlannedLifetime",
        "lives_of_program": "exirkit.runtime_ref:lifetimes_of_program",
    },
)

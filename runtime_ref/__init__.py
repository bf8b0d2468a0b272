"""What a program means: loader, static checks, kernels and interpreter of the reference runtime."""

from exirkit.ir import deprecated_names

from .backends import BackendRegistry as BackendRegistry
from .backends import DelegateContext as DelegateContext
from .backends import LoadedDelegate as LoadedDelegate
from .checks.calls import missing_data as missing_data
from .checks.program import check_plan_kernels as check_plan_kernels
from .checks.program import verify_program as verify_program
from .interpreter.substitution import Substitution as Substitution
from .kernels.deviations import deviating_operators as deviating_operators
from .kernels.registry import OperatorRegistry as OperatorRegistry
from .limits import Limits as Limits
from .metadata import MetadataIndexError as MetadataIndexError
from .metadata import MethodMetadata as MethodMetadata
from .metadata import TensorInfo as TensorInfo
from .runtime import UNKNOWN_KERNEL_HINT as UNKNOWN_KERNEL_HINT
from .runtime import Method as Method
from .runtime import Program as Program
from .runtime import Runtime as Runtime
from .runtime import UnknownMethodError as UnknownMethodError
from .runtime import Verification as Verification
from .sanitizer.effects import Effect as Effect
from .sanitizer.lifetimes import LifetimeKind as LifetimeKind
from .sanitizer.lifetimes import PlannedLifetime as PlannedLifetime
from .sanitizer.lifetimes import effects_of_program as effects_of_program
from .sanitizer.lifetimes import lifetimes_of_program as lifetimes_of_program
from .tracing import InstructionTime as InstructionTime
from .tracing import TracedRun as TracedRun
from .tracing import Tracer as Tracer
from .tracing import instruction_name as instruction_name
from .tracing import run_name as run_name

__getattr__ = deprecated_names(
    __name__,
    {
        "LifeKind": "exirkit.runtime_ref:LifetimeKind",
        "PlannedLife": "exirkit.runtime_ref:PlannedLifetime",
        "lives_of_program": "exirkit.runtime_ref:lifetimes_of_program",
    },
)

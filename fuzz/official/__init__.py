"""The official runtime and exporter in processes that may die; nothing here imports them."""

from .process import WorkerDiedError, WorkerProcess
from .runtime import (
    Failure,
    MethodInfo,
    OfficialMissingError,
    OfficialResult,
    OfficialRuntime,
    OfficialTrace,
    SessionStep,
    TensorInfo,
    failure_of,
    missing_reason,
)
from .variants import VARIANTS
from .wire import Value

official_missing_reason = missing_reason

__all__ = [
    "VARIANTS",
    "Failure",
    "MethodInfo",
    "OfficialMissingError",
    "OfficialResult",
    "OfficialRuntime",
    "OfficialTrace",
    "SessionStep",
    "TensorInfo",
    "Value",
    "WorkerDiedError",
    "WorkerProcess",
    "failure_of",
    "missing_reason",
    "official_missing_reason",
]

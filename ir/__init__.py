"""What a program is: operators, dialects, tensor specs, diagnostics, and the one editor through which graphs change."""

from .diagnostics import (
    ContractError,
    Diagnostic,
    DiagnosticError,
    InternalError,
    Location,
    ModelError,
    UsageError,
)

__all__ = [
    "ContractError",
    "Diagnostic",
    "DiagnosticError",
    "InternalError",
    "Location",
    "ModelError",
    "UsageError",
]

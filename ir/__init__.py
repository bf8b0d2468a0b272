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
from .dim_order import (
    Dim,
    contiguous_stride,
    dim_order_from_memory_format,
    dim_order_from_stride,
    is_channels_last_dim_order,
    is_contiguous_dim_order,
    memory_format_from_dim_order,
    sample_ints,
    stride_from_dim_order,
)
from .memory_ops import AllocSpec, alloc, free, view
from .tensor_spec import ALIGNMENT, TensorShapeDynamism, TensorSpec, determine_shape_dynamism

__all__ = [
    "ALIGNMENT",
    "AllocSpec",
    "ContractError",
    "Diagnostic",
    "DiagnosticError",
    "Dim",
    "InternalError",
    "Location",
    "ModelError",
    "TensorShapeDynamism",
    "TensorSpec",
    "UsageError",
    "alloc",
    "contiguous_stride",
    "determine_shape_dynamism",
    "dim_order_from_memory_format",
    "dim_order_from_stride",
    "free",
    "is_channels_last_dim_order",
    "is_contiguous_dim_order",
    "memory_format_from_dim_order",
    "sample_ints",
    "stride_from_dim_order",
    "view",
]

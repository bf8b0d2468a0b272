"""Programs as data."""

from .model import (
    Argument,
    Body,
    Call,
    Contents,
    Dim,
    Input,
    Method,
    Program,
    Ref,
    Run,
    Size,
    Stored,
    Symbol,
    TensorType,
)

__all__ = [
    "Argument",
    "Body",
    "Call",
    "Contents",
    "Dim",
    "Input",
    "Method",
    "Program",
    "Ref",
    "Run",
    "Size",
    "Stored",
    "Symbol",
    "TensorType",
]

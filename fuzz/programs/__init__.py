"""Programs as data."""

from .building import build
from .checking import check_program
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
from .reading import parse_program
from .running import Runner, RunResult, run_eagerly
from .tensors import inputs_of, make_tensor, stored_tensor
from .text import program_text

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
    "RunResult",
    "Runner",
    "Size",
    "Stored",
    "Symbol",
    "TensorType",
    "build",
    "check_program",
    "inputs_of",
    "make_tensor",
    "parse_program",
    "program_text",
    "run_eagerly",
    "stored_tensor",
]

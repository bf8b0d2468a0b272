"""Programs as data."""

from .building import build
from .checking import check_program
from .exporting import eager_modules, export
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
    leaves_of,
    mapped,
    names_in,
)
from .modules import module_source, tensor_source
from .reading import parse_program
from .running import Runner, RunResult, run_eagerly, run_shaken
from .tensors import inputs_of, make_tensor, stored_tensor
from .text import program_text
from .variations import varied

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
    "eager_modules",
    "export",
    "inputs_of",
    "leaves_of",
    "make_tensor",
    "mapped",
    "module_source",
    "names_in",
    "parse_program",
    "program_text",
    "run_eagerly",
    "run_shaken",
    "stored_tensor",
    "tensor_source",
    "varied",
]

"""Kernels of a target: what they ask of calls, and whether the calls of a program are such."""

from .call_facts import UNKNOWN, CallFacts, Fact, TensorFacts, facts_of_call
from .checks import broken_conditions, check_kernel_names, check_kernels
from .conditions import CONDITION_FUNCTIONS, KernelCondition, read_condition
from .table import KernelTable

__all__ = [
    "CONDITION_FUNCTIONS",
    "UNKNOWN",
    "CallFacts",
    "Fact",
    "KernelCondition",
    "KernelTable",
    "TensorFacts",
    "broken_conditions",
    "check_kernel_names",
    "check_kernels",
    "facts_of_call",
    "read_condition",
]

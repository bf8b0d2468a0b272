"""Handing parts of a program to backends: what they implement, which nodes they take, and the calls that remain."""

from .backend_details import BackendDetails, PreprocessResult
from .insertion import greatest_handle, insert_call, leave_inputs, leave_writes, sort_for_delegates
from .partitioner import TAG as DELEGATION_TAG
from .partitioner import DelegationSpec, Partitioner, PartitionResult
from .partitions import Partition, partitions_of
from .registry import find_backend
from .subprogram import Subprogram, subprogram_of
from .whole_operators import WHOLE, keep_whole

__all__ = [
    "DELEGATION_TAG",
    "WHOLE",
    "BackendDetails",
    "DelegationSpec",
    "Partition",
    "PartitionResult",
    "Partitioner",
    "PreprocessResult",
    "Subprogram",
    "find_backend",
    "greatest_handle",
    "insert_call",
    "keep_whole",
    "leave_inputs",
    "leave_writes",
    "partitions_of",
    "sort_for_delegates",
    "subprogram_of",
]

"""Handing parts of a program to backends: what they implement, which nodes they take, and the calls that remain."""

from .backend_details import BackendDetails, PreprocessResult
from .growing import grown_partitions
from .insertion import insert_calls, leave_inputs, leave_writes, sort_for_delegates
from .partitioner import TAG as DELEGATION_TAG
from .partitioner import DelegationSpec, Partitioner, PartitionResult
from .partitions import Partition, partitions_of
from .registry import find_backend
from .subprogram import Subprogram, subprogram_of
from .whole_operators import is_kept_whole, keep_whole

__all__ = [
    "DELEGATION_TAG",
    "BackendDetails",
    "DelegationSpec",
    "Partition",
    "PartitionResult",
    "Partitioner",
    "PreprocessResult",
    "Subprogram",
    "find_backend",
    "grown_partitions",
    "insert_calls",
    "is_kept_whole",
    "keep_whole",
    "leave_inputs",
    "leave_writes",
    "partitions_of",
    "sort_for_delegates",
    "subprogram_of",
]

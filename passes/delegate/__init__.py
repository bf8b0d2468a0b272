"""Handing parts of a program to backends: what they implement, which nodes they take, and the calls that remain."""

from .backend_details import BackendDetails, PreprocessResult
from .growing import circles_among, grown_partitions
from .insertion import insert_calls, leave_inputs, leave_writes, sort_for_delegates
from .partitioner import TAG as DELEGATION_TAG
from .partitioner import DelegationSpec, Partitioner, PartitionResult
from .partitioning import (
    DataPartitioner,
    Minimum,
    PartitionAccount,
    Partitioning,
    RankRange,
    TakenPartition,
    TakingRule,
    WholeOperators,
    WhyNot,
    account_of,
    load_partitioner,
    load_partitioning,
    parse_partitioning,
    partitioning_schema,
    partitioning_schema_text,
)
from .partitions import Partition, partitions_of
from .registry import find_backend
from .subprogram import Subprogram, subprogram_of
from .whole_operators import is_kept_whole, keep_whole

__all__ = [
    "DELEGATION_TAG",
    "BackendDetails",
    "DataPartitioner",
    "DelegationSpec",
    "Minimum",
    "Partition",
    "PartitionAccount",
    "PartitionResult",
    "Partitioner",
    "Partitioning",
    "PreprocessResult",
    "RankRange",
    "Subprogram",
    "TakenPartition",
    "TakingRule",
    "WholeOperators",
    "WhyNot",
    "account_of",
    "circles_among",
    "find_backend",
    "grown_partitions",
    "insert_calls",
    "is_kept_whole",
    "keep_whole",
    "leave_inputs",
    "leave_writes",
    "load_partitioner",
    "load_partitioning",
    "parse_partitioning",
    "partitioning_schema",
    "partitioning_schema_text",
    "partitions_of",
    "sort_for_delegates",
    "subprogram_of",
]

"""Handing parts of a program to backends: what they implement, which nodes they take, and the calls that remain."""

from .backend_details import BackendDetails, PreprocessResult
from .canonical_partitioners import (
    AllNodePartitioner,
    CapabilityBasedPartitioner,
    GroupBasedPartitioner,
    generate_grouped_partitions_from_list_of_nodes,
    generate_partitions_from_list_of_nodes,
    generate_pattern_op_partitions,
)
from .debug_handle_maps import DelegateMappingBuilder
from .delegation_info import (
    DelegationBreakdown,
    DelegationInfo,
    format_delegated_graph,
    get_delegates,
    get_delegation_info,
    get_non_lowered_nodes,
    print_delegated_graph,
    print_delegation_info,
)
from .growing import circles_among, grown_partitions
from .insertion import insert_calls, leave_inputs, leave_writes, sort_for_delegates
from .partitioner import TAG as DELEGATION_TAG
from .partitioner import DelegationSpec, Partitioner, PartitionResult
from .partitioning import (
    DataPartitioner,
    Maximum,
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
    obstacle_to_taking,
    parse_partitioning,
    partitioning_schema,
    partitioning_schema_text,
)
from .partitions import Partition, partitions_of
from .registry import find_backend
from .state_tags import tag_constant_data, tag_kept_state, tag_mutated_buffer
from .subprogram import Subprogram, subprogram_of
from .whole_operators import is_kept_whole, keep_whole

__all__ = [
    "DELEGATION_TAG",
    "AllNodePartitioner",
    "BackendDetails",
    "CapabilityBasedPartitioner",
    "DataPartitioner",
    "DelegateMappingBuilder",
    "DelegationBreakdown",
    "DelegationInfo",
    "DelegationSpec",
    "GroupBasedPartitioner",
    "Maximum",
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
    "format_delegated_graph",
    "generate_grouped_partitions_from_list_of_nodes",
    "generate_partitions_from_list_of_nodes",
    "generate_pattern_op_partitions",
    "get_delegates",
    "get_delegation_info",
    "get_non_lowered_nodes",
    "grown_partitions",
    "insert_calls",
    "is_kept_whole",
    "keep_whole",
    "leave_inputs",
    "leave_writes",
    "load_partitioner",
    "load_partitioning",
    "obstacle_to_taking",
    "parse_partitioning",
    "partitioning_schema",
    "partitioning_schema_text",
    "partitions_of",
    "print_delegated_graph",
    "print_delegation_info",
    "sort_for_delegates",
    "subprogram_of",
    "tag_constant_data",
    "tag_kept_state",
    "tag_mutated_buffer",
]

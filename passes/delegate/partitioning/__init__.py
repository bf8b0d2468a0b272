"""Partitioning as data: which calls a backend takes, stated as rules in a YAML file that gives a partitioner."""

from .call_facts import obstacle_to_taking
from .data_partitioner import DataPartitioner, load_partitioner
from .model import Maximum, Minimum, Partitioning, RankRange, TakingRule, WholeOperators
from .reading import (
    check_partitioning,
    load_partitioning,
    parse_partitioning,
    partitioning_schema,
    partitioning_schema_text,
)
from .why_not import PartitionAccount, TakenPartition, WhyNot, account_of

__all__ = [
    "DataPartitioner",
    "Maximum",
    "Minimum",
    "PartitionAccount",
    "Partitioning",
    "RankRange",
    "TakenPartition",
    "TakingRule",
    "WholeOperators",
    "WhyNot",
    "account_of",
    "check_partitioning",
    "load_partitioner",
    "load_partitioning",
    "obstacle_to_taking",
    "parse_partitioning",
    "partitioning_schema",
    "partitioning_schema_text",
]

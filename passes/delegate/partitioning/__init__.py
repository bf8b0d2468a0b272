"""Partitioning as data: which calls a backend takes, stated as rules in a YAML file that gives a partitioner."""

from .data_partitioner import DataPartitioner, PartitionAccount, TakenPartition, WhyNot, account_of, load_partitioner
from .deciding import why_not_delegable
from .model import (
    Maximum,
    Minimum,
    Partitioning,
    RankRange,
    TakingRule,
    WholeOperators,
    check_partitioning,
    load_partitioning,
    parse_partitioning,
    partitioning_schema,
    partitioning_schema_text,
)

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
    "parse_partitioning",
    "partitioning_schema",
    "partitioning_schema_text",
    "why_not_delegable",
]

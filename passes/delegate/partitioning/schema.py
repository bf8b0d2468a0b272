"""The JSON Schema of partitioning files, with which editors complete and check them; it is made from the models."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from exirkit.passes.config.policy_schema import policy_schema, schema_text
from exirkit.passes.config.policy_words import NbytesRange

from .model import Maximum, Minimum, Partitioning, RankRange, TakingRule, WholeOperators

SCHEMA_FILE = "partitioning.schema.json"
_MODELS = {
    model.__name__: model
    for model in (Partitioning, TakingRule, WholeOperators, Minimum, Maximum, NbytesRange, RankRange)
}
_LISTS = {"TakingRule": ("op", "dtype", "argument_dtype", "module", "where"), "WholeOperators": ("op", "where")}
_SIZES = {"NbytesRange": ("at_least", "at_most"), "Minimum": ("nbytes",), "Maximum": ("nbytes", "weights")}


def partitioning_schema() -> dict[str, Any]:
    """Return the JSON Schema of partitioning files, made from the models."""
    return policy_schema(
        Partitioning, _MODELS, "What a partitioner of exirkit takes, as data", sizes=_SIZES, lists=_LISTS
    )


def partitioning_schema_text() -> str:
    """Return the JSON Schema of partitioning files as the text of the file that comes with exirkit."""
    return (
        files(__package__ or "exirkit.passes.delegate.partitioning").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")
    )


def made_text() -> str:
    """Return the text that the file must have."""
    return schema_text(partitioning_schema())

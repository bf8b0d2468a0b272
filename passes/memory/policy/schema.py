"""The JSON Schema of memory policies, with which editors complete and check them; it is made from the models."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from exirkit.passes.config.policy_schema import policy_schema, schema_text
from exirkit.passes.config.policy_words import NbytesRange

from .model import MemoryPolicy, MemoryPool, PlacementRule

SCHEMA_FILE = "policy.schema.json"
_MODELS = {model.__name__: model for model in (MemoryPolicy, MemoryPool, NbytesRange, PlacementRule)}
_SIZES = {"MemoryPool": ("limit", "alignment"), "NbytesRange": ("at_least", "at_most")}
_LISTS = {"PlacementRule": ("op", "user", "dtype", "module", "value", "kind", "where")}


def memory_policy_schema() -> dict[str, Any]:
    """Return the JSON Schema of memory policies, made from the models.

    It knows what the models accept besides what they hold: sizes like `256 KiB`, and one element instead of a list.
    """
    return policy_schema(MemoryPolicy, _MODELS, "A memory policy for exirkit", sizes=_SIZES, lists=_LISTS)


def memory_policy_schema_text() -> str:
    """Return the JSON Schema of memory policies as the text of the file that comes with exirkit."""
    return files(__package__ or "exirkit.passes.memory.policy").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def made_text() -> str:
    """Return the text that the file must have."""
    return schema_text(memory_policy_schema())

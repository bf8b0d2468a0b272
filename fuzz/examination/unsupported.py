"""Diagnostics with which our chain may reject a program: what it does not claim to support."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

UNSUPPORTED: Mapping[str, str] = MappingProxyType(
    {
        "EK301": "an operator that is not core, and has no decomposition",
        "EK359": "an operator without kernel",
        "EK360": "a call that no kernel takes",
        "EK422": "a view without a copying variant",
        "EK427": "a write by a body, or to what a branch may have returned, that no result can stand for",
        "EK428": "a layout that no operator may change",
        "EK431": "a function of sizes that the runtime cannot compute",
        "EK432": "calls of graphs other than control flow",
        "EK433": "an input without upper bound",
        "EK434": "a size without upper bound",
        "EK435": "an operator without out variant",
        "EK452": "a tensor whose size has no upper bound",
        "EK488": "a shared buffer that a method only reads",
        "EK501": "a dtype that the format does not have",
        "EK557": "a sparse tensor",
    }
)
"""By code: what the chain rejects. Any other exception is a failure."""

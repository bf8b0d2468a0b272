"""Families of operators that rules name in `thru` and in types of variables."""

from __future__ import annotations

from typing import Any

from .operators import FAMILIES, family_members


def family(name: str) -> tuple[Any, ...]:
    """Return the operators of a family, or nothing if no family has the name."""
    return family_members((name,)) if name in FAMILIES else ()

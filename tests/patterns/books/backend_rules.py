"""Rules of backends' books, and programs to try them on."""

from __future__ import annotations

import re

PIECES = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=.)(?=[A-Z][a-z]+)")


def stage_name(class_name: str) -> str:
    """Return the name that the stage of a class has in the chain of its package."""
    return PIECES.sub("-", class_name).lower()

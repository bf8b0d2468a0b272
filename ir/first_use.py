"""Public names of a room whose modules are imported on first use, so that lowering a model does not wait for them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def late_names(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a room that imports a module when one of its names is used.

    Args:
        module: Name of the room.
        homes: For each name the module that has it, relative to the room.
    """

    def getattr_of_module(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{module}.{homes[name]}"), name)
        setattr(sys.modules[module], name, value)
        return value

    return getattr_of_module

"""Deprecated aliases of renamed public names: they work for one release, with a `DeprecationWarning`."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def deprecated_names(
    module: str, names: Mapping[str, str], otherwise: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that still answers to old names.

    `__getattr__ = deprecated_names(__name__, {"old": "exirkit.ir:new"})`; the modules of new names are imported only
    when an old name is used.

    Args:
        module: Name of the module.
        names: For each old name the new one, with the module that has it.
        otherwise: The `__getattr__` for all other names.
    """

    def getattr_of_module(name: str) -> Any:
        if name not in names and otherwise is not None:
            return otherwise(name)
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, new = names[name].partition(":")
        warnings.warn(f"{module}.{name} is deprecated: use {place}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(place), new)

    return getattr_of_module

"""Makes the modules of the tree from the table of names: about sixty, none of which needs a file of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .names import name_table, official_module


class _Module(ModuleType):
    """A module whose names are those of the table."""

    def __init__(self, qualified: str, module: str) -> None:
        super().__init__(qualified, f"Counterparts of the names of `{official_module(module)}`.")
        self.__spec__ = ModuleSpec(qualified, None, is_package=True)
        # Every module may have modules below it, whether or not the table has any.
        self.__path__: list[str] = []
        self.__package__ = qualified
        self._resolve = partial(_fetch, module)
        self.__all__ = sorted(name for name in name_table().homes.get(module, ()) if not name.startswith("_"))

    def __getattr__(self, name: str) -> Any:
        value = self._resolve(name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *name_table().homes.get(self._resolve.args[0], ())})


def install(root: str) -> Callable[[str], Any]:
    """Register the modules of the table, so that every form of `import` finds them.

    Args:
        root: Name of the package that is `executorch.exir`; it is being imported.

    Returns:
        The function that fetches the names of that package itself.
    """
    for module in name_table().modules():
        if not module:
            continue
        qualified = f"{root}.{module}"
        made = _Module(qualified, module)
        sys.modules[qualified] = made
        parent, _, name = qualified.rpartition(".")
        setattr(sys.modules[parent], name, made)
    return partial(_fetch, "")


def _fetch(module: str, name: str) -> Any:
    """Return a counterpart.

    Raises:
        AbsentNameError: EK757, the name has none.
        UnknownNameError: EK757, the table does not know the name.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    table = name_table()
    home = table.home(module, name)
    if home is not None:
        return getattr(import_module(home.module), home.name)
    # Diagnostics import torch.
    from .missing import absent, unknown

    absence = table.absence(module, name)
    if absence is not None:
        raise absent(official_module(module), name, absence)
    raise unknown(official_module(module), name, sorted(table.homes.get(module, ())))

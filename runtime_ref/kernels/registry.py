"""The registry: kernels by name, found once and remembered."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Final

from .kernel import Kernel
from .own import own_kernels
from .torch_kernels import torch_kernel, torch_kernel_names

# A misspelled name is looked for among those that start alike.
_START: Final = 8


class OperatorRegistry:
    """The operators that a program may call."""

    def __init__(self) -> None:
        self._own = {kernel.name: kernel for kernel in own_kernels()}
        self._found: dict[str, Kernel] = {}
        self._known: tuple[dict[str, list[str]], dict[str, list[str]]] | None = None

    @property
    def operator_names(self) -> AbstractSet[str]:
        """Names of all operators that run, `aten::add.out`; a default overload has no suffix."""
        return torch_kernel_names() | self._own.keys()

    def find(self, name: str) -> Kernel | None:
        """Return the kernel of that name, or None."""
        kernel = self._own.get(name) or self._found.get(name)
        # A failure is looked up again: the library may have been imported since.
        if kernel is None:
            kernel = torch_kernel(name)
            if kernel is not None:
                self._found[name] = kernel
        return kernel

    def suggest(self, name: str) -> str | None:
        """Return the known name that is closest to an unknown one, if any is close."""
        if self._known is None:
            self._known = _by_base_and_start(sorted(self.operator_names))
        by_base, by_start = self._known
        siblings = by_base.get(name.partition(".")[0], [])
        # Comparing texts is slow, and malformed files are full of unknown names.
        near = siblings or [one for one in by_start.get(name[:_START], ()) if abs(len(one) - len(name)) < 3]
        close = difflib.get_close_matches(name, near, n=1, cutoff=0.0 if siblings else 0.75)
        return close[0] if close else None


def _by_base_and_start(names: Iterable[str]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return names by what is before their overload, and by their first letters."""
    by_base: dict[str, list[str]] = {}
    by_start: dict[str, list[str]] = {}
    for name in names:
        by_base.setdefault(name.partition(".")[0], []).append(name)
        by_start.setdefault(name[:_START], []).append(name)
    return by_base, by_start


@cache
def default_registry() -> OperatorRegistry:
    """Return the registry that is used wherever none is given."""
    return OperatorRegistry()

"""The registry: kernels by name, found once and remembered."""

from __future__ import annotations

import difflib
from collections.abc import Set as AbstractSet
from functools import cache

from .kernels import Kernel
from .own_kernels import own_kernels
from .torch_kernels import torch_kernel, torch_kernel_names


class OperatorRegistry:
    """The operators that a program may call."""

    def __init__(self) -> None:
        self._own = {kernel.name: kernel for kernel in own_kernels()}
        self._found: dict[str, Kernel] = {}
        self._known: list[str] | None = None

    @property
    def operator_names(self) -> AbstractSet[str]:
        """Names of all operators that run, `aten::add.out`; a default overload has no suffix."""
        return torch_kernel_names() | self._own.keys()

    def find(self, name: str) -> Kernel | None:
        """Return the kernel of that name, or None."""
        kernel = self._own.get(name) or self._found.get(name)
        # A failure is looked up anew: the library may have been imported since.
        if kernel is None:
            kernel = torch_kernel(name)
            if kernel is not None:
                self._found[name] = kernel
        return kernel

    def suggest(self, name: str) -> str | None:
        """Return the known name that is closest to an unknown one, if any is close."""
        if self._known is None:
            self._known = sorted(self.operator_names)
        base = name.partition(".")[0]
        siblings = [one for one in self._known if one.partition(".")[0] == base]
        # Comparing texts is slow, and hostile files are full of unknown names.
        near = siblings or [one for one in self._known if abs(len(one) - len(name)) < 3 and one[:8] == name[:8]]
        close = difflib.get_close_matches(name, near, n=1, cutoff=0.0 if siblings else 0.75)
        return close[0] if close else None


@cache
def default_registry() -> OperatorRegistry:
    """Return the registry that is used wherever none is given."""
    return OperatorRegistry()


class BackendRegistry:
    """The backends that can run delegates: none yet."""

    @property
    def registered_backend_names(self) -> list[str]:
        """Names of the registered backends."""
        return []

    def is_available(self, backend_name: str) -> bool:
        """Return whether delegates of that backend can run."""
        return backend_name in self.registered_backend_names

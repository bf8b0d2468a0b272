"""Passes by name, and what annotations of passes name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from exirkit.ir import UsageError

Argument: TypeAlias = Any
"""What an argument of a call may be in an `ExportPass`."""

Value: TypeAlias = Any
"""What a value may be while a program is traced."""


class PassRegistry:
    """Passes by name.

    Attributes:
        registry: Lists of passes by name.
    """

    registry: ClassVar[dict[str, list[Any]]] = {}

    @classmethod
    def register(cls, pass_name: str | None = None) -> Callable[[Any], Any]:
        """Return a decorator that registers a pass.

        Args:
            pass_name: Its name; if absent, that of the function or class in small letters: `FuseRelu` is `fuse_relu`.
        """

        def registered(one: Any) -> Any:
            name = pass_name or re.sub(r"(?<!^)(?=[A-Z])", "_", one.__name__).lower()
            cls.register_list(name, [one])
            return one

        return registered

    @classmethod
    def register_list(cls, pass_name: str, pass_list: list[Any]) -> None:
        """Register several passes under one name; a name that is taken keeps its passes, with a warning."""
        if pass_name in cls.registry:
            warnings.warn(f"there are passes called {pass_name!r} already; they stay", stacklevel=2)
            return
        cls.registry[pass_name] = pass_list

    @classmethod
    def get(cls, key: str) -> list[Any]:
        """Return the passes of a name.

        Raises:
            UsageError: EK761, there are none.
        """
        if key not in cls.registry:
            known = ", ".join(sorted(cls.registry)) or "none is registered"
            raise UsageError(code="EK761", message=f"no pass is registered as {key!r}", expected=known)
        return cls.registry[key]

"""The handles of operators."""

from __future__ import annotations

from typing import Any

import torch

from exirkit.ir import DefinedOperator, defined_operator, defined_operator_names
from exirkit.ir import ops as ops

# Libraries whose operators the backend dialect has: all that torch knows, whatever is appended here.
_BACKEND_OP_LIB: list[str] = []


class _Packet:
    """The overloads of an operator of exirkit, as an attribute of `torch.ops.NAMESPACE`."""

    def __init__(self, name: str) -> None:
        self._qualified = name

    def __getattr__(self, overload: str) -> DefinedOperator:
        found = defined_operator(self._qualified if overload == "default" else f"{self._qualified}.{overload}")
        if found is None:
            raise AttributeError(overload)
        return found


class _Namespace(type(torch.ops.aten)):  # type: ignore[misc]
    """A namespace of `torch.ops` that has, besides what torch knows, the operators that exirkit defines itself.

    Code for the official package names some of them there, where that registers them. They are given out only as long
    as torch has no operator of the name, so both packages can be imported, in either order.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if not any(one.split(".")[0] == f"{self.name}::{name}" for one in defined_operator_names()):
                raise
            return _Packet(f"{self.name}::{name}")


for _namespace in sorted({one.partition("::")[0] for one in defined_operator_names()}):
    getattr(torch.ops, _namespace).__class__ = _Namespace

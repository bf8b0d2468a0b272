"""Operators of the Edge dialect as another library in the process calls them, told by their form and never imported.

The official package has handles of its own around the same torch operators. Programs full of them are read through
`underlying`, and what a pass adds to one is called by the handles that the library itself gives out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload

from .defined_operators import DefinedOperator, defined_operator

REGISTRIES = {"executorch.exir.dialects.edge._ops": "executorch.exir.dialects._ops"}
"""For each module with a class of handles, the one whose `ops.edge` gives them out."""


def operator_behind(target: Any) -> OpOverload | DefinedOperator | None:
    """Return the operator behind a handle of another library, or None if the target is no such handle.

    An operator that exirkit defines itself under the same name and schema is returned as exirkit's.
    """
    op = getattr(target, "_op", None)
    if not isinstance(op, OpOverload) or isinstance(target, OpOverload):
        return None
    own = defined_operator(op.name())
    return own if own is not None and _arguments(own) == _arguments(op) else op


def handles_like(target: Any) -> Callable[[OpOverload | DefinedOperator], Any]:
    """Return the function from operators to handles of the library that gave out `target`.

    Handles that it returns are those that the library's own look-up gives, so that comparing them by identity works.
    """
    kind = type(target)
    registry = getattr(sys.modules.get(REGISTRIES.get(kind.__module__, "")), "ops", None)

    def handle(op: OpOverload | DefinedOperator) -> Any:
        namespace, _, name = op._schema.name.partition("::")
        found: Any = getattr(registry, "edge", None)
        for part in (namespace, name, op._overloadname):
            found = getattr(found, part, None)
        return found if isinstance(found, kind) else kind(op, op._schema)

    return handle


def _arguments(op: OpOverload | DefinedOperator) -> list[tuple[str, str, bool]]:
    return [(one.name, str(one.type), one.kwarg_only) for one in op._schema.arguments]

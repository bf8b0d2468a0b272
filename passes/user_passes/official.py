"""Passes and pass managers of the official package, where the process has loaded it; nothing here imports it.

Ours join theirs, and theirs run on our programs: while they run, calls name operators by the official handles, with
which such passes compare targets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.fx import GraphModule

from exirkit.ir import give_foreign_handles, take_foreign_handles

_LIBRARY = "executorch"
_HOME, _BASE = "executorch.exir.pass_base", "ExportedProgramPassBase"


def join_official_passes(kind: type) -> None:
    """Make a class of passes count as passes over programs for the official pass manager.

    The manager calls such passes with the exported program, in which stored tensors are known, and all others with its
    graph module. What is asked of them is to be callable and to return something with `exported_program` and
    `modified`. Versions of the package without such passes call every pass with the graph module.

    Args:
        kind: The class; its objects can be called with either.
    """
    base = getattr(sys.modules.get(_HOME), _BASE, None)
    if base is not None and not issubclass(kind, base):
        base.register(kind)


def is_official(one: Any) -> bool:
    """Return whether a pass is an object of the official package, or of a class derived from one of its classes."""
    return any(kind.__module__.partition(".")[0] == _LIBRARY for kind in type(one).__mro__)


def takes_programs(one: Any) -> bool:
    """Return whether a pass of the official package works on exported programs, not on graph modules."""
    base = getattr(sys.modules.get(_HOME), _BASE, None)
    return base is not None and is_official(one) and isinstance(one, base)


@contextmanager
def official_handles(module: GraphModule) -> Iterator[None]:
    """Let a graph name operators by the official handles inside of the block."""
    give_foreign_handles(module, _LIBRARY)
    try:
        yield
    finally:
        take_foreign_handles(module)


def run_official(one: Any, module: GraphModule) -> Any:
    """Call an official pass with a graph module of ours; what it returns has our handles.

    Args:
        one: A pass over graph modules.
        module: The graph, which has our handles again in the end.
    """
    with official_handles(module):
        result = one(module)
        made = getattr(result, "graph_module", result)
        if isinstance(made, GraphModule):
            take_foreign_handles(made)
    return result

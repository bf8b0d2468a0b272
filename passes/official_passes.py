"""Joining the passes of the official package, where the process has loaded it; nothing here imports it."""

from __future__ import annotations

import sys

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

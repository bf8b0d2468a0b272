"""The error of passes that work node by node, about programs for which that is not enough."""

from __future__ import annotations

from torch.fx import Node

from exirkit.ir import Diagnostic, Location, ModelError, locate


class WholeGraphNeededError(ModelError):
    """A program needs torch's own decomposition, which re-traces the whole graph (EK426); the message says why."""

    def __init__(self, why: str, node: Node | None = None) -> None:
        location = Location() if node is None else locate(node)
        super().__init__(Diagnostic(code="EK426", message=f"cannot decompose node by node: {why}", location=location))

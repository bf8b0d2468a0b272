"""Names of a match in which constants are tensors, for what is computed while a program is lowered."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import DeferredTensor
from exirkit.patterns.syntax.expressions import SYMBOLIC, NameView

FACTS = "$facts"
"""Name under which what is known of the graph can be asked."""


def numbers_read(value: Any) -> Any:
    """Return a list with sizes instead of the nodes that compute them; anything else as it is."""
    if not isinstance(value, list | tuple) or Node not in map(type, value):
        return value
    return [
        one.meta.get("val") if isinstance(one, Node) and isinstance(one.meta.get("val"), SYMBOLIC) else one
        for one in value
    ]


class ConstantNames(NameView):
    """Names of a match in which constants are real tensors, as `let` computes with them."""

    def __getitem__(self, key: str) -> Any:
        value = self.names[key]
        if isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor):
            known = self.names[FACTS].value(value)
            return value if known is None else DeferredTensor.composing(known)
        return numbers_read(value)

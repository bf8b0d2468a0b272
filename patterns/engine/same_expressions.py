"""Whether what a rule makes is what it was made of: the same calls, shared in the same way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import ATTRIBUTE_KEYS, same_argument
from exirkit.patterns.operators.arguments import canonical_arguments

Stored = Callable[[Node], torch.Tensor | None]


def is_what_is_there(pairs: Sequence[tuple[Node, Node]], made: Collection[Node], stored: Stored) -> bool:
    """Whether new expressions repeat those that they replace, call by call, however the arguments are written.

    A call that several roots share, and of which each of them gets one of its own, is not the same.

    Args:
        pairs: Each root and what replaces it.
        made: New calls and constants; what was there before is the same only if it is one node.
        stored: Tensor behind the placeholder of a constant.
    """
    comparisons = []
    for root, new in pairs:
        comparisons.append(_Comparison(frozenset(made), stored))
        if not comparisons[-1].is_same(root, new):
            return False
    found: dict[Node, Node] = {}
    for each in comparisons:
        own = {old: new for (old, new), is_same in each.known.items() if is_same and old.op == "call_function"}
        if any(found.get(old, new) is not new for old, new in own.items()):
            return False
        found |= own
    return True


class _Comparison:
    """One comparison; calls that several use are compared once."""

    def __init__(self, made: frozenset[Node], stored: Stored) -> None:
        self.made = made
        self.stored = stored
        self.known: dict[tuple[Node, Node], bool] = {}

    def is_same(self, old: Any, new: Any) -> bool:
        if isinstance(old, Node) and isinstance(new, Node):
            return old is new or (new in self.made and self._is_same_node(old, new))
        if isinstance(old, list | tuple) and isinstance(new, list | tuple):
            return len(old) == len(new) and all(map(self.is_same, old, new))
        return same_argument(_size_of(old), _size_of(new))

    def _is_same_node(self, old: Node, new: Node) -> bool:
        if (old, new) not in self.known:
            self.known[old, new] = self._compared(old, new)
        return self.known[old, new]

    def _compared(self, old: Node, new: Node) -> bool:
        if old.op == new.op == "placeholder":
            return is_same_tensor(self.stored(old), self.stored(new))
        if old.op != "call_function" or new.op != "call_function":
            return False
        if isinstance(new.meta.get("val"), torch.SymInt):
            return same_argument(old.meta.get("val"), new.meta["val"])
        if old.target is not new.target:
            return False
        if any(old.meta.get(key) != new.meta.get(key) for key in _attribute_keys(old, new)):
            return False
        before, after = canonical_arguments(old), canonical_arguments(new)
        return before.keys() == after.keys() and all(self.is_same(before[key], after[key]) for key in before)


def _attribute_keys(old: Node, new: Node) -> tuple[str, ...]:
    return (*old.meta.get(ATTRIBUTE_KEYS, ()), *new.meta.get(ATTRIBUTE_KEYS, ()))


def _size_of(argument: Any) -> Any:
    """Return the size that a node computes, since a size can also stand in an argument as such."""
    value = argument.meta.get("val") if isinstance(argument, Node) else None
    return value if isinstance(value, torch.SymInt) else argument


def is_same_tensor(old: torch.Tensor | None, new: torch.Tensor | None) -> bool:
    """Whether two stored tensors are the same bit for bit."""
    if old is None or new is None or old.dtype != new.dtype or old.shape != new.shape or type(old) is not type(new):
        return False
    if old.is_quantized or old.layout is not torch.strided:
        return old is new
    return torch.equal(_bits(old), _bits(new))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().contiguous().reshape(-1)
    # A single element is contiguous with any stride, but seen as bytes only with stride 1.
    return (flat.as_strided((1,), (1,)) if flat.numel() == 1 else flat).view(torch.uint8)

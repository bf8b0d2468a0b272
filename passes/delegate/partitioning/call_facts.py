"""What rules may ask about a call, each answered once and only if it is asked."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import delegate_of, underlying
from exirkit.passes.config.node_names import operator_names
from exirkit.patterns import DTYPES, ProgramFacts, Work, work_of

_SHORT = {dtype: name for name, dtype in DTYPES.items()}


@dataclass
class CallFacts:
    """A call as rules see it.

    Attributes:
        node: The call.
        facts: Answers about its graph.
    """

    node: Node
    facts: ProgramFacts = field(repr=False)

    @cached_property
    def operator(self) -> str:
        """Name of the operator as rule books write it."""
        names = operator_names(self.node)
        return names[0] if names else str(self.node.target)

    @cached_property
    def results(self) -> list[torch.Tensor]:
        """The tensors that it computes, without contents."""
        return list(_tensors(self.node.meta.get("val")))

    @cached_property
    def arguments(self) -> list[torch.Tensor]:
        """The tensors that it is given, without contents."""
        return [one for source in self.node.all_input_nodes for one in _tensors(source.meta.get("val"))]

    @cached_property
    def nbytes(self) -> float:
        """Bytes of all results at the upper bounds of their sizes; infinite where there is none."""
        return sum(math.prod(map(self._upper, one.shape)) * one.element_size() for one in self.results)

    @cached_property
    def is_static(self) -> bool:
        """Whether the sizes of all results and arguments are known."""
        return all(isinstance(size, int) for one in (*self.results, *self.arguments) for size in one.shape)

    @cached_property
    def work(self) -> Work:
        """What it has to do; sizes that vary count as when the program was exported, unknown ones as nothing."""
        return work_of(self.node) or Work()

    def value_of(self, name: str) -> Any:
        """Return what a name of a condition stands for."""
        if name == "x":
            return self.node
        return self.nbytes if name == "nbytes" else getattr(self.work, name)

    def _upper(self, size: Any) -> float:
        return size if isinstance(size, int) else float(self.facts.range_of(size)[1])


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype as rules write it."""
    return _SHORT.get(dtype, str(dtype).removeprefix("torch."))


def obstacle_to_taking(node: Node) -> str | None:
    """Return why no delegate can take a call, whatever rules say; None if one can."""
    if delegate_of(node) is not None:
        return "it calls a delegate"
    if not hasattr(underlying(node.target), "_schema"):
        return "it is no call of an operator"
    if next(_tensors(node.meta.get("val")), None) is None:
        return "it computes no tensor, and delegates hand back nothing else"
    return None


def is_result_of_several(node: Node) -> bool:
    """Tell whether a node takes a result out of several: it goes where they are computed."""
    return node.target is operator.getitem


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Sequence):
        for one in value:
            if isinstance(one, torch.Tensor):
                yield one

"""What XNNPACK's serialiser is given, seen on its way: without debug handles, and counted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock


@contextmanager
def seen_graphs() -> Iterator[list[Any]]:
    """Collect the graphs that are serialised inside, from which debug handles are taken.

    A copy between orders carries the handle of what it is made of after our passes, and none after the original ones.
    """
    module: Any = import_module("executorch.backends.xnnpack.xnnpack_preprocess")
    original, graphs = module.serialize_xnnpack_binary, []

    def serialize(graph: Any, data: Any) -> Any:
        for node in graph.xnodes:
            node.debug_handle = 0
        graphs.append(graph)
        return original(graph, data)

    with mock.patch.object(module, "serialize_xnnpack_binary", serialize):
        yield graphs


def transposed(graphs: list[Any]) -> tuple[int, int]:
    """Return how many transpositions graphs have, and how many elements these move."""
    moved = [
        math.prod(_tensor(graph, node.xnode_union.output_id).dims)
        for graph in graphs
        for node in graph.xnodes
        if type(node.xnode_union).__name__ == "XNNStaticTranspose"
    ]
    return len(moved), sum(moved)


def _tensor(graph: Any, number: int) -> Any:
    values = (one.xvalue_union for one in graph.xvalues)
    tensors = (getattr(one, "tensor_value", one) for one in values)
    return next(one for one in tensors if one.id_out == number)

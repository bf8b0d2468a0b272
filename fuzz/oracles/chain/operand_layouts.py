"""The layouts of what kernels read and write, as the plan states them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.fuzz.examination import Examination, Failure
from exirkit.fuzz.oracles.oracle import Oracle
from exirkit.ir import (
    OpOverload,
    TensorSpec,
    dim_order_from_stride,
    functional_variant,
    has_trait,
    is_out_variant,
    is_static,
    pytree,
    underlying,
)

Order: TypeAlias = tuple[int, ...]
"""Dims from the outermost to the innermost."""


class OperandLayouts(Oracle):
    """Kernels get and make tensors of one dim order, but for those that take several.

    Where sizes are one, other orders are the same bytes, so that no result differs; kernels of the official runtime
    compare the orders all the same, and reject the call.
    """

    name = "operand-layouts"
    title = "kernels that take one layout are given tensors of one dim order"
    cost = 45
    needs = ("own plan",)
    suspects = ("shared views", "layout passes", "stage")

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield the first call of each method whose tensors have several dim orders."""
        for method, program in examination.lowering.planned.items():
            for node, orders in calls_of_several_orders(program):
                if is_out_variant(underlying(node.target)):
                    message = f"{method}: %{node.name} = {node.target} has tensors in dim orders {sorted(orders)}"
                    yield Failure(self.name, "several dim orders", message, "planner", node.name, {"method": method})
                    break


def calls_of_several_orders(program: ExportedProgram) -> Iterator[tuple[Node, set[Order]]]:
    """Yield the calls of kernels that take one dim order whose tensors have several, and these."""
    graphs = [one.graph for one in program.graph_module.modules() if isinstance(one, GraphModule)]
    for node in (node for graph in graphs for node in graph.nodes):
        orders = _orders(node)
        if len(orders) > 1:
            yield node, orders


def _orders(node: Node) -> set[Order]:
    """Return the dim orders of the tensors of a call that takes one; none of a call that takes several."""
    op = underlying(node.target) if node.op == "call_function" else None
    if not isinstance(op, OpOverload) or op.namespace != "aten":
        return set()
    functional: Any = functional_variant(op) if is_out_variant(op) else op
    if functional is None or has_trait(functional, "any_layouts") or has_trait(functional, "channels_last"):
        return set()
    # Before memory is planned values say how they lie, and specs from then on.
    word = "spec" if is_out_variant(op) else "val"
    orders = {order for one in (node, *node.all_input_nodes) for order in _orders_of(one.meta.get(word))}
    # Tensors of fewer dims are broadcast, row by row.
    return set() if all(order == tuple(range(len(order))) for order in orders) else orders


def _orders_of(value: Any) -> Iterator[Order]:
    """Yield the dim orders of specs or tensors."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, TensorSpec):
            yield tuple(leaf.dim_order)
        elif isinstance(leaf, torch.Tensor) and is_static(leaf):
            yield tuple(dim_order_from_stride(leaf.stride(), leaf.shape))

"""The layouts of what kernels read and write, as the plan states them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.fx import GraphModule, Node

from exirkit.fuzz.examination import Examination, Failure
from exirkit.ir import OpOverload, TensorSpec, functional_variant, has_trait, is_out_variant, underlying

from .oracle import Oracle


class OperandLayouts(Oracle):
    """Kernels get and make tensors of one dim order, but for those that take several.

    Where sizes are one, other orders are the same bytes, so that no result differs; kernels of the official runtime
    compare the orders all the same, and reject the call.
    """

    name = "operand-layouts"
    title = "kernels that take one layout are given tensors of one dim order"
    cost = 45
    needs = ("own plan",)
    suspects = ("shared views", "stage")

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield the first call of each method whose tensors have several dim orders."""
        for method, program in examination.lowering.planned.items():
            graphs = [one.graph for one in program.graph_module.modules() if isinstance(one, GraphModule)]
            for node in (node for graph in graphs for node in graph.nodes):
                orders = _orders(node)
                if len(orders) > 1:
                    message = f"{method}: %{node.name} = {node.target} has tensors in dim orders {sorted(orders)}"
                    yield Failure(self.name, "several dim orders", message, "planner", node.name, {"method": method})
                    break


def _orders(node: Node) -> set[tuple[int, ...]]:
    """Return the dim orders of the tensors of a call that takes one; none of a call that takes several."""
    op = underlying(node.target) if node.op == "call_function" else None
    if not isinstance(op, OpOverload) or op.namespace != "aten" or not is_out_variant(op):
        return set()
    functional: Any = functional_variant(op)
    if functional is None or has_trait(functional, "any_layouts") or has_trait(functional, "channels_last"):
        return set()
    specs = [one.meta.get("spec") for one in (node, *node.all_input_nodes)]
    leaves = [leaf for one in specs for leaf in (one if isinstance(one, list | tuple) else (one,))]
    orders = {tuple(leaf.dim_order) for leaf in leaves if isinstance(leaf, TensorSpec)}
    # Tensors of fewer dims are broadcast, row by row.
    return set() if all(order == tuple(range(len(order))) for order in orders) else orders

"""Facts about single nodes: purity, effects, the value whose memory a view shows."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

from torch._library.utils import is_impure
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import _side_effectful_functions

from exirkit.ir.analysis.interface import results_of_graph
from exirkit.ir.operators.defined_operators import free
from exirkit.ir.operators.handles import underlying


def is_pure(node: Node) -> bool:
    """Return whether a node does nothing but return its value, so that it may be erased if that is unused.

    Not pure are inputs and outputs, operators that write to an argument, assert or constrain, return nothing, or draw
    random numbers (an unused draw moves the state of the generator, so what is drawn later depends on it), and control
    flow with such a call in one of its bodies.
    """
    if node.op != "call_function":
        return node.op == "get_attr"
    target = underlying(node.target)
    if target is free:
        return False
    schema = getattr(target, "_schema", None)
    if schema is not None and not schema.returns:
        return False
    if isinstance(target, HigherOrderOperator) and not all(map(_is_pure_body, node.all_input_nodes)):
        return False
    # Handles are unknown to torch, so it is asked about what they stand for.
    if isinstance(target, OpOverload):
        return target not in _side_effectful_functions and not _has_effect(target)
    return not is_impure(target, args=node.args, kwargs=dict(node.kwargs))


@cache
def _has_effect(op: OpOverload) -> bool:
    """For an overload the answer of torch depends on nothing else, and it takes its time."""
    return bool(is_impure(op))


def has_effect(node: Node) -> bool:
    """Return whether a call does something that others see even if nothing uses its value.

    That is less than not to be pure: a random draw has no effect in this sense, since what replaces the call
    replaces the draw.
    """
    if node.op != "call_function":
        return False
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return not is_pure(node)
    return bool(schema.is_mutable or not schema.returns)


def _is_pure_body(node: Node) -> bool:
    if node.op != "get_attr":
        return True
    body = getattr(node.graph.owning_module, str(node.target), None)
    if not isinstance(body, GraphModule):
        return True
    return all(is_pure(inner) for inner in body.graph.nodes if inner.op not in ("placeholder", "output"))


def alias_root(node: Node) -> Node:
    """Return the value whose memory a chain of views shows; the node itself if it is not a view."""
    while node.op == "call_function":
        source = node
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            # An item of a list of views is a view; items of other results are values of their own.
            source = node.args[0]
        first = source.args[0] if source.args else None
        if not _views_first_argument(source.target) or not isinstance(first, Node):
            return source if source is not node and _views_first_argument(source.target) else node
        node = first
    return node


def shared_results(graph: Graph) -> int:
    """Return how many results of a graph are inputs, views of inputs, or share memory with another result."""
    returned = [one for one in results_of_graph(graph) if isinstance(one, Node)]
    roots = {root for root in map(alias_root, returned) if root.op != "placeholder"}
    return len(returned) - len(roots)


def _views_first_argument(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is not None and bool(schema.arguments) and schema.arguments[0].alias_info is not None

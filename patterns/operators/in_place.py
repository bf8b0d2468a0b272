"""Calls that write to their first argument, read as calls that return a new tensor where that makes no difference.

`torch.export` keeps `relu_` and `add_` as models write them. A value that nothing else can see any more may as well be
new, and then rules need one text for both.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

import torch
from torch.fx import Graph, Node

from exirkit.ir import GraphEditor, OpOverload, is_composite, underlying, value_of
from exirkit.patterns.syntax.terms import Operator

# These give bools where the operators that write convert them to the dtype of what they write to.
_OTHER_DTYPES = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not"}
)
# Composite operators that always make a new tensor; others may give back what they were given without saying so.
_MAKE_NEW = frozenset({
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linear", "matmul",
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "max_pool1d", "max_pool2d", "max_pool3d",
    "adaptive_avg_pool2d", "relu6", "scaled_dot_product_attention", "einsum", "softmax", "log_softmax", "embedding",
    "silu", "mish", "square", "rsub", "glu", "pixel_shuffle", "prelu", "cross_entropy_loss",
})  # fmt: skip


@cache
def functional_variant_of(op: Operator) -> Operator | None:
    """Return the operator that returns what another one writes to its first argument: `relu` for `relu_`."""
    schema = getattr(op, "_schema", None)
    if schema is None or not isinstance(op, OpOverload) or not _writes_first_only(schema):
        return None
    name = schema.name.partition("::")[2]
    if not name.endswith("_") or name.endswith("__") or name[:-1] in _OTHER_DTYPES:
        return None
    packet = getattr(getattr(torch.ops, op.namespace), name[:-1], None)
    found = getattr(packet, schema.overload_name or "default", None)
    if found is None or found._schema.is_mutable:
        return None
    same = [one.name for one in found._schema.arguments] == [one.name for one in schema.arguments]
    return found if same and len(found._schema.returns) == 1 else None


def _writes_first_only(schema: torch.FunctionSchema) -> bool:
    written = [
        index for index, one in enumerate(schema.arguments) if one.alias_info is not None and one.alias_info.is_write
    ]
    return written == [0] and len(schema.returns) == 1


def writes(node: Node) -> bool:
    """Whether a call writes to an argument."""
    schema = getattr(underlying(node.target), "_schema", None) if node.op == "call_function" else None
    return schema is not None and schema.is_mutable


def calls_by_target(graph: Graph) -> Collection[Node]:
    """Return one call of each target: a graph of thousands of calls has few dozen targets."""
    # By identity, since torch computes the hash of an operator in Python.
    return {id(node.target): node for node in graph.nodes if node.op == "call_function"}.values()


def is_functional(graph: Graph) -> bool:
    """Whether no call of a graph writes to an argument."""
    return not any(map(writes, calls_by_target(graph)))


def make_functional(editor: GraphEditor) -> int:
    """Let calls return new tensors instead of writing to values that nothing else uses afterwards.

    Args:
        editor: Editor of the program, inside a transaction.

    Returns:
        How many calls were changed.
    """
    count = 0
    for node in _writing(editor.graph):
        functional = functional_variant_of(underlying(node.target))
        if functional is not None and _is_unseen(node) and _keeps_dtype(node):
            editor.retarget(node, functional)
            count += 1
    return count


def _writing(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if writes(node)]


def _is_unseen(node: Node) -> bool:
    """Whether nothing but the result of a call shows that it wrote to its first argument."""
    value = node.args[0] if node.args else None
    if not isinstance(value, Node) or not _makes_new(value):
        return False
    others = [user for user in value.users if user is not node]
    return all(user < node and _makes_new(user) for user in others)


def _makes_new(node: Node) -> bool:
    """Whether no memory of an argument is in the result of a call."""
    op = underlying(node.target) if node.op == "call_function" else None
    if not isinstance(op, OpOverload) or any(one.alias_info is not None for one in op._schema.returns):
        return False
    return not is_composite(op) or op._schema.name.partition("::")[2] in _MAKE_NEW


def _keeps_dtype(node: Node) -> bool:
    """Whether the result has the dtype of the first argument without being written there."""
    given: list[Any] = [*node.args[1:], *node.kwargs.values()]
    value = value_of(node.args[0])
    for one in given:
        other = value_of(one)
        is_number = isinstance(other, int | float) and type(other) is not bool
        if (is_number or isinstance(other, torch.Tensor)) and torch.result_type(value, other) != value.dtype:
            return False
    return isinstance(value, torch.Tensor)


def memory_of(node: Node) -> Node:
    """Return the value in whose memory the result of a call lies, or may lie."""
    while node.op == "call_function" and node.all_input_nodes and not _makes_new(node):
        node = node.args[0] if isinstance(node.args[0], Node) else node.all_input_nodes[0]
    return node


def writes_by_memory(graph: Graph) -> list[tuple[Node, Node]]:
    """Return the calls that write, each with what it writes to, once for every value."""
    found: list[tuple[Node, Node]] = []
    for node in _writing(graph):
        schema = underlying(node.target)._schema
        given = {**dict(zip((one.name for one in schema.arguments), node.args, strict=False)), **node.kwargs}
        for argument in schema.arguments:
            value = given.get(argument.name)
            if argument.alias_info is not None and argument.alias_info.is_write:
                written = value if isinstance(value, list | tuple) else [value]
                found += [(node, memory_of(one)) for one in written if isinstance(one, Node)]
    return found

"""How much memory is alive at a place of a graph that is not planned yet, and how much a plan takes."""

from __future__ import annotations

import math
from collections.abc import Container

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import underlying

_SHARING = (torch.ops.aten.view_copy.default, torch.ops.aten.unsqueeze_copy.default, torch.ops.aten.squeeze_copy.dims)


def planned_nbytes(program: ExportedProgram) -> int:
    """Return the bytes of all planned memory of a program.

    Args:
        program: A program of the ExecuTorch dialect that has been planned.
    """
    sizes = program.graph_module.meta.get("non_const_buffer_sizes", [])
    return sum(int(size) for size in sizes)


def peak_nbytes(program: ExportedProgram) -> float:
    """Return the most bytes of values that are alive at once in a program that is not planned yet.

    Counts what `live_nbytes` counts; takes time in proportion to the number of nodes.
    """
    inputs = frozenset(program.graph_signature.user_inputs)
    nodes = list(program.graph.nodes)
    place = {node: index for index, node in enumerate(nodes)}
    last: dict[Node, int] = {}
    # From the end, so that what reshapes a value has its own last use already.
    for node in reversed(nodes):
        ends = [last[user] if underlying(user.target) in _SHARING else place[user] for user in node.users]
        last[node] = max(ends, default=place[node])
    changes = [0.0] * (len(nodes) + 1)
    for node in nodes:
        if node.name in inputs if node.op == "placeholder" else _has_memory(node):
            nbytes = _nbytes(node)
            changes[place[node]] += nbytes
            changes[last[node] + 1] -= nbytes
    most = alive = 0.0
    for change in changes:
        alive += change
        most = max(most, alive)
    return most


def live_nbytes(node: Node, inputs: Container[str]) -> float:
    """Return the bytes of values that are alive while a call runs, its own result not counted.

    Stored tensors take no planned memory and do not count; a reshaped value counts once. Sizes that vary count as
    large as they were when the program was exported.

    Args:
        node: Call in a graph that is not planned yet.
        inputs: Names of the placeholders that are inputs of the program.
    """
    total = 0.0
    for other in node.graph.nodes:
        if other is node:
            break
        has_memory = other.name in inputs if other.op == "placeholder" else _has_memory(other)
        if has_memory and _last_use_is_behind(other, node):
            total += _nbytes(other)
    return total


def _has_memory(node: Node) -> bool:
    return node.op == "call_function" and underlying(node.target) not in _SHARING


def _last_use_is_behind(value: Node, node: Node) -> bool:
    pending = [value]
    while pending:
        for user in pending.pop().users:
            if user is node or node < user:
                return True
            if underlying(user.target) in _SHARING:
                pending.append(user)
    return False


def _nbytes(node: Node) -> float:
    values = node.meta.get("val")
    total = 0.0
    for one in values if isinstance(values, list | tuple) else [values]:
        if isinstance(one, torch.Tensor):
            sizes = [size.node.hint if isinstance(size, torch.SymInt) else size for size in one.shape]
            total += math.inf if any(size is None for size in sizes) else math.prod(sizes) * one.element_size()
    return total

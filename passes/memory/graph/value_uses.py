"""Who makes a value, who reads it, and how many bytes that moves."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportGraphSignature
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from exirkit.ir import TensorSpec, alloc, underlying, view
from exirkit.passes.memory.algorithms import has_integer_sizes, storage_root

from .specs import node_specs, user_inputs, user_outputs

_STRUCTURAL = (alloc, view, operator.getitem)


@dataclass(slots=True)
class ValueUse:
    """What happens to the memory that a spec owns, through views as well.

    Attributes:
        maker: The node that fills it first: a call, or the placeholder of an input.
        holder: A node whose value it is, alone: of the results of one call, the node that takes it out.
        readers: Calls that read it, each once, in order.
        traffic: Bytes that are written to it and read from it in one run: by every call, by the caller who fills an
            input, and by the one who reads an output. A value that a call reads twice counts twice; what happens in the
            graphs of control flow counts as one reading.
    """

    maker: Node
    holder: Node
    readers: list[Node] = field(default_factory=list)
    traffic: int = 0


def value_uses(
    graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None
) -> dict[TensorSpec, ValueUse]:
    """Return the uses of every spec that owns memory, in order of the graph.

    Args:
        graph_module: A graph of the ExecuTorch dialect, with specs whose sizes are numbers; others move no bytes.
        graph_signature: Says which outputs are new values of buffers, which the caller does not get.
    """
    uses: dict[TensorSpec, ValueUse] = {}
    allocs: dict[TensorSpec, Node] = {}
    inputs = set(user_inputs(graph_module.graph, graph_signature))
    for node in graph_module.graph.nodes:
        if node.op == "output":
            continue
        for spec in node_specs(node):
            root = storage_root(spec)[0]
            if node.target is alloc:
                allocs.setdefault(root, node)
            elif root not in uses:
                # An output that nothing takes out of the results of its call is held by its alloc alone.
                alone = isinstance(node.meta.get("spec"), TensorSpec)
                uses[root] = ValueUse(node, node if alone else allocs.get(root, node))
            elif node.target is operator.getitem and uses[root].maker is node.args[0]:
                uses[root].holder = node
        if node.op == "call_function" and node.target not in _STRUCTURAL:
            _note_call(node, uses)
        elif node.name in inputs:
            _move(uses, node_specs(node))
    for node in user_outputs(graph_module.graph, graph_signature):
        _move(uses, node_specs(node))
    return uses


def _note_call(node: Node, uses: dict[TensorSpec, ValueUse]) -> None:
    _move(uses, node_specs(node))
    for argument in _arguments_read(node):
        specs = node_specs(argument)
        _move(uses, specs)
        for spec in specs:
            readers = uses[root].readers if (root := storage_root(spec)[0]) in uses else []
            if not readers or readers[-1] is not node:
                readers.append(node)


def _move(uses: dict[TensorSpec, ValueUse], specs: list[TensorSpec]) -> None:
    for spec in specs:
        use = uses.get(storage_root(spec)[0])
        if use is not None and has_integer_sizes(spec):
            use.traffic += spec.nbytes()


def _arguments_read(node: Node) -> Iterator[Node]:
    """Yield every argument that a call reads, once for each time it is given."""
    schema = getattr(underlying(node.target), "_schema", None)
    if not isinstance(schema, torch.FunctionSchema):
        yield from _nodes_in((node.args, node.kwargs))
        return
    for place, argument in enumerate(schema.arguments):
        value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        # What a copy overwrites it does not read.
        overwritten = schema.name == "aten::copy_" and place == 0
        if not argument.is_out and not overwritten:
            yield from _nodes_in(value)


def _nodes_in(value: Any) -> list[Node]:
    found: list[Node] = []
    map_arg(value, found.append)
    return found

"""From which step to which step each tensor must keep its memory."""

from __future__ import annotations

import operator

from torch.export import ExportGraphSignature
from torch.fx import GraphModule, Node

from exirkit.ir import TensorSpec
from exirkit.passes.memory.algorithms import storage_root

from .specs import mutated_placeholders, node_specs


def compute_lifetimes(
    graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None
) -> dict[TensorSpec, tuple[int, int]]:
    """Return first and last step of each spec, both inclusive; a step is the index of a node in the graph.

    A spec is needed at every node that has it or that takes a node which has it: an `alloc`, the operator that fills
    it, its users (delegates among them), and the output. On top of that:

    - inputs are there from step 0, since the caller fills them all before the first;
    - mutated buffers, parameters and inputs are needed to the end;
    - the owner of memory is needed as long as any view of it.

    The graphs of control flow are not entered; each has steps of its own.
    """
    nodes = list(graph_module.graph.nodes)
    mutated = mutated_placeholders(graph_signature)
    spans: dict[TensorSpec, tuple[int, int]] = {}
    for step, node in enumerate(nodes):
        is_input = node.op == "placeholder"
        first = 0 if is_input else step
        last = len(nodes) - 1 if is_input and node.name in mutated else step
        for spec in node_specs(node):
            _extend(spans, spec, first, last)
        for argument in _read_by(node):
            for spec in node_specs(argument):
                _extend(spans, spec, step, step)
    for spec, (first, last) in list(spans.items()):
        _extend(spans, storage_root(spec)[0], first, last)
    return spans


def update_lifetimes(
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature | None = None,
    outer: frozenset[TensorSpec] = frozenset(),
) -> dict[TensorSpec, tuple[int, int]]:
    """Set `lifetime` of every spec of the graph, and return first and last steps in order of appearance.

    Specs of the graphs around a called one keep theirs, which count the steps of these.
    """
    spans = compute_lifetimes(graph_module, graph_signature)
    for spec, (first, last) in spans.items():
        if spec not in outer:
            # A new list: copies of a spec may still hold the old one.
            spec.lifetime = [first, last]
    return spans


def _read_by(node: Node) -> list[Node]:
    """Return the nodes whose values a node needs; taking one result of several reads nothing of the others."""
    return [] if node.target is operator.getitem and node_specs(node) else node.all_input_nodes


def _extend(spans: dict[TensorSpec, tuple[int, int]], spec: TensorSpec, first: int, last: int) -> None:
    known = spans.get(spec)
    spans[spec] = (first, last) if known is None else (min(first, known[0]), max(last, known[1]))

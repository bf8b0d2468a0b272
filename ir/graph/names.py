"""Names of graph nodes: taking and giving them back so that an undone edit leaves no trace in later names.

The namespace of a graph only ever grows in torch: a name once used is never free again, and `Node._rename` to a name
that the node had before gives it a number. The journal needs more; this file is the only one that touches a namespace.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch.fx import Graph, Node
from torch.fx.graph import _illegal_char_regex, _name_regex


@dataclass(frozen=True, slots=True)
class Numbering:
    """How far the numbers of names with one stem had come at some moment; None if the stem was new."""

    stem: str
    reached: int | None


def numbering_of(graph: Graph, candidate: str) -> Numbering:
    """Return the numbering from which the next name like `candidate` is made."""
    match = _name_regex.match(candidate)
    if match is None:
        candidate = _illegal_char_regex.sub("_", candidate) or "_unnamed"
        match = _name_regex.match(f"_{candidate}" if candidate[0].isdigit() else candidate)
    assert match is not None, candidate
    stem = match.group(1)
    return Numbering(stem, graph._graph_namespace._base_count.get(stem))


def register_names(graph: Graph) -> None:
    """Tell the namespace of a graph all names in it; `torch.export` names placeholders behind its back."""
    names = {node: node.name for node in graph.nodes}
    graph._graph_namespace._obj_to_name.update(names)
    graph._graph_namespace._used_names.update(names.values())


def claim_names(graph: Graph) -> None:
    """Make a new graph's namespace that of its nodes alone: numbers go on behind the highest that is in use."""
    register_names(graph)
    counts = graph._graph_namespace._base_count
    for node in graph.nodes:
        match = _name_regex.match(node.name)
        if match is not None and match.group(2) is not None:
            stem = match.group(1)
            counts[stem] = max(counts.get(stem, 0), int(match.group(2)))


def rename(node: Node, candidate: str) -> None:
    """Give a node a name like `candidate`; its old name is free again."""
    old = node.name
    node._rename(candidate)
    node.graph._graph_namespace._used_names.discard(old)


def restore_name(node: Node, name: str, numbering: Numbering) -> None:
    """Undo a `rename`."""
    namespace = node.graph._graph_namespace
    namespace._used_names.discard(node.name)
    namespace._used_names.add(name)
    namespace._obj_to_name[node] = name
    node.name = name
    _restore_numbering(node.graph, numbering)


def forget_name(node: Node, numbering: Numbering) -> None:
    """Undo the naming of a node that is no longer in its graph."""
    node.graph._graph_namespace._used_names.discard(node.name)
    release(node)
    _restore_numbering(node.graph, numbering)


def release(node: Node) -> None:
    """Let go of a node that is gone for good; its name stays taken."""
    node.graph._graph_namespace._obj_to_name.pop(node, None)


def _restore_numbering(graph: Graph, numbering: Numbering) -> None:
    counts = graph._graph_namespace._base_count
    if numbering.reached is None:
        counts.pop(numbering.stem, None)
    else:
        counts[numbering.stem] = numbering.reached

"""Tags for parameters, buffers and constants, so that delegates keep them: for partitioners that have tagged calls."""

from __future__ import annotations

from collections.abc import Iterator

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from .partitioner import TAG

_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def tag_constant_data(edge_program: ExportedProgram) -> None:
    """Tag stored tensors that tagged calls read and that nobody writes to; each of their delegates keeps a copy."""
    written = {*edge_program.graph_signature.buffers_to_mutate.values()}
    for node, target in _stored(edge_program):
        tags = _tags_of_users(node)
        if tags and target not in written:
            node.meta[TAG] = tags[0]


def tag_mutated_buffer(edge_program: ExportedProgram) -> None:
    """Tag buffers that are written to and that tagged calls read.

    The calls that read and write such a buffer have to be those of one partition: otherwise lowering stops with EK493.
    """
    written = {*edge_program.graph_signature.buffers_to_mutate.values()}
    for node, target in _stored(edge_program):
        tags = _tags_of_users(node)
        if tags and target in written:
            node.meta[TAG] = tags[0]


def _stored(program: ExportedProgram) -> Iterator[tuple[Node, str]]:
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.kind in _STORED}
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in targets:
            yield node, str(targets[node.name])


def _tags_of_users(node: Node) -> list[str]:
    return [user.meta[TAG] for user in node.users if user.op == "call_function" and TAG in user.meta]

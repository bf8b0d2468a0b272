"""Tags for parameters, buffers and constants, so that delegates keep them: for partitioners that have tagged calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from .partitioner import TAG, DelegationSpec

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


def tag_kept_state(
    program: ExportedProgram, specs: Mapping[str, DelegationSpec], *, constants: bool, mutable: bool
) -> None:
    """Tag stored tensors that only delegates read, where they can be kept without a second copy in the program.

    Args:
        program: Its calls are tagged.
        specs: Where the partition of each tag goes.
        constants: Whether to tag what nobody writes to and delegates of one backend alone read.
        mutable: Whether to tag buffers that one partition alone reads and writes.
    """
    results = program.graph.output_node().args[0]
    assert isinstance(results, list | tuple), "a program returns a sequence"
    writes = {
        str(spec.target): value
        for value, spec in zip(results, program.graph_signature.output_specs, strict=True)
        if spec.target is not None
    }
    for node, target in _stored(program):
        tags = {user.meta.get(TAG) if user.op == "call_function" else None for user in node.users}
        if not tags or None in tags:
            continue
        if target not in writes:
            keeps = constants and len({specs[tag].backend_id for tag in tags if tag}) == 1
        else:
            value = writes[target]
            is_call = isinstance(value, Node) and value.op == "call_function"
            keeps = mutable and is_call and len(tags) == 1 and value.meta.get(TAG) in tags
        if keeps:
            # The first reader's; whoever else reads it keeps it as well.
            node.meta[TAG] = next(iter(node.users)).meta[TAG]


def _stored(program: ExportedProgram) -> Iterator[tuple[Node, str]]:
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.kind in _STORED}
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in targets:
            yield node, str(targets[node.name])


def _tags_of_users(node: Node) -> list[str]:
    return [user.meta[TAG] for user in node.users if user.op == "call_function" and TAG in user.meta]

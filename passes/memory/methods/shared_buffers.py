"""Buffers that several methods write to and read: one place in all of them, in an arena of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from exirkit.ir import Diagnostic, Location, ModelError, TensorSpec, called_graphs, locate
from exirkit.passes.memory.algorithms import storage_root, write_view
from exirkit.passes.memory.graph.specs import mutated_placeholders, node_specs, spec_roles
from exirkit.passes.memory.graph.xnnpack_padding import padding_of

_STORED = frozenset({InputKind.BUFFER, InputKind.PARAMETER})


@dataclass(slots=True)
class _SharedBuffer:
    """A buffer of one name.

    Attributes:
        specs: Its spec in each method that has it.
        form: What all of them must agree in.
        first: The method and node that has it first.
    """

    specs: list[TensorSpec]
    form: tuple[object, ...]
    first: tuple[str, Node] = field(compare=False)


def refuse_readers(programs: Mapping[str, ExportedProgram]) -> None:
    """Refuse methods that only read what another one writes: what they read may have become a constant in them.

    Args:
        programs: Programs of all methods by name, before they are lowered.

    Raises:
        ModelError: EK488, for every such buffer of every such method.
    """
    writers: dict[str, str] = {}
    for method, program in programs.items():
        for node, target in _stored(program):
            if node.name in mutated_placeholders(program.graph_signature):
                writers.setdefault(target, method)
    findings = [
        Diagnostic(
            code="EK488",
            message=f"the buffer {target!r} is only read here, and {writers[target]} writes to it",
            location=locate(node).model_copy(update={"method": method}),
            expected="a method that writes to every shared buffer that it reads",
            hint=f"write it back in {method} as well (`self.{target}.copy_(self.{target})`), or do not share buffers",
        )
        for method, program in programs.items()
        for node, target in _stored(program)
        if target in writers and node.users and node.name not in mutated_placeholders(program.graph_signature)
    ]
    if findings:
        raise ModelError(findings)


def share_buffers(programs: Mapping[str, ExportedProgram], alignment: int, arena: int) -> None:
    """Give mutable buffers of one name one place in all methods, in an arena that nothing else uses.

    Args:
        programs: Planned programs of all methods by name, whose mutable buffers have no place yet.
        alignment: Every offset in the arena is a multiple of this many bytes.
        arena: Number of the arena.

    Raises:
        ModelError: EK489, buffers of one name have different types or sizes.
    """
    buffers: dict[str, _SharedBuffer] = {}
    findings: list[Diagnostic] = []
    for method, program in programs.items():
        for node, target in _stored(program):
            if node.name in mutated_placeholders(program.graph_signature):
                findings += _note(buffers, method, node, target)
    if findings:
        raise ModelError(findings)
    end = 0
    for number, buffer in enumerate(buffers.values()):
        for spec in buffer.specs:
            spec.mem_id, spec.mem_obj_id, spec.mem_offset, spec.alignment = arena, number, end, alignment
        end += buffer.specs[0].allocated_memory
    for program in programs.values():
        _place_views(program)
        sizes: list[int] = program.graph_module.meta["non_const_buffer_sizes"]
        padding = padding_of(program.graph_module) if end else 0
        sizes = [*sizes, *[0] * (arena + 1 - len(sizes))]
        sizes[arena] = end + padding
        program.graph_module.meta["non_const_buffer_sizes"] = sizes


def _stored(program: ExportedProgram) -> Iterator[tuple[Node, str]]:
    """Yield the placeholders of buffers and parameters with their names in the model."""
    names = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in program.graph_module.graph.find_nodes(op="placeholder"):
        entry = names.get(node.name)
        if entry is not None and entry.kind in _STORED and entry.target is not None:
            yield node, entry.target


def _note(buffers: dict[str, _SharedBuffer], method: str, node: Node, target: str) -> Sequence[Diagnostic]:
    (spec,) = node_specs(node)
    form = (spec.dtype, tuple(spec.shape), tuple(spec.dim_order))
    known = buffers.get(target)
    if known is None:
        buffers[target] = _SharedBuffer([spec], form, (method, node))
    elif known.form == form:
        known.specs.append(spec)
    else:
        return [
            Diagnostic(
                code="EK489",
                message=f"the shared buffer {target!r} is another tensor here than in {known.first[0]}",
                location=Location(method=method, node=f"%{node.name}"),
                notes=(f"here: {spec!r}", f"there: {known.specs[0]!r}"),
                hint="let buffers that are not the same have different names",
            )
        ]
    return []


def _place_views(program: ExportedProgram) -> None:
    roles = spec_roles(program.graph_module.graph, program.graph_signature)
    specs = [
        spec
        for module in called_graphs(program.graph_module)
        for node in module.graph.nodes
        for spec in node_specs(node)
    ]
    for view in (spec for spec in specs if spec.storage_base is not None):
        if storage_root(view)[0] in roles.state:
            write_view(view)

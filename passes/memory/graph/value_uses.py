"""Who makes a value, who reads it, and which results take the place of an argument."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportGraphSignature
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from exirkit.ir import (
    ProgramInterface,
    TensorSpec,
    alloc,
    has_form_of,
    named_arguments,
    out_operator_name,
    overwritable_arguments,
    underlying,
    view,
)
from exirkit.passes.memory.planners import has_integer_sizes, pinned_offset, storage_root

from .specs import SpecRoles, node_specs

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
    interface = ProgramInterface(graph_module.graph, graph_signature)
    inputs = set(interface.user_inputs)
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
        elif node in inputs:
            _move(uses, node_specs(node))
    for result in interface.user_results:
        _move(uses, node_specs(result) if isinstance(result, Node) else [])
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


@dataclass(slots=True)
class Chain:
    """Values that lie in one place one after another.

    Attributes:
        members: Their specs, each overwriting the one before it.
        spec: Stands for all of them in planning: their bytes, arena and common lifetime.
    """

    members: list[TensorSpec]
    spec: TensorSpec

    def finalize(self) -> None:
        """Put the members where the stand-in has been placed."""
        for member in self.members:
            member.mem_id, member.mem_obj_id, member.mem_offset = (
                self.spec.mem_id,
                self.spec.mem_obj_id,
                self.spec.mem_offset,
            )


def find_chains(
    graph_module: GraphModule,
    roles: SpecRoles,
    selected: Sequence[TensorSpec],
    spans: Mapping[TensorSpec, tuple[int, int]],
    *,
    inside: bool,
) -> list[Chain]:
    """Return the chains of a graph, in order of their first overwriting.

    Args:
        graph_module: A graph in the ExecuTorch dialect.
        roles: What its specs are.
        selected: Specs whose memory is planned; no other one is part of a chain, nor one pinned to an offset.
        spans: First and last step of each spec; of an owner, those of its views included.
        inside: Whether this graph is a branch or loop body: its inputs may be needed again, in the next round.
    """
    free = {spec for spec in selected if pinned_offset(spec) is None}
    if inside:
        free = {spec for spec in free if roles.owners[spec].op != "placeholder"}
    chain_of: dict[TensorSpec, list[TensorSpec]] = {}
    for step, node in enumerate(graph_module.graph.nodes):
        for out, roots in possible_places(node):
            if out not in free or out in chain_of:
                continue
            # A buffer that a result is written to has its memory from the beginning on, and a result that lies in the
            # memory of an earlier one has it from there on.
            owner = roles.owners[out]
            if owner.op == "placeholder" or owner not in node.all_input_nodes:
                continue
            for root in roots:
                members = chain_of.get(root, [root])
                if root not in free or spans[root][1] != step or members[-1] is not root:
                    continue
                members.append(out)
                chain_of[root] = chain_of[out] = members
                break
    chains = {id(members): members for members in chain_of.values()}
    return [Chain(members, _stand_in(members, spans)) for members in chains.values()]


def possible_places(node: Node) -> Iterator[tuple[TensorSpec, list[TensorSpec]]]:
    """Yield the results of a node that may lie over an argument, with the owners of the memory of these arguments.

    Whether anything needs the argument after the node is for the caller to know.
    """
    for out, arguments in _overwriting(node):
        roots = []
        for argument in arguments:
            root = storage_root(argument)[0]
            if _lies_alike(argument, root, out) and _alone_reads(node, argument, root):
                roots.append(root)
        yield out, roots


def _overwriting(node: Node) -> Iterator[tuple[TensorSpec, list[TensorSpec]]]:
    """Yield the results of a node that may overwrite arguments, with these arguments."""
    if node.op != "call_function" or not (table := overwritable_arguments(out_operator_name(node.target))):
        return
    schema = underlying(node.target)._schema
    given = named_arguments(node, schema)
    for result, names in table.items():
        outs = _specs_of(given.get(result))
        if len(outs) == 1:
            yield outs[0], [spec for name in names for spec in _specs_of(given.get(name))]


def _specs_of(value: object) -> list[TensorSpec]:
    return node_specs(value) if isinstance(value, Node) else []


def _lies_alike(argument: TensorSpec, root: TensorSpec, out: TensorSpec) -> bool:
    """Return whether an argument has the form of the result and all bytes of its owner, in the arena of the result."""
    whole = storage_root(argument)[1] == 0 and argument.nbytes() == root.nbytes() > 0
    return whole and root.is_static_shape_tensor and has_form_of(argument, out) and root.mem_id == out.mem_id


def _alone_reads(node: Node, argument: TensorSpec, root: TensorSpec) -> bool:
    """Return whether whatever else a node reads of the same memory is read in the same order."""
    allowed = {name for names in overwritable_arguments(out_operator_name(node.target)).values() for name in names}
    for name, value in named_arguments(node, underlying(node.target)._schema).items():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            for spec in _specs_of(one):
                if storage_root(spec)[0] is root and (name not in allowed or not has_form_of(spec, argument)):
                    return False
    return True


def _stand_in(members: Sequence[TensorSpec], spans: Mapping[TensorSpec, tuple[int, int]]) -> TensorSpec:
    spec = TensorSpec(torch.uint8, [members[0].nbytes()])
    spec.mem_id = members[0].mem_id
    spec.lifetime = [min(spans[one][0] for one in members), max(spans[one][1] for one in members)]
    return spec

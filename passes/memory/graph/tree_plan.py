"""The plan of a program with branches and loops without blocks: values of its graphs share gaps with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch.export import ExportGraphSignature
from torch.fx import GraphModule

from exirkit.ir import TensorSpec, called_graphs
from exirkit.passes.memory.algorithms import aligned_nbytes, pinned_offset, storage_root, write_view
from exirkit.passes.memory.packing.packers import groups_sharing_bytes

from .in_place import Chain
from .specs import node_specs, spec_roles
from .tree_conflicts import TreeConflicts
from .tree_packing import pack_tree

# Values beyond which blocks are kept: lists of all that are needed together get too long.
_MOST_VALUES = 2_000


@dataclass(frozen=True, slots=True)
class PlacedGraph:
    """A planned graph of a program.

    Attributes:
        selected: What is placed of it.
        chains: Those of it that lie in one place one after another.
    """

    selected: Sequence[TensorSpec]
    chains: Sequence[Chain]


def smaller_without_blocks(
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature | None,
    graphs: Sequence[PlacedGraph],
    sizes: list[int],
    alignment: int,
    padding: int,
) -> list[int]:
    """Place all values anew if that takes fewer bytes, and return the bytes of each arena.

    Args:
        graph_module: The outermost graph of a planned program.
        graph_signature: That of the program.
        graphs: All graphs of it.
        sizes: Bytes of each arena of the plan.
        alignment: Every offset and size is a multiple of this many bytes.
        padding: Bytes that follow what lies in an arena.
    """
    stands_for = {spec: spec for graph in graphs for spec in graph.selected if spec.nbytes()}
    stands_for.update((one, chain.members[0]) for graph in graphs for chain in graph.chains for one in chain.members)
    if len(stands_for) > _MOST_VALUES or any(pinned_offset(spec) is not None for spec in stands_for):
        return sizes

    nbytes = {spec: aligned_nbytes(spec, alignment) for spec in stands_for.values()}.__getitem__
    kept = _outliving(graph_module, graph_signature)
    tree = TreeConflicts(stands_for, frozenset(kept & stands_for.keys()), nbytes)
    tree.walk(graph_module)
    found: dict[TensorSpec, int] = {}
    heights = [0] * len(sizes)
    for arena in range(1, len(sizes)):
        start = {spec: spec.mem_offset or 0 for spec in tree.conflicts if spec.mem_id == arena}
        offsets, height = pack_tree(start, tree.conflicts, nbytes, tree.peak.get(arena, 0))
        found.update(offsets)
        heights[arena] = height + padding if start else sizes[arena]
    if sum(heights) >= sum(sizes):
        return sizes
    _write(graph_module, stands_for, found)
    return heights


def _outliving(graph_module: GraphModule, graph_signature: ExportGraphSignature | None) -> set[TensorSpec]:
    """Return what a later call or the caller needs: state, and inputs that are written to."""
    roles = spec_roles(graph_module.graph, graph_signature)
    mutated = set() if graph_signature is None else set(graph_signature.user_inputs_to_mutate.values())
    return roles.state | {spec for spec in roles.inputs if roles.owners[spec].name in mutated}


def _write(graph_module: GraphModule, stands_for: dict[TensorSpec, TensorSpec], offsets: dict[TensorSpec, int]) -> None:
    for spec, one in stands_for.items():
        spec.mem_offset = offsets[one]
    by_arena: dict[int, list[TensorSpec]] = {}
    for spec in stands_for:
        by_arena.setdefault(spec.mem_id or 0, []).append(spec)
    for specs in by_arena.values():
        places = [spec.mem_offset or 0 for spec in specs]
        groups = groups_sharing_bytes(places, [spec.nbytes() for spec in specs])
        for spec, group in zip(specs, groups, strict=True):
            spec.mem_obj_id = group
    for module in called_graphs(graph_module):
        for node in module.graph.nodes:
            for spec in node_specs(node):
                if storage_root(spec)[0] in stands_for:
                    write_view(spec)

"""The plan of a program with branches and loops without blocks: values of its graphs share gaps with each other."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.export import ExportGraphSignature
from torch.fx import GraphModule, Node

from exirkit.ir import COND, TensorSpec, alloc, called_graphs, underlying
from exirkit.passes.memory.planners import aligned_nbytes, pinned_offset, storage_root, write_view
from exirkit.passes.memory.problem import groups_sharing_bytes

from .specs import call_kind, graph_calls, node_specs, spec_roles
from .value_uses import Chain


class TreeConflicts:
    """Values that must not share bytes.

    Args:
        planned: Values with a place, each with the one that stands for all in the same bytes: itself, or the first one
            of a chain of results instead of arguments.
        kept: Values that outlive the call.
        nbytes: Bytes of each of the values that stand for others.

    Attributes:
        conflicts: For each value that stands for others, those that are needed together with it.
        peak: The most bytes that are needed together in each arena.
    """

    def __init__(
        self,
        planned: Mapping[TensorSpec, TensorSpec],
        kept: frozenset[TensorSpec],
        nbytes: Callable[[TensorSpec], int],
    ) -> None:
        self._planned = planned
        self._kept = kept
        self._nbytes = nbytes
        self.conflicts: dict[TensorSpec, set[TensorSpec]] = {spec: set() for spec in planned.values()}
        self.peak: dict[int, int] = {}

    def walk(self, graph_module: GraphModule, needed: frozenset[TensorSpec] = frozenset()) -> set[TensorSpec]:
        """Note the conflicts of a graph and of those that it calls, and return what is needed when it begins.

        Args:
            graph_module: The graph.
            needed: What is needed after it has run.
        """
        calls = graph_calls(graph_module)
        live = set(needed)
        self._meet(live, set(self._kept))
        own_inputs: set[TensorSpec] = set()
        for node in reversed(list(graph_module.graph.nodes)):
            if node.op == "output":
                self._meet(live, self._roots(*node.all_input_nodes))
            elif node.op == "placeholder":
                own_inputs |= self._roots(node)
            elif node in calls and call_kind(node) == COND:
                self._branch(node, calls[node], live)
            elif node in calls:
                self._loop(node, calls[node], live)
            elif node.op == "call_function" and not _is_silent(node):
                self._instruction(node, live)
        self._meet(live, own_inputs)
        return live

    def _instruction(self, node: Node, live: set[TensorSpec]) -> None:
        read = self._roots(*_arguments_read(node))
        written = {spec for spec in node_specs(node) if spec in self._planned}
        self._meet(live, read | self._roots(node))
        live -= written - read - self._kept

    def _branch(self, node: Node, branches: Sequence[GraphModule], live: set[TensorSpec]) -> None:
        behind = frozenset(live | self._roots(node))
        self._meet(live, set(behind))
        before: set[TensorSpec] = set()
        for branch in branches:
            self._meet(before, self.walk(branch, behind))
        # The jump reads the predicate.
        self._meet(before, self._roots(*node.all_input_nodes[:1]))
        live.clear()
        live |= before

    def _loop(self, node: Node, bodies: Sequence[GraphModule], live: set[TensorSpec]) -> None:
        through = self._roots(node, *node.all_input_nodes)
        for body in bodies:
            through |= self._roots(*body.graph.find_nodes(op="placeholder"))
        self._meet(live, through)
        for body in bodies:
            # The next round needs what the loop was given.
            self.walk(body, frozenset(live))
        live -= set(node_specs(node)) - self._roots(*node.all_input_nodes) - self._kept

    def _meet(self, live: set[TensorSpec], more: set[TensorSpec]) -> None:
        """Need some values in addition to those that are needed already."""
        for spec in more - live:
            one = self._planned[spec]
            for other in live:
                if self._planned[other] is not one:
                    self.conflicts[one].add(self._planned[other])
                    self.conflicts[self._planned[other]].add(one)
            live.add(spec)
        if more:
            need: dict[int, int] = {}
            for spec in {self._planned[spec] for spec in live}:
                need[spec.mem_id or 0] = need.get(spec.mem_id or 0, 0) + self._nbytes(spec)
            for arena, nbytes in need.items():
                self.peak[arena] = max(self.peak.get(arena, 0), nbytes)

    def _roots(self, *nodes: Node) -> set[TensorSpec]:
        roots = (storage_root(spec)[0] for node in nodes for spec in node_specs(node))
        return {spec for spec in roots if spec in self._planned}


def _is_silent(node: Node) -> bool:
    """Return whether a node is not an instruction: it touches no bytes."""
    return node.target is alloc or (node.target is operator.getitem and bool(node_specs(node)))


def _arguments_read(node: Node) -> Iterator[Node]:
    """Yield the arguments of a call apart from those that it gets to write its results to."""
    schema = getattr(underlying(node.target), "_schema", None)
    outs = [
        node.kwargs.get(argument.name)
        for argument in (schema.arguments if isinstance(schema, torch.FunctionSchema) else ())
        if argument.is_out
    ]
    given = {one for out in outs for one in (out if isinstance(out, (list, tuple)) else [out])}
    yield from (one for one in node.all_input_nodes if one not in given)


# Orders that are tried beside the simple ones; fewer if many values are needed together: some fifth of a second in all.
_TRIALS = 200
_TRIED_PAIRS = 300_000


def pack_tree(
    start: Mapping[TensorSpec, int],
    conflicts: Mapping[TensorSpec, set[TensorSpec]],
    nbytes: Callable[[TensorSpec], int],
    enough: int,
) -> tuple[dict[TensorSpec, int], int]:
    """Return an offset for each value of one arena, and the bytes that the arena needs.

    The values are placed one after another, each at the lowest offset at which nothing lies that is needed together
    with it, in several orders.

    Args:
        start: Offsets of a plan that holds; it gives the first order.
        conflicts: What must not share bytes with each of the values; of other arenas as well.
        nbytes: Bytes of a value, a multiple of the alignment.
        enough: Bytes with which the search may end.
    """
    values = list(start)
    best, height = dict(start), max((start[spec] + nbytes(spec) for spec in values), default=0)
    for order in _orders(values, start, conflicts, nbytes):
        if height <= enough:
            break
        offsets = _placed(order, conflicts, nbytes)
        end = max(offsets[spec] + nbytes(spec) for spec in values)
        if end < height:
            best, height = offsets, end
    return best, height


def _orders(
    values: Sequence[TensorSpec],
    start: Mapping[TensorSpec, int],
    conflicts: Mapping[TensorSpec, set[TensorSpec]],
    nbytes: Callable[[TensorSpec], int],
) -> Iterator[list[TensorSpec]]:
    place = {spec: number for number, spec in enumerate(values)}

    def around(spec: TensorSpec) -> int:
        return sum(nbytes(other) for other in conflicts[spec] if other in place)

    weight = {spec: around(spec) for spec in values}
    yield sorted(values, key=lambda spec: (start[spec], place[spec]))
    yield sorted(values, key=lambda spec: (-nbytes(spec), -weight[spec], place[spec]))
    by_weight = sorted(values, key=lambda spec: (-weight[spec] - nbytes(spec), -nbytes(spec), place[spec]))
    yield by_weight
    draw = random.Random(0)
    pairs = len(values) + sum(len(conflicts[spec]) for spec in values)
    for _ in range(min(_TRIALS, _TRIED_PAIRS // (pairs + 1))):
        order = list(by_weight)
        for _ in range(1 + draw.randrange(3)):
            order.insert(draw.randrange(len(order)), order.pop(draw.randrange(len(order))))
        yield order


def _placed(
    order: Sequence[TensorSpec],
    conflicts: Mapping[TensorSpec, set[TensorSpec]],
    nbytes: Callable[[TensorSpec], int],
) -> dict[TensorSpec, int]:
    offsets: dict[TensorSpec, int] = {}
    for spec in order:
        taken = sorted(
            (offsets[other], offsets[other] + nbytes(other)) for other in conflicts[spec] if other in offsets
        )
        floor = 0
        for begin, end in taken:
            if begin - floor >= nbytes(spec):
                break
            floor = max(floor, end)
        offsets[spec] = floor
    return offsets


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
    """Place all values again if that takes fewer bytes, and return the bytes of each arena.

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

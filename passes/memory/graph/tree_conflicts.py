"""Which values of a program with branches and loops are needed together: a walk backwards over the tree of its graphs.

A branch knows what is needed behind it, and what of its arguments is needed in it: bytes of an argument are free after
its last use in the branch, and those of a result before its first one. What a loop is given, reads and makes is needed
for as long as it runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping

import torch
from torch.fx import GraphModule, Node

from exirkit.ir import TensorSpec, alloc, underlying
from exirkit.passes.memory.algorithms import storage_root

from .control_flow import is_branching, submodule_calls
from .specs import node_specs


class TreeConflicts:
    """Values that must not share bytes.

    Args:
        planned: Values with a place, each with the one that stands for all in the same bytes: itself, or the first one
            of a chain of results in the place of arguments.
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
        calls = {call.node: call.submodules for call in submodule_calls(graph_module)}
        live = set(needed)
        self._meet(live, set(self._kept))
        own_inputs: set[TensorSpec] = set()
        for node in reversed(list(graph_module.graph.nodes)):
            if node.op == "output":
                self._meet(live, self._roots(*node.all_input_nodes))
            elif node.op == "placeholder":
                own_inputs |= self._roots(node)
            elif node in calls and is_branching(node):
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

    def _branch(self, node: Node, branches: tuple[GraphModule, ...], live: set[TensorSpec]) -> None:
        behind = frozenset(live | self._roots(node))
        self._meet(live, set(behind))
        before: set[TensorSpec] = set()
        for branch in branches:
            self._meet(before, self.walk(branch, behind))
        # The jump reads the predicate.
        self._meet(before, self._roots(*node.all_input_nodes[:1]))
        live.clear()
        live |= before

    def _loop(self, node: Node, bodies: tuple[GraphModule, ...], live: set[TensorSpec]) -> None:
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
    """Return whether a node is no instruction: it touches no bytes."""
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

"""Memory planning passes of the official package in our chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from executorch.exir import memory as their_memory
from torch.export import ExportGraphSignature
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from exirkit.ir import ProgramInterface, TensorSpec, alloc
from exirkit.passes import MemoryPlanningPass

from .memory_planning import reject_control_flow
from .operators import official_operator
from .specs import OfficialSpecs


def official_planning_pass(planner: Any) -> MemoryPlanningPass:
    """Return a planning pass of ours that has a planning pass of the official package, or like it, place the values.

    For our `ExecutorchBackendConfig(memory_planning_pass=...)`. What the pass changes in the graph is not taken over.

    Args:
        planner: Has `run(graph_module, graph_signature)`, as the official `MemoryPlanningPass` has; or can be called
            with the graph. Which inputs, outputs and buffers it plans, by how many bytes it aligns and whether the plan
            is not checked is what its attributes with our names say; one without `alignment` may place anywhere.

    Raises (while planning):
        ModelError: EK754, there is control flow.
        ContractError: EK455, it gave a value no place; EK341 to EK349, the plan does not hold.
    """
    options = ("alloc_graph_input", "alloc_graph_output", "alloc_mutable_buffers", "alignment")
    given = {"alignment": 1, **{name: getattr(planner, name) for name in options if hasattr(planner, name)}}
    allows_overlap = getattr(planner, "allow_lifetime_and_storage_overlap", False)
    return _PlanningPass(_Algorithm(planner), allow_lifetime_and_storage_overlap=allows_overlap, **given)


class _PlanningPass(MemoryPlanningPass):
    """A planning pass that keeps the alignments that its algorithm has chosen."""

    def run(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None) -> PassResult:
        """Plan one method.

        Raises:
            ModelError: EK754, there is control flow; or as `MemoryPlanningPass.run`.
        """
        reject_control_flow(graph_module, "plan methods with control flow with a `MemoryPlanningPass` of exirkit")
        result = super().run(graph_module, graph_signature)
        if isinstance(self.memory_planning_algo, _Algorithm):
            for spec, alignment in self.memory_planning_algo.alignments:
                spec.alignment = alignment
        return result


class _Algorithm:
    """An algorithm in our form that runs an official planning pass on a view of the graph.

    Attributes:
        alignments: The specs that were planned last, each with its alignment.
    """

    def __init__(self, planner: Any) -> None:
        self._planner = planner
        self.alignments: list[tuple[TensorSpec, int]] = []
        self.__name__ = type(planner).__name__

    def __call__(
        self,
        alignment: int,
        specs: Sequence[TensorSpec],
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None,
        extra_padding: int,
    ) -> list[int]:
        """Write the places into the specs, and return the bytes of the arenas by number."""
        del alignment, extra_padding
        theirs = OfficialSpecs()
        shown = _official_view(graph_module, ProgramInterface(graph_module.graph, graph_signature), theirs)
        made = self._planner.run(shown, graph_signature) if hasattr(self._planner, "run") else self._planner(shown)
        self.alignments = [(spec, theirs.of(spec).alignment) for spec in specs]
        for spec in specs:
            place = theirs.of(spec)
            spec.mem_id, spec.mem_obj_id, spec.mem_offset = place.mem_id, place.mem_obj_id, place.mem_offset
        return list(made.graph_module.meta["non_const_buffer_sizes"])


def _official_view(graph_module: GraphModule, interface: ProgramInterface, specs: OfficialSpecs) -> GraphModule:
    """Return a copy of a planned graph with official operators and specs, without specs of calls that allocate."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in graph_module.graph.nodes:
        copies[node] = made = graph.node_copy(node, copies.__getitem__)
        if node.op == "call_function":
            made.target = official_operator(node)
        if node.target is alloc:
            # Official passes find them out, and reject those that are there.
            made.meta.pop("spec", None)
        elif (shown := specs.of_node(node, interface)) is not None:
            made.meta["spec"] = shown
        for name, given in node.kwargs.items():
            if isinstance(given, list | tuple):
                _join_allocations(graph, made, name)
    return GraphModule(graph_module, graph)


def _join_allocations(graph: Graph, call: Node, name: str) -> None:
    """Allocate a list of results by one call, as the official package does, where ours has one for each of them."""
    given: Any = call.kwargs[name]
    with graph.inserting_before(call):
        joined = graph.call_function(their_memory.alloc, ([one.args[0] for one in given],))
    call.update_kwarg(name, joined)
    for one in given:
        graph.erase_node(one)

"""Memory planning of ours, with its policies, in the official `ExecutorchBackendConfig`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from executorch.exir import memory as their_memory
from executorch.exir.passes import MemoryPlanningPass as OfficialPlanningPass
from executorch.exir.tensor import TensorSpec as OfficialSpec
from torch import nn
from torch.export import ExportGraphSignature
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from exirkit.ir import Diagnostic, ModelError, TensorSpec, locate, pytree, view
from exirkit.passes import MemoryPlanningPass, finalize_methods

from .operators import MEMORY
from .specs import our_spec


@dataclass(frozen=True)
class _Method:
    """What sharing of buffers asks of a planned program."""

    graph_module: GraphModule
    graph_signature: ExportGraphSignature | None

    @property
    def graph(self) -> Graph:
        """The graph of the module."""
        return self.graph_module.graph


class OfficialMemoryPlanning(OfficialPlanningPass):  # type: ignore[misc]
    """Lets a planning pass of ours plan graphs of the official package.

    For the official `ExecutorchBackendConfig(memory_planning_pass=...)`. The plan is made and checked on a copy of the
    graph, and then written into the official specs.

    Args:
        planner: Plans, by a policy if it has one.
    """

    def __init__(self, planner: MemoryPlanningPass) -> None:
        super().__init__(
            alloc_graph_input=planner.alloc_graph_input,
            alloc_graph_output=planner.alloc_graph_output,
            alloc_mutable_buffers=planner.alloc_mutable_buffers,
            share_mutable_buffers=planner.share_mutable_buffers,
            alignment=planner.alignment,
        )
        self._planner = planner
        self._methods: list[tuple[GraphModule, _Copy, _Method]] = []

    def run(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None) -> PassResult:
        """Plan one method.

        Raises:
            ModelError: EK753, the policy places values on devices; EK754, there is control flow; or as the planner.
        """
        try:
            return self._plan(graph_module, graph_signature)
        except Exception:
            # Nothing of a lowering that ends here is to reach the next one.
            self._methods.clear()
            raise

    def _plan(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None) -> PassResult:
        reject_control_flow(graph_module)
        self._set_alloc_node_spec(graph_module)
        other = _Copy()
        ours = other.module(graph_module)
        self._planner.run(ours, graph_signature)
        if ours.meta.get("non_const_buffer_device"):
            raise ModelError(Diagnostic.of("EK753", "the memory policy has pools on devices"))
        other.write_back(graph_module, ours)
        self._methods.append((graph_module, other, _Method(ours, graph_signature)))
        return PassResult(graph_module, True)

    def run_multimethod(self) -> None:
        """Give buffers of one name one place in all methods, if the planner is to."""
        programs: Any = {str(number): method for number, (*_, method) in enumerate(self._methods)}
        finalize_methods(programs, dict.fromkeys(programs, self._planner))
        for module, other, method in self._methods:
            other.write_back(module, method.graph_module)
        self._methods.clear()


def reject_control_flow(module: GraphModule, hint: str | None = None) -> None:
    """Raise EK754 where a graph calls other graphs."""
    for node in module.graph.find_nodes(op="get_attr"):
        if isinstance(getattr(module, str(node.target)), GraphModule):
            call = next(iter(node.users))
            raise ModelError(
                Diagnostic.of(
                    "EK754",
                    f"%{call.name} is control flow, whose memory the official package plans otherwise",
                    location=locate(call),
                    hint=hint,
                )
            )


class _Copy:
    """A copy of an official graph with specs of ours."""

    def __init__(self) -> None:
        self._specs: dict[int, tuple[OfficialSpec, TensorSpec]] = {}

    def module(self, theirs: GraphModule) -> GraphModule:
        """Return a copy of a graph and of the graphs that it calls; all else is shared."""
        root = nn.Module()
        for name in {str(node.target) for node in theirs.graph.find_nodes(op="get_attr")}:
            found = getattr(theirs, name)
            setattr(root, name, self.module(found) if isinstance(found, GraphModule) else found)
        graph = Graph()
        copies: dict[Node, Node] = {}
        for node in theirs.graph.nodes:
            copies[node] = made = graph.node_copy(node, copies.__getitem__)
            if made.op == "call_function":
                made.target = MEMORY.get(node.target, node.target)
            if "spec" in node.meta:
                made.meta["spec"] = self._of_view(node) if made.target is view else self._all(node.meta["spec"])
        return GraphModule(root, graph)

    def write_back(self, theirs: GraphModule, ours: GraphModule) -> None:
        """Write a plan into the official specs."""
        for official, mine in self._specs.values():
            official.mem_id, official.mem_obj_id, official.mem_offset = mine.mem_id, mine.mem_obj_id, mine.mem_offset
            official.lifetime, official.alignment = list(mine.lifetime), mine.alignment
        # The official chain has copied the module when buffers get their places, but not this list.
        theirs.meta.setdefault("non_const_buffer_sizes", [])[:] = ours.meta["non_const_buffer_sizes"]

    def _all(self, specs: Any) -> Any:
        return pytree.tree_map_only(OfficialSpec, self._one, specs)

    def _one(self, theirs: OfficialSpec) -> TensorSpec:
        if id(theirs) not in self._specs:
            # The official spec is kept as well, or another one might get its identity.
            self._specs[id(theirs)] = theirs, our_spec(theirs)
            if theirs.storage_base is not None:
                made = self._specs[id(theirs)][1]
                made.storage_base = self._one(theirs.storage_base)
                made.storage_offset_bytes = theirs.storage_base_offset
        return self._specs[id(theirs)][1]

    def _of_view(self, node: Node) -> TensorSpec:
        """Return the spec of a view; the official one refers to its base for all but its sizes."""
        source: Any = node.args[0]
        while source.target is their_memory.view:
            source = source.args[0]
        made = our_spec(node.meta["spec"])
        made.storage_base = self._one(source.meta["spec"])
        return made

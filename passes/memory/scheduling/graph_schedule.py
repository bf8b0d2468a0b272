"""Graphs whose instructions are put into an order that needs less memory, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch.export import ExportGraphSignature
from torch.fx import Graph, GraphModule, Node

from exirkit.ir import ModelError, TensorSpec, called_graphs
from exirkit.passes.memory.algorithms import DEFAULT_ARENA, aligned_nbytes
from exirkit.passes.memory.graph.control_flow import needs_inputs_planned, submodule_calls
from exirkit.passes.memory.graph.in_place import find_chains
from exirkit.passes.memory.graph.lifetimes import compute_lifetimes
from exirkit.passes.memory.graph.selection import AllocationPolicy, select_specs
from exirkit.passes.memory.graph.specs import SpecRoles, settle_aliases, spec_roles
from exirkit.passes.memory.packing.demand import Demand, peak_bytes
from exirkit.passes.memory.scheduling import find_schedule

from .units import graph_units


class GraphSchedule:
    """Two orders of the graphs of one program: the given one, and one that needs less where there is one.

    Attributes:
        peak_nbytes_before: The most bytes that are live at once in the outermost graph, in the given order; the sum
            over its arenas.
        is_changed: Whether any graph has another order now.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None,
        policy: AllocationPolicy,
        alignment: int,
        *,
        in_place: bool = False,
    ) -> None:
        self._alignment = alignment
        self._in_place = in_place
        self._orders: list[tuple[GraphModule, list[Node], list[Node]]] = []
        self.is_changed = False
        self.peak_nbytes_before = self._improve(graph_module, graph_signature, policy, inside=False)
        policies = _policies_of_bodies(graph_module)
        for body in called_graphs(graph_module):
            if body in policies:
                self._improve(body, None, policies[body], inside=True)

    def undo(self) -> None:
        """Put all graphs into the given order."""
        for graph_module, given, _ in self._orders:
            _put(graph_module, given)
        self.is_changed = False

    def redo(self) -> None:
        """Put all graphs into the better order again."""
        for graph_module, _, better in self._orders:
            _put(graph_module, better)
        self.is_changed = bool(self._orders)

    def _improve(
        self,
        graph_module: GraphModule,
        signature: ExportGraphSignature | None,
        policy: AllocationPolicy,
        *,
        inside: bool,
    ) -> int:
        """Reorder one graph if that helps, and return what it needed before."""
        graph = graph_module.graph
        settle_aliases(graph)
        roles = spec_roles(graph, signature)
        planned = select_specs(roles, policy)
        units = graph_units(graph, planned, self._alignment, state=roles.state, in_place=self._in_place)
        before = self._peaks(graph_module, signature, roles, planned, inside=inside)
        schedule = find_schedule(units.problem)
        if schedule.order == list(range(len(schedule.order))):
            return sum(before.values())
        given = _inner_nodes(graph)
        better = [node for unit in schedule.order for node in units.nodes[unit]]
        _put(graph_module, better)
        after = self._peaks(graph_module, signature, roles, planned, inside=inside)
        if sum(after.values()) < sum(before.values()) and all(after[arena] <= before[arena] for arena in after):
            self._orders.append((graph_module, given, better))
            self.is_changed = True
        else:
            _put(graph_module, given)
        return sum(before.values())

    def _peaks(
        self,
        graph_module: GraphModule,
        signature: ExportGraphSignature | None,
        roles: SpecRoles,
        planned: Sequence[TensorSpec],
        *,
        inside: bool,
    ) -> dict[int, int]:
        """Return the most bytes that are live at once in each arena, in the order that the graph has now."""
        spans = compute_lifetimes(graph_module, signature)
        chains = find_chains(graph_module, roles, planned, spans, inside=inside) if self._in_place else []
        bound = {member for chain in chains for member in chain.members}
        lives = [(spec, spans[spec]) for spec in planned if spec not in bound]
        for chain in chains:
            own = [spans[member] for member in chain.members]
            lives.append((chain.spec, (min(first for first, _ in own), max(last for _, last in own))))
        demands: dict[int, Demand] = {}
        for spec, (first, last) in lives:
            demand = demands.setdefault(spec.mem_id or DEFAULT_ARENA, Demand([], [], []))
            demand.first.append(first)
            demand.last.append(last)
            demand.size.append(aligned_nbytes(spec, self._alignment))
        return {arena: peak_bytes(demand) for arena, demand in demands.items()}


def plan_scheduled(schedule: GraphSchedule, plan: Callable[[], int]) -> None:
    """Plan a program in the better of two orders.

    A plan in the new order is smaller if it reaches what the given one needs at least; only where it does not, both are
    planned.

    Args:
        schedule: The program, in the new order if there is one.
        plan: Plans the program in the order that it has, and returns the bytes of all its arenas.

    Raises:
        ModelError: What the plan in the given order raises; that in the new one may do as it likes.
    """
    if not schedule.is_changed:
        plan()
        return
    try:
        nbytes = plan()
        if nbytes <= schedule.peak_nbytes_before:
            return
    except ModelError:
        schedule.undo()
        plan()
        return
    schedule.undo()
    if plan() > nbytes:
        schedule.redo()
        plan()


def _policies_of_bodies(graph_module: GraphModule) -> Mapping[GraphModule, AllocationPolicy]:
    """Return what is planned of each graph that control flow calls, at any depth."""
    found: dict[GraphModule, AllocationPolicy] = {}
    waiting = [graph_module]
    while waiting:
        for call in submodule_calls(waiting.pop()):
            for body in call.submodules:
                if body not in found:
                    found[body] = AllocationPolicy(graph_input=needs_inputs_planned(call.node))
                    waiting.append(body)
    return found


def _inner_nodes(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op not in ("placeholder", "output")]


def _put(graph_module: GraphModule, order: Sequence[Node]) -> None:
    """Put the nodes between placeholders and output into an order."""
    output = graph_module.graph.output_node()
    for node in order:
        output.prepend(node)
    graph_module.recompile()

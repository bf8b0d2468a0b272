"""Graphs whose instructions are put into an order that needs less memory, and back."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.export import ExportGraphSignature
from torch.fx import Graph, GraphModule, Node

from exirkit.ir import (
    HigherOrderOperator,
    ModelError,
    OpOverload,
    TensorSpec,
    alloc,
    called_graphs,
    is_pure,
    named_arguments,
    underlying,
    view,
)
from exirkit.passes.memory.graph.specs import (
    AllocationPolicy,
    SpecRoles,
    compute_lifetimes,
    finalize_aliases,
    graph_calls,
    needs_inputs_planned,
    node_specs,
    select_specs,
    spec_roles,
)
from exirkit.passes.memory.graph.value_uses import find_chains, possible_places
from exirkit.passes.memory.planners import DEFAULT_ARENA, aligned_nbytes, storage_root
from exirkit.passes.memory.problem import Demand, peak_bytes

from .orders import OrderProblem, find_schedule


@dataclass
class GraphUnits:
    """The nodes of a graph between its placeholders and its output.

    Attributes:
        nodes: The nodes of each unit, in their order: memory for results, an operator, and its results by number.
        problem: The same as numbers.
    """

    nodes: list[list[Node]]
    problem: OrderProblem


def graph_units(
    graph: Graph, planned: Sequence[TensorSpec], alignment: int, *, state: Collection[TensorSpec], in_place: bool
) -> GraphUnits:
    """Return the units of a graph of the ExecuTorch dialect whose specs share storage as they will.

    An instruction stays behind those that compute its arguments, that write to memory it uses, and that use memory it
    writes to. Calls of graphs, of delegates, and of what is not known stay where they are, and everything stays on its
    side of them. What has other effects, such as a random draw, stays in its order.

    Args:
        graph: The graph.
        planned: Specs that own planned memory.
        alignment: What sizes are rounded up to, in bytes.
        state: Those of `planned` that are there all the time; they make no difference.
        in_place: Whether results may lie over arguments.
    """
    units = _gathered(graph)
    values = {spec: index for index, spec in enumerate(spec for spec in planned if spec not in state)}
    effects = _Effects()
    needs = [effects.needs(index, nodes) for index, nodes in enumerate(units)]
    touches = [[values[root] for root in _roots(nodes) if root in values] for nodes in units]
    inputs = [root for node in graph.find_nodes(op="placeholder") for root in _roots([node])]
    touched = {value for unit in touches for value in unit}
    first = {values[root] for root in inputs if root in values} & touched
    last = {values[root] for root in _roots([graph.output_node()]) if root in values} & touched
    over = [_over(nodes, values) if in_place else [] for nodes in units]
    sizes = [aligned_nbytes(spec, alignment) for spec in values]
    return GraphUnits(units, OrderProblem(sizes, touches, needs, frozenset(first), frozenset(last), over))


def _gathered(graph: Graph) -> list[list[Node]]:
    """Return calls with the memory that is made for them, and with the nodes that take their results apart."""
    units: list[list[Node]] = []
    unit_of: dict[Node, list[Node]] = {}
    memory: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        user = next(iter(node.users), None)
        if node.target is alloc and user is not None and len(node.users) == 1 and user.op == "call_function":
            memory.setdefault(user, []).append(node)
            continue
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, Node) and source in unit_of:
            unit_of[node] = unit_of[source]
            unit_of[source].append(node)
            continue
        unit = unit_of[node] = [*memory.pop(node, ()), node]
        units.append(unit)
    return units


@dataclass
class _Effects:
    """Which units an instruction has to stay behind, going through them in order."""

    _unit_of: dict[Node, int] = field(default_factory=dict)
    _writer: dict[TensorSpec, int] = field(default_factory=dict)
    _readers: dict[TensorSpec, list[int]] = field(default_factory=dict)
    _fence: int | None = None
    _behind_fence: list[int] = field(default_factory=list)
    _last_effect: int | None = None

    def needs(self, index: int, nodes: Sequence[Node]) -> list[int]:
        """Return the units that unit `index` has to stay behind, and take note of it."""
        found = {self._unit_of[one] for node in nodes for one in node.all_input_nodes if one in self._unit_of}
        if self._fence is not None:
            found.add(self._fence)
        if any(_is_fence(node) for node in nodes):
            found.update(self._behind_fence)
            self._fence, self._behind_fence = index, []
        elif any(_has_other_effect(node) for node in nodes):
            if self._last_effect is not None:
                found.add(self._last_effect)
            self._last_effect = index
        self._behind_fence.append(index)
        written = {storage_root(spec)[0] for node in nodes for spec in _written(node)}
        for root in _roots(nodes):
            found.update(self._memory_needs(root, index, is_written=root in written))
        self._unit_of.update((node, index) for node in nodes)
        return sorted(found - {index})

    def _memory_needs(self, root: TensorSpec, index: int, *, is_written: bool) -> list[int]:
        found = [self._writer[root]] if root in self._writer else []
        if is_written:
            found += self._readers.pop(root, [])
            self._writer[root] = index
        else:
            self._readers.setdefault(root, []).append(index)
        return found


def _roots(nodes: Sequence[Node]) -> list[TensorSpec]:
    """Return the owners of the memory that nodes have or take, in order of appearance."""
    found: dict[TensorSpec, None] = {}
    for node in nodes:
        is_getitem = node.target is operator.getitem and node_specs(node)
        for one in (node, *(() if is_getitem else node.all_input_nodes)):
            found.update((storage_root(spec)[0], None) for spec in node_specs(one))
    return list(found)


def _written(node: Node) -> Iterator[TensorSpec]:
    """Yield the specs of the arguments that a call writes to."""
    schema = getattr(underlying(node.target), "_schema", None) if node.op == "call_function" else None
    if not isinstance(schema, torch.FunctionSchema):
        return
    given = named_arguments(node, schema)
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = given.get(argument.name)
            for one in value if isinstance(value, list | tuple) else (value,):
                if isinstance(one, Node):
                    yield from node_specs(one)


def _is_fence(node: Node) -> bool:
    """Return whether nothing may pass a node: it runs other graphs, or its effects are unknown."""
    if node.op != "call_function" or node.target in (alloc, view, operator.getitem):
        return node.op not in ("get_attr", "call_function")
    target = underlying(node.target)
    return isinstance(target, HigherOrderOperator) or (not isinstance(target, OpOverload) and not is_pure(node))


def _has_other_effect(node: Node) -> bool:
    """Return whether a call does more than to write to its arguments: it draws, checks, or returns nothing."""
    target = underlying(node.target) if node.op == "call_function" else None
    if not isinstance(target, OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or not target._schema.returns:
        return True
    return not target._schema.is_mutable and not is_pure(node)


def _over(nodes: Sequence[Node], values: Mapping[TensorSpec, int]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the results of a unit that may lie over arguments, with these."""
    found = []
    for node in nodes:
        for out, roots in possible_places(node):
            places = tuple(values[root] for root in roots if root in values)
            if out in values and places:
                found.append((values[out], places))
    return found


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
        finalize_aliases(graph)
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
        for call, bodies in graph_calls(waiting.pop()).items():
            for body in bodies:
                if body not in found:
                    found[body] = AllocationPolicy(graph_input=needs_inputs_planned(call))
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

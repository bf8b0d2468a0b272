"""Which bytes of arenas are live, step by step: a graph is executed on paper, with all that clashes on the way."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch.fx import GraphModule, Node

from exirkit.ir import (
    TensorSpec,
    alloc,
    graphs_of_call,
    has_form_of,
    out_operator_name,
    overwritable_arguments,
    underlying,
    view,
)

# Operators whose graphs are given rows, copied out of larger tensors.
_COPYING_LOOPS = ("map_impl", "scan")


@dataclass(frozen=True, slots=True)
class LiveRange:
    """Bytes of one arena that must not be written by others.

    Attributes:
        arena: Number of the arena.
        start: First byte.
        end: Byte after the last one.
        last_step: Last step that needs them.
        holder: The node whose value it is, or the call whose graphs use it.
        spec: The value's spec; None for the memory of called graphs.
    """

    arena: int
    start: int
    end: int
    last_step: int
    holder: Node
    spec: TensorSpec | None


@dataclass(slots=True)
class Overlap:
    """Two ranges that are live at one step and have a byte in common; `new` comes to life at that step."""

    step: int
    new: LiveRange
    old: LiveRange


class Ownership:
    """Whose memory each spec of a graph uses."""

    def __init__(self, graph_module: GraphModule) -> None:
        self.first_node: dict[TensorSpec, Node] = {}
        self._base: dict[TensorSpec, TensorSpec] = {}
        for node in graph_module.graph.nodes:
            if node.op == "output":
                continue
            for spec in specs_of(node):
                known = self.first_node.get(spec)
                # The operator that fills an alloc tells more about a value than the alloc does.
                if known is None or known.target is alloc:
                    self.first_node[spec] = node
                self._note_bases(spec)
            if node.target is view and isinstance(node.args[0], Node):
                self._join_view(specs_of(node), specs_of(node.args[0]))

    def owner(self, spec: TensorSpec) -> TensorSpec:
        """Return the spec whose memory this one uses, itself if it is not a view; a cycle is entered once."""
        seen = {spec}
        while spec in self._base and self._base[spec] not in seen:
            spec = self._base[spec]
            seen.add(spec)
        return spec

    def is_circular(self, spec: TensorSpec) -> bool:
        """Return whether the bases of a spec never end."""
        return self.owner(spec) in self._base

    def _note_bases(self, spec: TensorSpec) -> None:
        while spec.storage_base is not None and spec not in self._base:
            self._base[spec] = spec.storage_base
            spec = spec.storage_base

    def _join_view(self, specs: Sequence[TensorSpec], bases: Sequence[TensorSpec]) -> None:
        for spec, base in zip(specs, bases, strict=False):
            if spec is not base:
                self._base.setdefault(spec, base)


@dataclass(slots=True)
class _Schedule:
    births: list[list[TensorSpec]]
    deaths: dict[TensorSpec, int]


@dataclass(slots=True)
class Walk:
    """What executing a graph on paper shows.

    Attributes:
        overlaps: Every clash of live memory.
        around: For each call that takes one of several branches, what is live through it and after it.
    """

    overlaps: list[Overlap]
    around: dict[Node, list[LiveRange]]


def find_overlaps(
    graph_module: GraphModule,
    ownership: Ownership,
    immortal: set[TensorSpec],
    arenas: int,
    may_overwrite: Callable[[LiveRange, LiveRange], bool] | None = None,
    around: Sequence[LiveRange] = (),
) -> Walk:
    """Execute a graph on paper and return every clash of live memory.

    What a call of branches is given and nothing needs after it lives as long as the branch says that is taken, and a
    result lives from where the branch makes it; so branches are examined by themselves, with what is live around them.

    Args:
        graph_module: A graph with placed specs; graphs called by a loop count as one user of all their memory.
        ownership: That of this graph.
        immortal: Owners that are needed to the end: whatever the program mutates for later calls.
        arenas: Number of arenas; places in others are not examined.
        may_overwrite: Whether the first range may take the place of the second, all of it, which is gone then.
        around: What is live all the time, if this graph is a branch.
    """
    nodes = list(graph_module.graph.nodes)
    schedule = _schedule(nodes, ownership, immortal)
    memory = [_LiveBytes() for _ in range(arenas)]
    dying: list[list[LiveRange]] = [[] for _ in nodes]
    walk = Walk([], {})
    for one in around:
        memory[one.arena].add(replace(one, last_step=len(nodes)))
    lasting = {one.spec for one in around}
    for step, node in enumerate(nodes):
        if is_branching(node):
            _let_go(memory, dying[step])
            dying[step] = []
            walk.around[node] = [one for part in memory for one in part.ranges]
        for new in _new_ranges(step, node, schedule, ownership):
            if not 0 < new.arena < arenas or (new.spec is not None and new.spec in lasting):
                continue
            clashes = memory[new.arena].clashes(new)
            if len(clashes) == 1 and may_overwrite is not None and may_overwrite(new, clashes[0]):
                gone = clashes.pop()
                memory[gone.arena].remove(gone)
                dying[gone.last_step].remove(gone)
            walk.overlaps.extend(Overlap(step, new, old) for old in clashes)
            if not clashes:
                memory[new.arena].add(new)
                dying[new.last_step].append(new)
        _let_go(memory, dying[step])
    return walk


def is_branching(node: Node) -> bool:
    """Return whether a node takes one of several branches."""
    return node.op == "call_function" and getattr(node.target, "_name", "") == "cond"


def copies_results(node: Node) -> bool:
    """Return whether a node of control flow hands its graphs copies of rows, which need memory in each graph."""
    return getattr(node.target, "_name", "") in _COPYING_LOOPS


def specs_of(node: Node) -> list[TensorSpec]:
    """Return the specs of a node."""
    spec = node.meta.get("spec")
    return [spec] if type(spec) is TensorSpec else list(_leaves(spec))


def _schedule(nodes: Sequence[Node], ownership: Ownership, immortal: set[TensorSpec]) -> _Schedule:
    schedule = _Schedule([[] for _ in nodes], {})
    for step in range(len(nodes) - 1, -1, -1):
        node = nodes[step]
        _let_die(schedule, step, node, ownership)
    for spec in schedule.deaths:
        if spec in immortal:
            schedule.deaths[spec] = len(nodes) - 1
    born: set[TensorSpec] = set()
    for is_input in (True, False):
        for step, node in enumerate(nodes):
            touched = [node] if is_input else [node, *_arguments(node)]
            if is_input and node.op != "placeholder":
                continue
            for spec in (ownership.owner(spec) for one in touched for spec in specs_of(one)):
                if spec not in born:
                    born.add(spec)
                    schedule.births[0 if is_input else step].append(spec)
    return schedule


def _let_die(schedule: _Schedule, step: int, node: Node, ownership: Ownership) -> None:
    for one in (node, *_arguments(node)):
        for spec in specs_of(one):
            schedule.deaths.setdefault(ownership.owner(spec), step)


def _arguments(node: Node) -> list[Node]:
    # `getitem` is not an instruction: it names one tensor of several and touches none.
    return [] if node.target is operator.getitem and specs_of(node) else node.all_input_nodes


def _new_ranges(step: int, node: Node, schedule: _Schedule, ownership: Ownership) -> Iterator[LiveRange]:
    for spec in schedule.births[step]:
        if spec.mem_id is not None and spec.mem_offset is not None and spec.nbytes():
            end = spec.mem_offset + spec.nbytes()
            holder = ownership.first_node.get(spec, node)
            yield LiveRange(spec.mem_id, spec.mem_offset, end, schedule.deaths[spec], holder, spec)
    submodules = graphs_of_call(node)
    if submodules and not is_branching(node):
        for arena, start, end in _footprint(submodules, ownership):
            yield LiveRange(arena, start, end, step, node, None)


def _footprint(submodules: Sequence[GraphModule], ownership: Ownership) -> list[tuple[int, int, int]]:
    """Return the memory that graphs and the graphs they call use, as disjoint (arena, start, end).

    What they share with the graph that calls them is live there by itself.
    """
    used: set[tuple[int, int, int]] = set()
    for submodule in submodules:
        for module in submodule.modules():
            if isinstance(module, GraphModule):
                used.update(_used_by(module, ownership))
    merged: list[tuple[int, int, int]] = []
    for arena, start, end in sorted(used):
        if merged and merged[-1][0] == arena and start <= merged[-1][2]:
            merged[-1] = (arena, merged[-1][1], max(end, merged[-1][2]))
        else:
            merged.append((arena, start, end))
    return merged


def _used_by(graph_module: GraphModule, outer: Ownership) -> Iterator[tuple[int, int, int]]:
    inner = Ownership(graph_module)
    for spec in inner.first_node:
        if inner.owner(spec) in outer.first_node:
            continue
        if spec.mem_id is not None and spec.mem_offset is not None and spec.nbytes():
            yield spec.mem_id, spec.mem_offset, spec.mem_offset + spec.nbytes()


def _leaves(value: object) -> Iterator[TensorSpec]:
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)


def _let_go(memory: Sequence[_LiveBytes], dead: Sequence[LiveRange]) -> None:
    for one in dead:
        memory[one.arena].remove(one)


class _LiveBytes:
    """The live ranges of one arena. They are disjoint, so only the neighbours of a new one can clash with it."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self.ranges: list[LiveRange] = []

    def clashes(self, new: LiveRange) -> list[LiveRange]:
        place = bisect_left(self._starts, new.start)
        found = []
        if place and self.ranges[place - 1].end > new.start:
            found.append(self.ranges[place - 1])
        while place < len(self.ranges) and self._starts[place] < new.end:
            found.append(self.ranges[place])
            place += 1
        return found

    def add(self, new: LiveRange) -> None:
        place = bisect_left(self._starts, new.start)
        self._starts.insert(place, new.start)
        self.ranges.insert(place, new)

    def remove(self, dead: LiveRange) -> None:
        place = bisect_left(self._starts, dead.start)
        del self._starts[place], self.ranges[place]


class Overwriting:
    """Answers for one graph which range may take the place of which."""

    def __init__(self, graph_module: GraphModule, ownership: Ownership, *, is_body: bool) -> None:
        self._nodes = list(graph_module.graph.nodes)
        self._ownership = ownership
        self._is_body = is_body

    def allows(self, new: LiveRange, old: LiveRange) -> bool:
        """Return whether the node that uses the old value for the last time may write the new one over all of it.

        That node must be the one that computes the new value, and its operator must allow to overwrite each argument
        that lies there.
        """
        if new.spec is None or old.spec is None:
            return False
        # A body runs again, and its inputs may not be filled again.
        if self._is_body and old.holder.op == "placeholder":
            return False
        if (new.start, new.end) != (old.start, old.end):
            return False
        node = self._nodes[old.last_step]
        if node is not new.holder:
            return False
        table = overwritable_arguments(out_operator_name(node.target))
        results = [name for name in table if self._named(node, name) == [new.spec]]
        if len(results) != 1:
            return False
        return self._overwrites_only(node, table[results[0]], new.spec, old.spec)

    def _overwrites_only(self, node: Node, overwritable: tuple[str, ...], new: TensorSpec, old: TensorSpec) -> bool:
        """Return whether all that a node reads of the old memory is such an argument, laid out like the result."""
        readers = {
            argument.name: specs
            for argument in underlying(node.target)._schema.arguments
            if (specs := [spec for spec in self._named(node, argument.name) if self._ownership.owner(spec) is old])
        }
        alike = all(
            has_form_of(spec, new) and (spec.mem_id, spec.mem_offset) == (new.mem_id, new.mem_offset)
            for specs in readers.values()
            for spec in specs
        )
        return bool(readers) and alike and old.nbytes() == new.nbytes() and readers.keys() <= set(overwritable)

    def _named(self, node: Node, name: str) -> list[TensorSpec]:
        """Return the specs that a node passes for the argument of a name."""
        value = node.kwargs.get(name)
        if value is None:
            names = [argument.name for argument in underlying(node.target)._schema.arguments]
            place = names.index(name) if name in names else len(names)
            value = node.args[place] if place < len(node.args) else None
        values = value if isinstance(value, (list, tuple)) else (value,)
        return [spec for one in values if isinstance(one, Node) for spec in specs_of(one)]

"""The memory plan of a program holds: values that are still needed keep their memory, step by step.

Nothing here shares code with the planner.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.fx import GraphModule, Node

from exirkit.ir import (
    ALIGNMENT,
    Diagnostic,
    Location,
    ProgramInterface,
    TensorSpec,
    alloc,
    called_graphs,
    graphs_of_call,
    has_form_of,
    locate,
    out_operator_name,
    overwritable_arguments,
    results_of_graph,
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


def check_memory_plan(
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature | None = None,
    *,
    buffer_sizes: Sequence[int] | None = None,
    alignment: int | Mapping[int, int] = ALIGNMENT,
    alloc_graph_input: bool | Collection[str] = True,
    alloc_graph_output: bool | Collection[int] = True,
    alloc_mutable_buffers: bool = True,
    in_place: bool = False,
) -> list[Diagnostic]:
    """Check the plan of a graph and of the graphs it calls, without the help of the planner.

    The cost is about that of sorting the tensors. Nothing is written.

    Args:
        graph_module: A planned graph of the ExecuTorch dialect.
        graph_signature: Says which placeholders are constants and buffers, and what is mutated.
        buffer_sizes: Bytes of each arena by number; by default those in the graph's `meta`.
        alignment: Every offset must be a multiple of this many bytes; or those in each arena, by number.
        alloc_graph_input: Inputs must have a place; otherwise they must have none. Or the names of those that must.
        alloc_graph_output: Outputs must have a place; otherwise they must have none. Or the numbers, from 0, of those
            that must.
        alloc_mutable_buffers: Buffers that are mutated must have a place; otherwise they must have none.
        in_place: A result may overwrite an argument that nothing needs after it, where its operator allows that.

    Returns:
        Findings EK341 to EK349, in order of the graph; empty if the plan holds.
    """
    sizes: Any = graph_module.meta.get("non_const_buffer_sizes") if buffer_sizes is None else buffer_sizes
    malformed = _check_sizes(sizes, graph_module.meta.get("non_const_buffer_sizes"))
    if malformed is not None:
        return [malformed]
    rules = _Rules(list(sizes), alignment, alloc_graph_input, alloc_graph_output, alloc_mutable_buffers, in_place)
    return list(_check_graph(graph_module, graph_signature, rules, set()))


@dataclass(frozen=True, slots=True)
class _Rules:
    sizes: list[int]
    alignment: int | Mapping[int, int]
    graph_input: bool | Collection[str]
    graph_output: bool | Collection[int]
    mutable_buffers: bool
    in_place: bool
    is_body: bool = False
    outer: frozenset[TensorSpec] = frozenset()

    def alignment_of(self, arena: int) -> int:
        return self.alignment if isinstance(self.alignment, int) else self.alignment.get(arena, 1)

    def plans_input(self, names: Collection[str]) -> bool:
        if isinstance(self.graph_input, bool):
            return self.graph_input
        return all(name in self.graph_input for name in names)

    def plans_output(self, places: Collection[int]) -> bool:
        if isinstance(self.graph_output, bool):
            return self.graph_output
        return all(place in self.graph_output for place in places)


def _check_sizes(sizes: Any, recorded: Any) -> Diagnostic | None:
    expected = "a list of at least two integers that are not negative, the first of them 0"
    if not isinstance(sizes, (list, tuple)) or len(sizes) < 2:
        return Diagnostic.of("EK347", f"arena sizes are {sizes!r}", expected=expected)
    if sizes[0] != 0 or any(type(size) is not int or size < 0 for size in sizes):
        return Diagnostic.of("EK347", f"arena sizes are {list(sizes)!r}", expected=expected)
    if recorded is not None and list(recorded) != list(sizes):
        return Diagnostic.of(
            "EK347",
            f"arena sizes are {list(sizes)}, but the graph records {list(recorded)}",
            expected='the same sizes in `meta["non_const_buffer_sizes"]`',
        )
    return None


def _check_graph(
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature | None,
    rules: _Rules,
    seen: set[GraphModule],
    around: Sequence[LiveRange] = (),
) -> Iterator[Diagnostic]:
    seen.add(graph_module)
    ownership = Ownership(graph_module)
    yield from _check_out_arguments(graph_module)
    yield from _check_results_of_branches(graph_module)
    places = _PlaceChecker(graph_module, graph_signature, ownership, rules)
    yield from places.check()
    allows = Overwriting(graph_module, ownership, is_body=rules.is_body).allows if rules.in_place else None
    walk = find_overlaps(graph_module, ownership, places.immortal, len(rules.sizes), allows, around)
    for overlap in walk.overlaps:
        yield _overlap(overlap)
    for node in graph_module.graph.nodes:
        for submodule in graphs_of_call(node):
            if submodule not in seen:
                inner = replace(
                    rules,
                    graph_input=copies_results(node),
                    graph_output=True,
                    mutable_buffers=True,
                    is_body=True,
                    outer=rules.outer.union(ownership.first_node),
                )
                yield from _check_graph(submodule, None, inner, seen, walk.around.get(node, ()))


class _PlaceChecker:
    """Checks the place of each spec by itself, against what the spec is to the program."""

    def __init__(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None,
        ownership: Ownership,
        rules: _Rules,
    ) -> None:
        self._ownership = ownership
        self._rules = rules
        self._constants: set[TensorSpec] = {spec for spec in ownership.first_node if spec.const}
        self._state: set[TensorSpec] = set()
        self._inputs: dict[TensorSpec, list[str]] = {}
        self.immortal: set[TensorSpec] = set()
        interface = ProgramInterface(graph_module.graph, graph_signature)
        self._sort_inputs(graph_module, interface)
        self._outputs: dict[TensorSpec, list[int]] = {}
        for place, value in enumerate(interface.user_results):
            for spec in specs_of(value) if isinstance(value, Node) else ():
                self._outputs.setdefault(ownership.owner(spec), []).append(place)

    def check(self) -> Iterator[Diagnostic]:
        for spec, node in self._ownership.first_node.items():
            if self._ownership.is_circular(spec):
                yield self._finding("EK346", "the bases of a view form a cycle", spec, node)
            elif (owner := self._ownership.owner(spec)) is not spec:
                yield from self._check_view(spec, owner, node)
            elif spec in self._rules.outer:
                # The graph that calls this one places it.
                continue
            elif spec in self._constants:
                if spec.mem_offset is not None:
                    yield self._finding("EK345", "a constant has a place in an arena", spec, node)
            elif not self._is_planned(spec):
                if spec.mem_offset is not None:
                    yield self._finding("EK348", "memory is planned that the caller provides", spec, node)
            else:
                yield from self._check_planned(spec, node)

    def _check_planned(self, spec: TensorSpec, node: Node) -> Iterator[Diagnostic]:
        if spec.is_dynamic_unbound_tensor:
            if spec.mem_offset is not None:
                yield self._finding("EK348", "memory is planned that the runtime finds", spec, node)
        elif spec.mem_offset is None or spec.mem_id is None:
            yield self._finding("EK344", "a tensor has no place in an arena", spec, node)
        else:
            yield from self._check_place(spec, spec.mem_id, spec.mem_offset, node)

    def _sort_inputs(self, graph_module: GraphModule, interface: ProgramInterface) -> None:
        for node in graph_module.graph.nodes:
            specs = [self._ownership.owner(spec) for spec in specs_of(node)]
            if node.op == "get_attr":
                self._constants.update(specs)
            elif node.op == "placeholder":
                self._sort_input(node, specs, interface)

    def _sort_input(self, node: Node, specs: Sequence[TensorSpec], interface: ProgramInterface) -> None:
        if interface.is_written(node):
            self.immortal.update(specs)
        if not interface.is_stored(node):
            for spec in specs:
                self._inputs.setdefault(spec, []).append(node.name)
        else:
            (self._state if interface.is_written(node) else self._constants).update(specs)

    def _is_planned(self, spec: TensorSpec) -> bool:
        if spec in self._state:
            return self._rules.mutable_buffers
        as_input = spec not in self._inputs or self._rules.plans_input(self._inputs[spec])
        return as_input and (spec not in self._outputs or self._rules.plans_output(self._outputs[spec]))

    def _check_place(self, spec: TensorSpec, mem_id: int, offset: int, node: Node) -> Iterator[Diagnostic]:
        sizes = self._rules.sizes
        if not 0 < mem_id < len(sizes):
            yield self._finding(
                "EK343", f"there is no arena {mem_id}", spec, node, f"an arena from 1 to {len(sizes) - 1}"
            )
            return
        end = offset + spec.nbytes()
        if offset < 0 or end > sizes[mem_id]:
            expected = f"bytes within 0..{sizes[mem_id]} of arena {mem_id}"
            yield self._finding("EK343", "a tensor lies outside of its arena", spec, node, expected)
        alignment = self._rules.alignment_of(mem_id)
        if offset % alignment:
            expected = f"a multiple of {alignment}"
            yield self._finding("EK342", f"offset {offset} is not aligned", spec, node, expected)

    def _check_view(self, spec: TensorSpec, owner: TensorSpec, node: Node) -> Iterator[Diagnostic]:
        start = spec.storage_offset_bytes
        base = spec.storage_base
        while base is not None and base is not owner:
            start += base.storage_offset_bytes
            base = base.storage_base
        if start < 0 or start + spec.nbytes() > owner.nbytes():
            expected = f"bytes within 0..{owner.nbytes()} of {owner!r}"
            yield self._finding("EK346", "a view reaches outside of its base", spec, node, expected)
        elif owner.mem_offset is None:
            if spec.mem_offset is not None:
                yield self._finding("EK346", "a view has a place, but its base has none", spec, node)
        elif (spec.mem_id, spec.mem_offset) != (owner.mem_id, owner.mem_offset + start):
            expected = f"arena {owner.mem_id}, offset {owner.mem_offset + start}"
            yield self._finding("EK346", "a view does not lie in its base", spec, node, expected)

    def _finding(
        self, code: str, message: str, spec: TensorSpec, node: Node, expected: str | None = None
    ) -> Diagnostic:
        return Diagnostic(
            code=code, message=message, location=locate(node), expected=expected, notes=(f"%{node.name}: {spec!r}",)
        )


def _check_out_arguments(graph_module: GraphModule) -> Iterator[Diagnostic]:
    for node in graph_module.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is alloc and not specs_of(node):
            yield Diagnostic.of("EK344", "an alloc has no spec", location=locate(node))
        schema = getattr(underlying(node.target), "_schema", None)
        if not isinstance(schema, torch.FunctionSchema):
            continue
        given = [node.kwargs.get(argument.name) for argument in schema.arguments if argument.is_out]
        outs = [one for value in given for one in (value if isinstance(value, (list, tuple)) else [value])]
        written = [spec for out in outs if isinstance(out, Node) for spec in specs_of(out)]
        if written and [id(spec) for spec in written] != [id(spec) for spec in specs_of(node)]:
            yield Diagnostic.of(
                "EK349",
                "an operator's result and the tensor it writes to have different specs",
                location=locate(node),
                expected="one `TensorSpec` object, for it is one piece of memory",
                notes=tuple(f"it writes to {spec!r}" for spec in written),
            )


def _check_results_of_branches(graph_module: GraphModule) -> Iterator[Diagnostic]:
    for node in graph_module.graph.nodes:
        wanted = specs_of(node)
        if getattr(node.target, "_name", "") != "cond" or node.op != "call_function" or not wanted:
            continue
        for place, submodule in enumerate(graphs_of_call(node)):
            results = results_of_graph(submodule)
            found = [spec for result in results for spec in specs_of(result)]
            if [id(spec) for spec in found] != [id(spec) for spec in wanted]:
                yield Diagnostic.of(
                    "EK349",
                    f"a result of branch {place} and the call's result have different specs",
                    location=locate(node),
                    expected="one `TensorSpec` object, for a branch writes right into the call's result",
                    notes=tuple(f"the branch computes {spec!r}" for spec in found if spec not in wanted),
                )


def _overlap(overlap: Overlap) -> Diagnostic:
    new, old = overlap.new, overlap.old
    place = locate(new.holder)
    return Diagnostic.of(
        "EK341",
        f"two live values overlap in arena {new.arena}",
        location=place.model_copy(update={"node": f"step {overlap.step}, {place.node}"}),
        notes=(_described(new), _described(old)),
    )


def _described(live: LiveRange) -> str:
    what = "memory of the called graphs" if live.spec is None else repr(live.spec)
    return f"%{live.holder.name}: {what}, bytes {live.start}..{live.end}, live until step {live.last_step}"


@dataclass(frozen=True, slots=True)
class _Held:
    """Bytes that a method uses.

    Attributes:
        node: A node whose value lies there.
        arena: Number of the arena.
        start: First byte.
        end: Byte after the last one.
        buffer: Name of the buffer in which they lie, one that the method writes to; None for what no later call needs.
    """

    node: Node
    arena: int
    start: int
    end: int
    buffer: str | None

    def overlaps(self, other: _Held) -> bool:
        return self.arena == other.arena and self.start < other.end and other.start < self.end

    def holds(self, other: _Held) -> bool:
        return self.arena == other.arena and self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class _Method:
    """What a method uses.

    Attributes:
        name: Its name.
        buffers: What outlives a call.
        others: All else.
    """

    name: str
    buffers: list[_Held]
    others: list[_Held]

    def arenas(self) -> set[int]:
        return {one.arena for one in self.others}


def check_method_memory(programs: Mapping[str, ExportedProgram], separate: Collection[str] = ()) -> list[Diagnostic]:
    """Check that planned methods may be called in any order where one set of arenas is there for all of them.

    Args:
        programs: Planned programs by the names of their methods.
        separate: Names of methods that use no arena that another one uses, so that results of several of them may
            wait in their arenas at once.

    Returns:
        EK355, for every value over a buffer that another method keeps from call to call, and for every arena of a
        separate method that another one uses too. Buffers of one name at one place are one buffer that methods share.
    """
    methods = [_method(name, program) for name, program in programs.items()]
    findings = []
    for one in methods:
        for other in methods:
            if other is not one:
                findings += [_over_buffer(one, kept, other, new) for kept, new in _lost(one, other)]
                if one.name in separate:
                    findings += list(_in_one_arena(one, other))
    return findings


def _method(name: str, program: ExportedProgram) -> _Method:
    interface = ProgramInterface.of(program)
    buffers = {node: interface.inputs[node].target for node in interface.written}
    found = _Method(name, [], [])
    seen: set[object] = set()
    for module in called_graphs(program.graph_module):
        for node in module.graph.nodes:
            for spec in specs_of(node) if node.op != "output" else ():
                if spec in seen or spec.mem_id is None or spec.mem_offset is None or not spec.nbytes():
                    continue
                seen.add(spec)
                end = spec.mem_offset + spec.nbytes()
                held = _Held(node, spec.mem_id, spec.mem_offset, end, buffers.get(node))
                (found.buffers if held.buffer is not None else found.others).append(held)
    # Views lie in the buffers that they show.
    found.others[:] = [one for one in found.others if not any(buffer.holds(one) for buffer in found.buffers)]
    return found


def _lost(one: _Method, other: _Method) -> Iterator[tuple[_Held, _Held]]:
    """Yield what one method keeps with what the other one puts over it."""
    for kept in one.buffers:
        for new in (*other.buffers, *other.others):
            same = (kept.buffer, kept.start, kept.end) == (new.buffer, new.start, new.end)
            if kept.overlaps(new) and not same:
                yield kept, new


def _over_buffer(one: _Method, kept: _Held, other: _Method, new: _Held) -> Diagnostic:
    return Diagnostic.of(
        "EK355",
        f"%{new.node.name} of {other.name} lies over the buffer {kept.buffer!r} that {one.name} keeps",
        location=locate(new.node).model_copy(update={"method": other.name}),
        notes=(
            f"{one.name}: arena {kept.arena}, bytes {kept.start} to {kept.end}",
            f"{other.name}: arena {new.arena}, bytes {new.start} to {new.end}",
        ),
        hint="a buffer that is pinned to an offset needs an arena that no other method uses; "
        "report EK355 if nothing is pinned",
    )


def _in_one_arena(one: _Method, other: _Method) -> Iterator[Diagnostic]:
    for arena in sorted(one.arenas() & (other.arenas() | {held.arena for held in other.buffers})):
        yield Diagnostic.of(
            "EK355",
            f"{one.name} has arena {arena} to itself, and {other.name} uses it",
            location=Location(method=other.name),
            expected="no arena that two methods use, where `methods` is `separate`",
        )

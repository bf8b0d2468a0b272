"""The memory plan of a program holds: values that are still needed keep their memory, step by step.

Nothing here shares code with the planner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportGraphSignature
from torch.fx import GraphModule, Node

from exirkit.ir import (
    ALIGNMENT,
    Diagnostic,
    ProgramInterface,
    TensorSpec,
    alloc,
    graphs_of_call,
    locate,
    results_of_graph,
    underlying,
)

from .live_ranges import LiveRange, Overlap, Overwriting, Ownership, copies_results, find_overlaps, specs_of


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

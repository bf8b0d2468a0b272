"""Calls of delegates instead of the nodes that they compute, and partitions as programs of their own."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node

from exirkit.ir import (
    CALL_DELEGATE,
    STORED_KINDS,
    ContractError,
    Diagnostic,
    EdgeProgramVerifier,
    ProgramInterface,
    delegate_attribute,
    dim_order_from_stride,
    inherited,
    locate,
    ops,
    pytree,
)

from .backend import DELEGATION_TAG, DelegationSpec
from .growing import Partition


def tag_constant_data(edge_program: ExportedProgram) -> None:
    """Tag stored tensors that tagged calls read and that nothing writes to; each of their delegates keeps a copy."""
    _tag_stored(edge_program, is_written=False)


def tag_mutated_buffer(edge_program: ExportedProgram) -> None:
    """Tag buffers that are written to and that tagged calls read.

    The calls that read and write such a buffer have to be those of one partition: otherwise lowering stops with EK493.
    """
    _tag_stored(edge_program, is_written=True)


def _tag_stored(program: ExportedProgram, *, is_written: bool) -> None:
    """Tag stored tensors, those that are written to or the others, as the first tagged call that reads them."""
    interface = ProgramInterface.of(program)
    for node in filter(interface.is_stored, interface.placeholders):
        tags = [
            user.meta[DELEGATION_TAG]
            for user in node.users
            if user.op == "call_function" and DELEGATION_TAG in user.meta
        ]
        if tags and interface.is_written(node) == is_written:
            node.meta[DELEGATION_TAG] = tags[0]


def tag_kept_state(
    program: ExportedProgram, specs: Mapping[str, DelegationSpec], *, constants: bool, mutable: bool
) -> None:
    """Tag stored tensors that only delegates read, where they can be kept without a second copy in the program.

    Args:
        program: Its calls are tagged.
        specs: Where the partition of each tag goes.
        constants: Whether to tag what nothing writes to and delegates of one backend alone read.
        mutable: Whether to tag buffers that one partition alone reads and writes.
    """
    interface = ProgramInterface.of(program)
    writes = {owner: value for owner, value, _ in interface.mutations}
    for node in filter(interface.is_stored, interface.placeholders):
        tags = {user.meta.get(DELEGATION_TAG) if user.op == "call_function" else None for user in node.users}
        if not tags or None in tags:
            continue
        if not interface.is_written(node):
            keeps = constants and len({specs[tag].backend_id for tag in tags if tag}) == 1
        else:
            value: Any = writes.get(node)
            is_call = isinstance(value, Node) and value.op == "call_function"
            keeps = mutable and is_call and len(tags) == 1 and value.meta.get(DELEGATION_TAG) in tags
        if keeps:
            # The first reader's; every other reader keeps it as well.
            node.meta[DELEGATION_TAG] = next(iter(node.users)).meta[DELEGATION_TAG]


_KINDS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.USER_INPUT)
_CLONE = ops.edge.dim_order_ops._clone_dim_order.default
_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


@dataclass(frozen=True)
class Subprogram:
    """A partition taken out of a program.

    Attributes:
        partition: Which one.
        program: Its calls; tagged parameters, buffers and constants are its state.
        arguments: What the program hands it, in the order of its user inputs.
        results: What it hands back, in the order of its user outputs.
        written: Buffers and parameters of the program that it writes to itself: what is written, by target.
    """

    partition: Partition
    program: ExportedProgram
    arguments: tuple[Node, ...]
    results: tuple[Node, ...]
    written: Mapping[str, Node]


def subprogram_of(source: ExportedProgram, module: GraphModule, partition: Partition) -> Subprogram:
    """Return a partition as a program.

    Args:
        source: The program.
        module: Its graph, or a body of its control flow, that the partition is part of; it is not changed.
        partition: What to take out.

    Raises:
        ContractError: EK491, others read something of it that is not a tensor; EK493, an input of the user is tagged,
            or a buffer that others use while the partition writes it.
    """
    is_body = module is not source.graph_module
    specs = {} if is_body else ProgramInterface.of(source).inputs
    owned = _owned(partition, specs)
    written = {} if is_body else _written(source, partition, owned)
    arguments = _arguments(partition, owned)
    results = tuple(node for node in partition.calls if _is_result(node, partition, written.values()))
    for node in results:
        if not isinstance(node.meta.get("val"), torch.Tensor):
            raise ContractError(_no_tensor(node, partition.tag))
    builder = _Builder(source, owned, arguments)
    builder.add_calls(partition.calls)
    program = builder.program(results, written)
    return Subprogram(partition, program, arguments, results, written)


def _owned(partition: Partition, specs: Mapping[Node, InputSpec]) -> dict[Node, InputSpec]:
    """Return the placeholders whose tensors become state of the delegate."""
    owned: dict[Node, InputSpec] = {}
    calls = set(partition.calls)
    for node in partition.inputs:
        spec = specs.get(node)
        if spec is None or spec.kind not in STORED_KINDS:
            raise ContractError(_no_state(node, partition.tag))
        # A tag on what this partition does not read says nothing.
        if any(user in calls for user in node.users):
            owned[node] = spec
    return owned


def _written(source: ExportedProgram, partition: Partition, owned: Mapping[Node, InputSpec]) -> dict[str, Node]:
    """Return what the partition writes to state that it owns."""
    targets = {spec.target: node for node, spec in owned.items()}
    members = set(partition.calls)
    written: dict[str, Node] = {}
    for _, value, spec in ProgramInterface.of(source).mutations:
        if spec.kind not in _WRITES or spec.target not in targets:
            continue
        buffer = targets[spec.target]
        outside = [user for user in buffer.users if user not in members]
        if value not in members or outside:
            raise ContractError(_shared_state(buffer, partition.tag, value, outside))
        written[str(spec.target)] = value
    return written


def _arguments(partition: Partition, owned: Mapping[Node, InputSpec]) -> tuple[Node, ...]:
    members = {*partition.calls, *owned}
    found = dict.fromkeys(
        source for node in partition.calls for source in node.all_input_nodes if source not in members
    )
    for source in found:
        if source.op == "get_attr" and delegate_attribute(source) is None:
            raise ContractError(_calls_a_graph(source, partition.tag))
    # A delegate within a delegate goes with the call.
    return tuple(source for source in found if source.op != "get_attr")


def _is_result(node: Node, partition: Partition, written: Iterable[Node]) -> bool:
    """Return whether anything outside reads a value; what is only written to owned state is not handed back."""
    inside = set(partition.calls)
    outside = [user for user in node.users if user not in inside]
    if node in set(written):
        outside = [user for user in outside if user.op != "output" or _is_read_at_end(node, user, list(written))]
    return bool(outside)


def _is_read_at_end(node: Node, output: Node, written: Sequence[Node]) -> bool:
    results: Any = output.args[0]
    return sum(value is node for value in results) > sum(value is node for value in written)


class _Builder:
    def __init__(self, source: ExportedProgram, owned: Mapping[Node, InputSpec], arguments: Sequence[Node]) -> None:
        self._source = source
        self._owned = sorted(owned.items(), key=lambda pair: _KINDS.index(pair[1].kind))
        self._arguments = arguments
        self._root = torch.nn.Module()
        self._graph = Graph()
        self._copies: dict[Node, Node] = {}
        for node in (*(node for node, _ in self._owned), *arguments):
            made = self._graph.placeholder(node.name)
            made.meta = _meta(node)
            self._copies[node] = made

    def add_calls(self, calls: Sequence[Node]) -> None:
        """Copy the calls, in their order."""
        for node in calls:
            for source in node.all_input_nodes:
                if source.op == "get_attr" and source not in self._copies:
                    name = str(source.target)
                    self._root.add_module(name, source.graph.owning_module.get_submodule(name))  # type: ignore[union-attr]
                    self._copies[source] = self._graph.get_attr(name)
            made = self._graph.node_copy(node, self._copies.__getitem__)
            made.meta = _meta(node)
            self._copies[node] = made

    def program(self, results: Sequence[Node], written: Mapping[str, Node]) -> ExportedProgram:
        """Return the program with these results behind what it writes."""
        writes = self._writes(written)
        ends = [*writes.values(), *(self._copies[node] for node in results)]
        output = self._graph.output(tuple(ends))
        output.meta["val"] = tuple(end.meta.get("val") for end in ends)
        signature = self._signature(results, writes)
        inputs = tuple(node.name for node in self._arguments)
        in_spec = pytree.tree_flatten((inputs, {}))[1]
        out_spec = pytree.tree_flatten(tuple(results))[1]
        entry = ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))
        targets = {spec.target for _, spec in self._owned}
        return ExportedProgram(
            root=GraphModule(self._root, self._graph),
            graph=self._graph,
            graph_signature=signature,
            state_dict={name: value for name, value in self._source.state_dict.items() if name in targets},
            range_constraints=dict(self._source.range_constraints),
            module_call_graph=[entry],
            constants={name: value for name, value in self._source.constants.items() if name in targets},
            verifiers=[EdgeProgramVerifier],
        )

    def _writes(self, written: Mapping[str, Node]) -> dict[str, Node]:
        """Return the copies of what is written; of a value that is written twice a clone, as torch asks for it."""
        found: dict[str, Node] = {}
        for target, node in written.items():
            made = self._copies[node]
            if made in found.values():
                value = made.meta["val"]
                order = list(dim_order_from_stride(value.stride(), value.shape))
                made = self._graph.call_function(_CLONE, (made,), {"dim_order": order})
                made.meta = dict(self._copies[node].meta)
            found[target] = made
        return found

    def _signature(self, results: Sequence[Node], writes: Mapping[str, Node]) -> ExportGraphSignature:
        inputs = [
            InputSpec(spec.kind, TensorArgument(self._copies[node].name), spec.target, spec.persistent)
            for node, spec in self._owned
        ]
        inputs += [InputSpec(InputKind.USER_INPUT, _argument(self._copies[node]), None) for node in self._arguments]
        kinds = {spec.target: spec.kind for _, spec in self._owned}
        outputs = [
            OutputSpec(
                OutputKind.BUFFER_MUTATION if kinds[target] is InputKind.BUFFER else OutputKind.PARAMETER_MUTATION,
                TensorArgument(node.name),
                target,
            )
            for target, node in writes.items()
        ]
        outputs += [OutputSpec(OutputKind.USER_OUTPUT, _argument(self._copies[node]), None) for node in results]
        return ExportGraphSignature(inputs, outputs)


def _meta(node: Node) -> dict[str, Any]:
    return {key: value for key, value in node.meta.items() if key != DELEGATION_TAG}


def _argument(node: Node) -> Any:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return TensorArgument(node.name)
    if isinstance(value, torch.SymInt):
        return SymIntArgument(node.name)
    return ConstantArgument(node.name, value)


def _no_state(node: Node, tag: str) -> Diagnostic:
    return Diagnostic.of(
        code="EK493",
        message=f"%{node.name} is tagged {tag!r}, and is not a parameter, buffer or constant of the program",
        location=locate(node),
        expected="tags on calls, and on stored tensors that the delegate is to keep",
        hint="leave the tag away: what is handed to a delegate is found from the calls",
    )


def _no_tensor(node: Node, tag: str) -> Diagnostic:
    return Diagnostic.of(
        code="EK491",
        message=f"%{node.name} is tagged {tag!r}, is not a tensor, and is read by others",
        location=locate(node),
        expected="delegates that hand back tensors",
        hint="leave its tag away: delegates can be handed numbers",
    )


def _shared_state(buffer: Node, tag: str, value: Any, outside: Sequence[Node]) -> Diagnostic:
    who = f"%{outside[0].name} reads it too" if outside else f"{value} outside of the partition is written to it"
    return Diagnostic.of(
        code="EK493",
        message=f"buffer %{buffer.name} is tagged {tag!r} and written to, but {who}",
        location=locate(buffer),
        expected="a buffer that one partition alone reads and writes, if a delegate is to keep it",
        hint="leave the tag of the buffer away: the delegate is handed its value, and hands back the new one",
    )


def _calls_a_graph(node: Node, tag: str) -> Diagnostic:
    return Diagnostic.of(
        code="EK491",
        message=f"a call of the graph %{node.name} is tagged {tag!r}",
        location=locate(node),
        expected="calls of operators",
        hint="tag the nodes within the graph instead: each graph has its own partitions",
    )


def sort_for_delegates(module: GraphModule, taken: Sequence[Subprogram]) -> None:
    """Move nodes so that the calls of each partition stand side by side, and everything after what it needs.

    Args:
        module: Graph of the partitions.
        taken: The partitions, in an order in which they can run.
    """
    graph = module.graph
    unit: dict[Node, int] = {node: number for number, one in enumerate(taken) for node in one.partition.calls}
    placed: set[Node] = set()
    order: list[Node] = []

    def place(first: Node) -> None:
        stack = [(first, False)]
        while stack:
            node, is_expanded = stack.pop()
            if node in placed:
                continue
            group = taken[unit[node]].partition.calls if node in unit else (node,)
            if not is_expanded:
                stack.append((node, True))
                stack += [
                    (source, False)
                    for member in reversed(group)
                    for source in reversed(member.all_input_nodes)
                    if source not in placed and (node not in unit or unit.get(source) != unit[node])
                ]
                continue
            placed.update(group)
            order.extend(group)

    nodes = list(graph.nodes)
    for node in nodes:
        if node.op == "placeholder":
            placed.add(node)
            order.append(node)
    for node in nodes:
        if node.op not in ("placeholder", "output"):
            place(node)
    end = graph.output_node()
    for node in order:
        end.prepend(node)


def insert_calls(module: GraphModule, taken: Sequence[Subprogram], delegates: Sequence[torch.nn.Module]) -> None:
    """Replace the nodes of partitions by calls of their delegates.

    Args:
        module: Graph of the partitions, sorted by `sort_for_delegates`; the delegates become attributes of it.
        taken: The partitions, in the order in which they run.
        delegates: What is called, for each.
    """
    handle = _greatest_handle(module)
    results: dict[Node, Node] = {}
    for number, (one, delegate) in enumerate(zip(taken, delegates, strict=True)):
        name = _free_name(module, number)
        module.add_module(name, delegate)
        # What an earlier delegate computes has another name now.
        arguments = [results.get(node, node) for node in one.arguments]
        results |= _insert_call(module.graph, one, arguments, name, handle + number + 1)


def _insert_call(graph: Graph, one: Subprogram, arguments: Sequence[Node], name: str, handle: int) -> dict[Node, Node]:
    """Replace one partition, and return what its results have become; the call's value is the list of them."""
    first = one.partition.calls[0]
    with graph.inserting_before(first):
        attribute = graph.get_attr(name)
        call = graph.call_function(CALL_DELEGATE, (attribute, *arguments))
        call.meta = inherited(list(one.partition.calls))
        call.meta.pop(DELEGATION_TAG, None)
        call.meta["val"] = [node.meta["val"] for node in one.results]
        call.meta["debug_handle"] = handle
        made: dict[Node, Node] = {}
        for place, node in enumerate(one.results):
            made[node] = item = graph.call_function(operator.getitem, (call, place))
            item.meta = {key: value for key, value in node.meta.items() if key != DELEGATION_TAG}
            node.replace_all_uses_with(item)
    for node in reversed(one.partition.calls):
        graph.erase_node(node)
    return made


def _free_name(module: GraphModule, number: int) -> str:
    while hasattr(module, f"lowered_module_{number}"):
        number += 1
    return f"lowered_module_{number}"


def _greatest_handle(module: GraphModule) -> int:
    """Return the greatest debug handle of a graph; 0 if there is none."""
    handles = [node.meta.get("debug_handle") for node in module.graph.nodes]
    return max((one for one in handles if isinstance(one, int)), default=0)


def leave_writes(program: ExportedProgram, taken: Sequence[Subprogram]) -> None:
    """Take out of a program the writes to what its delegates keep."""
    written = {target for one in taken for target in one.written}
    output = program.graph.output_node()
    results: Any = output.args[0]
    specs = program.graph_signature.output_specs
    kept = [
        pair for pair in zip(results, specs, strict=True) if pair[1].target is None or pair[1].target not in written
    ]
    output.args = (tuple(value for value, _ in kept),)
    program._graph_signature = ExportGraphSignature(program.graph_signature.input_specs, [spec for _, spec in kept])


def leave_inputs(program: ExportedProgram, taken: Sequence[Subprogram]) -> None:
    """Take out of a program what only its delegates read, and let its signature name the values that are left."""
    signature = program.graph_signature
    gone = {node.name: node for one in taken for node in one.partition.inputs if not node.users}
    targets = {str(spec.target) for spec in signature.input_specs if spec.arg.name in gone}
    kept = [spec for spec in signature.input_specs if spec.arg.name not in gone]
    for node in gone.values():
        program.graph.erase_node(node)
    results: Any = program.graph.output_node().args[0]
    outputs = [
        OutputSpec(spec.kind, replace(spec.arg, name=value.name), spec.target) if isinstance(value, Node) else spec
        for value, spec in zip(results, signature.output_specs, strict=True)
    ]
    program._graph_signature = ExportGraphSignature(kept, outputs)
    for target in targets - {str(spec.target) for spec in kept}:
        program._state_dict.pop(target, None)
        program._constants.pop(target, None)

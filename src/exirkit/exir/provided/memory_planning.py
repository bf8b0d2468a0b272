"""What planners of the user's read: the specs of nodes, when they are alive, and whether a plan is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

from torch.export import ExportGraphSignature
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from exirkit.ir import ContractError, ProgramInterface, TensorShapeDynamism, TensorSpec, is_out_variant, view


def filter_nodes(inputs: Iterable[Any]) -> list[Node]:
    """Return the nodes among arguments, those in lists, tuples and dictionaries too."""
    found: list[Node] = []
    map_arg(list(inputs), found.append)
    return found


def get_node_tensor_specs(node: Node) -> list[TensorSpec]:
    """Return the specs of a node's value: none, one, or one for each tensor of a sequence; a view has its base's."""
    base = node.args[0] if node.target is view else node
    specs = base.meta.get("spec") if isinstance(base, Node) else None
    listed = specs if isinstance(specs, list | tuple) else [specs]
    return [spec for spec in listed if isinstance(spec, TensorSpec)]


def collect_specs_from_nodes(
    nodes: Iterable[Node],
    graph_signature: ExportGraphSignature | None = None,
    ignore_graph_input: bool = False,
    ignore_graph_output: bool = False,
    ignore_mutable_buffers: bool = False,
    ignore_const: bool = True,
    ignore_out_var_node: bool = True,
    dedup: bool = True,
    do_assertion: bool = True,
    ignore_dynamic_unbound_tensor: bool = True,
) -> Iterator[TensorSpec]:
    """Yield the specs of nodes, in their order.

    Args:
        nodes: The nodes.
        graph_signature: Says which inputs are buffers that the program mutates.
        ignore_graph_input: Leave out specs of inputs.
        ignore_graph_output: Leave out specs of outputs.
        ignore_mutable_buffers: Leave out specs of buffers that the program mutates.
        ignore_const: Leave out what is stored in the file.
        ignore_out_var_node: Leave out calls that write into tensors that they are given.
        dedup: Yield each spec once.
        do_assertion: Has no effect: the verifiers of the dialect check what calls there are.
        ignore_dynamic_unbound_tensor: Leave out what gets memory only while the program runs.
    """
    del do_assertion
    listed = list(nodes)
    left_out = _left_out(listed, graph_signature, ignore_graph_input, ignore_graph_output, ignore_mutable_buffers)
    seen: set[TensorSpec] = set()
    for node in listed:
        if node.op == "get_attr" or (ignore_out_var_node and _writes_out(node)):
            continue
        for spec in get_node_tensor_specs(node):
            unbound = spec.shape_dynamism == TensorShapeDynamism.DYNAMIC_UNBOUND
            if spec in left_out or (ignore_const and spec.const) or (ignore_dynamic_unbound_tensor and unbound):
                continue
            if not dedup or spec not in seen:
                seen.add(spec)
                yield spec


def _left_out(
    nodes: Sequence[Node], signature: ExportGraphSignature | None, inputs: bool, outputs: bool, buffers: bool
) -> set[TensorSpec]:
    mutable = _mutable_buffers(nodes, signature)
    given = [node for node in nodes if node.op == "placeholder" and node not in mutable]
    returned = [node for node in nodes if node.op == "output"]
    chosen = [*(given if inputs else ()), *(returned if outputs else ()), *(mutable if buffers else ())]
    return {spec for node in chosen for spec in get_node_tensor_specs(node)}


def _mutable_buffers(nodes: Sequence[Node], signature: ExportGraphSignature | None) -> list[Node]:
    if signature is None:
        return []
    written = set(signature.buffers_to_mutate.values())
    named = {name for name, buffer in signature.inputs_to_buffers.items() if buffer in written}
    return [node for node in nodes if node.op == "placeholder" and node.target in named]


def _writes_out(node: Node) -> bool:
    return node.op == "call_function" and is_out_variant(node.target)


def update_all_tensors_lifetime(
    graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None
) -> set[TensorSpec]:
    """Set `lifetime` of all specs of a graph: the numbers of the first and last node that has or reads the value.

    Inputs live from node 0 on, and buffers that the program mutates to the last node.

    Args:
        graph_module: The graph, with specs.
        graph_signature: Says which inputs are buffers that the program mutates.

    Returns:
        The specs.
    """
    nodes = list(graph_module.graph.nodes)
    kept = set(_mutable_buffers(nodes, graph_signature))
    found: set[TensorSpec] = set()
    for number, node in enumerate(nodes):
        for one in filter_nodes([node, *node.args, *node.kwargs.values()]):
            for spec in get_node_tensor_specs(one):
                first, last = spec.lifetime if spec in found else (None, None)
                start = 0 if one.op == "placeholder" else number if first is None else first
                end = len(nodes) - 1 if one in kept else number
                spec.lifetime = [start, max(end, -1 if last is None else last)]
                found.add(spec)
    for spec in found:
        _extend_base(spec)
    return found


def _extend_base(spec: TensorSpec) -> None:
    """Let what a spec lies in live as long as the spec."""
    base = spec.storage_base
    while base is not None:
        starts = [one for one in (base.lifetime[0], spec.lifetime[0]) if one is not None]
        ends = [one for one in (base.lifetime[1], spec.lifetime[1]) if one is not None]
        base.lifetime = [min(starts), max(ends)]
        base = base.storage_base


class Verifier:
    """Checks a plan: what is alive at the same time shares no bytes, and the border of the graph is planned as asked.

    Args:
        graph_module: A planned graph.
        alloc_graph_input: Whether inputs were to get memory.
        alloc_graph_output: Whether outputs were to get memory.
        alloc_mutable_buffers: Whether buffers that the program mutates were to get memory.
        graph_signature: Says which inputs are such buffers.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        alloc_graph_input: bool,
        alloc_graph_output: bool,
        alloc_mutable_buffers: bool,
        graph_signature: ExportGraphSignature | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.alloc_graph_input = alloc_graph_input
        self.alloc_graph_output = alloc_graph_output
        self.alloc_mutable_buffers = alloc_mutable_buffers
        self.graph_signature = graph_signature

    @classmethod
    def mem_obj_id_match(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec, accept_both_none: bool = True) -> bool:
        """Return whether two specs are of one group that shares memory by turns; what is in no group, if so asked."""
        if lhs_spec.mem_id != rhs_spec.mem_id or lhs_spec.mem_obj_id != rhs_spec.mem_obj_id:
            return False
        return lhs_spec.mem_obj_id is not None or accept_both_none

    @classmethod
    def has_overlap(cls, lhs_ivl: Sequence[int], rhs_ivl: Sequence[int]) -> bool:
        """Return whether two intervals, both ends inclusive, have a number in common; one that ends early has none."""
        return max(lhs_ivl[0], rhs_ivl[0]) <= min(lhs_ivl[1], rhs_ivl[1])

    @classmethod
    def lifetime_overlap(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec) -> bool:
        """Return whether two specs are alive at the same time."""
        return cls.has_overlap(_lifetime(lhs_spec), _lifetime(rhs_spec))

    @classmethod
    def storage_overlap(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec) -> bool:
        """Return whether two specs have bytes of one arena in common."""
        if lhs_spec.mem_id != rhs_spec.mem_id:
            return False
        return cls.has_overlap(_bytes(lhs_spec), _bytes(rhs_spec))

    def verify_storage_reuse(self, allow_lifetime_and_storage_overlap: bool = False) -> int:
        """Check that what is alive at the same time shares no bytes, unless one lies in the other.

        Args:
            allow_lifetime_and_storage_overlap: Do not check that, and only count.

        Returns:
            How many pairs of specs share bytes.

        Raises:
            ContractError: EK765, two specs that are alive at the same time share bytes, or two that share bytes are of
                different groups.
        """
        specs = collect_specs_from_nodes(
            self.graph_module.graph.nodes,
            self.graph_signature,
            ignore_graph_input=not self.alloc_graph_input,
            ignore_graph_output=not self.alloc_graph_output,
            ignore_mutable_buffers=not self.alloc_mutable_buffers,
            ignore_out_var_node=False,
        )
        pairs = 0
        for left, right in combinations(specs, 2):
            if not self.storage_overlap(left, right):
                continue
            nested = left in _bases(right) or right in _bases(left)
            if not allow_lifetime_and_storage_overlap and not nested and self.lifetime_overlap(left, right):
                raise _broken(f"{left} and {right} share bytes while both are alive")
            if not self.mem_obj_id_match(left, right):
                raise _broken(f"{left} and {right} share bytes and are of different groups")
            pairs += 1
        return pairs

    def verify_graph_input_output(self) -> None:
        """Check that inputs and outputs have memory if, and only if, they were to have it.

        Raises:
            ContractError: EK765, they have not, or have.
        """
        graph = self.graph_module.graph
        interface = ProgramInterface(graph, self.graph_signature)
        inputs, outputs = set(_movable(interface.user_inputs)), set(_movable([graph.output_node()]))
        if inputs & outputs and self.alloc_graph_input != self.alloc_graph_output:
            return
        buffers = {
            spec
            for node in _mutable_buffers(list(graph.nodes), self.graph_signature)
            for spec in get_node_tensor_specs(node)
        }
        for what, specs, wanted in (
            ("inputs", inputs, self.alloc_graph_input),
            ("outputs", outputs - buffers, self.alloc_graph_output),
        ):
            if any((spec.mem_offset is not None) != wanted for spec in specs):
                raise _broken(f"{what} of the graph were {'' if wanted else 'not '}to get memory")


def _movable(nodes: Iterable[Node]) -> Iterator[TensorSpec]:
    for node in nodes:
        for spec in get_node_tensor_specs(node):
            if not spec.const and spec.shape_dynamism != TensorShapeDynamism.DYNAMIC_UNBOUND:
                yield spec


def _lifetime(spec: TensorSpec) -> tuple[int, int]:
    first, last = spec.lifetime
    if first is None or last is None:
        raise _broken(f"{spec} has no lifetime")
    return first, last


def _bytes(spec: TensorSpec) -> tuple[int, int]:
    if spec.mem_offset is None:
        raise _broken(f"{spec} has no place")
    return spec.mem_offset, spec.mem_offset + spec.allocated_memory - 1


def _bases(spec: TensorSpec) -> list[TensorSpec]:
    found = [spec]
    while found[-1].storage_base is not None:
        found.append(found[-1].storage_base)
    return found


def _broken(message: str) -> ContractError:
    return ContractError(code="EK765", message=message)

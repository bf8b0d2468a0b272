"""Which specs a graph of the ExecuTorch dialect has, what they are to it, which are planned, and for how long."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, GraphModule, Node

from exirkit.ir import (
    MAP,
    SCAN,
    ContractError,
    Diagnostic,
    HigherOrderOperator,
    ModelError,
    ProgramInterface,
    TensorSpec,
    graphs_of_call,
    locate,
    underlying,
    view,
)
from exirkit.passes.memory.planners import has_integer_sizes, still_symbolic, storage_root


def node_specs(node: Node) -> list[TensorSpec]:
    """Return the specs of a node's value: none, one, or one for each tensor of a sequence."""
    spec = node.meta.get("spec")
    return [spec] if type(spec) is TensorSpec else list(_flatten(spec))


@dataclass(slots=True)
class SpecRoles:
    """What the specs that own memory are to a graph; views count as their owners.

    Attributes:
        owners: Every spec of the graph that is not a view, in order of appearance, with the first node that has it.
        constants: Parameters, constants and buffers that nothing mutates.
        state: Buffers and parameters that the program mutates.
        inputs: User inputs, mutated or not.
        outputs: What the caller gets back, apart from state and constants.
        views: Every view, with the first node that has it.
        returned_views: Views that the caller gets back.
        outer: Specs that belong to the graphs around this one.
        output_places: For each of the outputs and of these views, the places at which the caller gets it, counted from
            0 without the new values of what the program mutates.
    """

    owners: dict[TensorSpec, Node]
    constants: set[TensorSpec]
    state: set[TensorSpec]
    inputs: set[TensorSpec]
    outputs: set[TensorSpec]
    views: dict[TensorSpec, Node]
    returned_views: list[TensorSpec]
    outer: frozenset[TensorSpec] = frozenset()
    output_places: dict[TensorSpec, set[int]] = field(default_factory=dict)


def spec_roles(graph: Graph, graph_signature: ExportGraphSignature | None) -> SpecRoles:
    """Visit every node once and sort its specs.

    Raises:
        ContractError: EK458, if bases of views form a cycle.
    """
    interface = ProgramInterface(graph, graph_signature)
    roles = SpecRoles({}, set(), set(), set(), set(), {}, [])
    for node in graph.nodes:
        if node.op == "get_attr":
            roles.constants.update(node_specs(node))
        elif node.op != "output":
            for spec in node_specs(node):
                (roles.owners if spec.storage_base is None else roles.views).setdefault(spec, node)
    for node in interface.placeholders:
        kept = roles.state if interface.is_written(node) else roles.constants
        (kept if interface.is_stored(node) else roles.inputs).update(node_specs(node))
    roles.constants.update(spec for spec in roles.owners if spec.const)
    _note_outputs(interface, roles)
    return roles


def leave_out(roles: SpecRoles, outer: frozenset[TensorSpec]) -> None:
    """Take the specs of the graphs around a called one out of its roles: it uses them, and others place them."""
    roles.outer = outer
    roles.owners = {spec: node for spec, node in roles.owners.items() if spec not in outer}
    roles.views = {spec: node for spec, node in roles.views.items() if spec not in outer}


def finalize_aliases(graph: Graph) -> bool:
    """Let specs say which values share memory, where passes before have not; return whether anything changed.

    The result of an operator that writes to its argument (`copy_`) has the spec of that argument, and the spec of a
    view has its base's spec as `storage_base`.

    Raises:
        ContractError: EK456, if a view or the tensor that an operator writes to has no spec.
    """
    modified = False
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is view:
            modified |= _settle_view(node)
        elif (schema := _schema(node)) is not None and not any(argument.is_out for argument in schema.arguments):
            modified |= _settle_in_place(node, schema)
    return modified


def _flatten(value: object) -> Iterator[TensorSpec]:
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _flatten(one)


def _note_outputs(interface: ProgramInterface, roles: SpecRoles) -> None:
    for place, node in enumerate(interface.user_results):
        for spec in node_specs(node) if isinstance(node, Node) else ():
            root = storage_root(spec)[0]
            if spec is not root:
                roles.returned_views.append(spec)
                roles.output_places.setdefault(spec, set()).add(place)
            if root not in roles.constants and root not in roles.state:
                roles.outputs.add(root)
                roles.output_places.setdefault(root, set()).add(place)


def _schema(node: Node) -> torch.FunctionSchema | None:
    schema = getattr(underlying(node.target), "_schema", None)
    return schema if isinstance(schema, torch.FunctionSchema) else None


def _settle_view(node: Node) -> bool:
    base = node.args[0]
    spec = node.meta.get("spec")
    base_spec = base.meta.get("spec") if isinstance(base, Node) else None
    if not isinstance(spec, TensorSpec) or not isinstance(base_spec, TensorSpec):
        raise _no_spec(node)
    if spec is base_spec or spec.storage_base is not None:
        return False
    spec.storage_base = base_spec
    return True


def _settle_in_place(node: Node, schema: torch.FunctionSchema) -> bool:
    """Give each result that is a written argument the spec of the argument."""
    written: dict[str, Any] = {}
    for place, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        if alias is not None and alias.is_write:
            value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            written.update(dict.fromkeys(alias.before_set, value))
    if not written:
        return False
    specs = node.meta.get("spec")
    listed = list(specs) if isinstance(specs, (list, tuple)) else [specs]
    settled = list(listed)
    for place, result in enumerate(schema.returns[: len(listed)]):
        alias = result.alias_info
        names = sorted(alias.before_set & written.keys()) if alias is not None else []
        target = written[names[0]] if names else None
        if isinstance(target, Node) and not _is_linked(listed[place]):
            target_spec = target.meta.get("spec")
            if not isinstance(target_spec, TensorSpec):
                raise _no_spec(target)
            settled[place] = target_spec
    if all(new is old for new, old in zip(settled, listed, strict=True)):
        return False
    node.meta["spec"] = settled if isinstance(specs, (list, tuple)) else settled[0]
    return True


def _is_linked(spec: object) -> bool:
    return isinstance(spec, TensorSpec) and spec.storage_base is not None


def _no_spec(node: Node) -> ContractError:
    return ContractError(
        code="EK456",
        message=f"%{node.name} has no spec",
        location=locate(node),
    )


@dataclass(frozen=True, slots=True)
class AllocationPolicy:
    """Whose memory is planned; what is not planned the caller provides.

    Attributes:
        graph_input: User inputs; all of them, none, or those of these placeholders.
        graph_output: What the caller gets back; all of it, nothing, or what is at these places of it. A tensor that is
            an input and an output is planned only if both are: if the caller provides one of them, it provides the
            tensor.
        mutable_buffers: Buffers and parameters that the program mutates. One that is returned as well belongs to the
            program all the same, for its value has to outlive the call.
    """

    graph_input: bool | Collection[str] = True
    graph_output: bool | Collection[int] = True
    mutable_buffers: bool = True

    def covers(self, spec: TensorSpec, roles: SpecRoles) -> bool:
        """Return whether the memory of a spec, which is not a view, is planned; that of constants never is."""
        if spec in roles.constants:
            return False
        if spec in roles.state:
            return self.mutable_buffers
        return self._covers_input(spec, roles) and self._covers_output(spec, roles)

    def _covers_input(self, spec: TensorSpec, roles: SpecRoles) -> bool:
        if spec not in roles.inputs or isinstance(self.graph_input, bool):
            return spec not in roles.inputs or bool(self.graph_input)
        return roles.owners[spec].name in self.graph_input

    def _covers_output(self, spec: TensorSpec, roles: SpecRoles) -> bool:
        return spec not in roles.outputs or self.covers_places(roles.output_places[spec])

    def covers_places(self, places: Collection[int]) -> bool:
        """Return whether outputs at all of these places are planned."""
        if isinstance(self.graph_output, bool):
            return self.graph_output
        return all(place in self.graph_output for place in places)


def select_specs(roles: SpecRoles, policy: AllocationPolicy) -> list[TensorSpec]:
    """Return the specs to plan, none of them a view, in order of appearance.

    Raises:
        ModelError: EK451 for a shape that is still symbolic, EK452 for one without upper bound.
        ContractError: EK454, if the caller is to provide an output that is a view of other memory.
    """
    for one in roles.returned_views:
        if not policy.covers_places(roles.output_places[one]):
            raise ContractError(_returned_view(roles, one))
    selected = [spec for spec in roles.owners if policy.covers(spec, roles) and not _is_left_to_the_runtime(spec)]
    for spec in selected:
        if spec.is_dynamic_unbound_tensor:
            raise ModelError(_unbounded(roles, spec))
        if not has_integer_sizes(spec):
            raise ModelError(still_symbolic(spec, locate(roles.owners[spec])))
    return selected


def _is_left_to_the_runtime(spec: TensorSpec) -> bool:
    # Sizes without a bound are 0 once they have been examined.
    return spec.is_dynamic_unbound_tensor and has_integer_sizes(spec) and 0 in spec.shape


def _returned_view(roles: SpecRoles, spec: TensorSpec) -> Diagnostic:
    return Diagnostic.of(
        code="EK454",
        message="an output that the caller provides memory for is a view of other memory",
        location=locate(roles.views[spec]),
    )


def _unbounded(roles: SpecRoles, spec: TensorSpec) -> Diagnostic:
    return Diagnostic.of(
        code="EK452",
        message="a tensor whose size has no upper bound cannot be planned",
        location=locate(roles.owners[spec]),
        notes=(
            f"its spec is {spec!r}",
            "its sizes have not been given to the runtime either, as bound-symbolic-shapes does if it is told to",
        ),
        hint="bound the dimension: torch.export.Dim(..., max=...), or torch._check(size <= ...) in the model",
    )


def compute_lifetimes(
    graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None
) -> dict[TensorSpec, tuple[int, int]]:
    """Return first and last step of each spec, both inclusive; a step is the index of a node in the graph.

    A spec is needed at every node that has it or that takes a node which has it: an `alloc`, the operator that fills
    it, its users (delegates among them), and the output. On top of that:

    - inputs are there from step 0, since the caller fills them all before the first;
    - mutated buffers, parameters and inputs are needed to the end;
    - the owner of memory is needed as long as any view of it.

    The graphs of control flow are not entered; each has steps of its own.
    """
    nodes = list(graph_module.graph.nodes)
    interface = ProgramInterface(graph_module.graph, graph_signature)
    spans: dict[TensorSpec, tuple[int, int]] = {}
    for step, node in enumerate(nodes):
        is_input = node.op == "placeholder"
        first = 0 if is_input else step
        last = len(nodes) - 1 if is_input and interface.is_written(node) else step
        for spec in node_specs(node):
            _extend(spans, spec, first, last)
        for argument in _read_by(node):
            for spec in node_specs(argument):
                _extend(spans, spec, step, step)
    for spec, (first, last) in list(spans.items()):
        _extend(spans, storage_root(spec)[0], first, last)
    return spans


def update_lifetimes(
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature | None = None,
    outer: frozenset[TensorSpec] = frozenset(),
) -> dict[TensorSpec, tuple[int, int]]:
    """Set `lifetime` of every spec of the graph, and return first and last steps in order of appearance.

    Specs of the graphs around a called one keep theirs, which count the steps of these.
    """
    spans = compute_lifetimes(graph_module, graph_signature)
    for spec, (first, last) in spans.items():
        if spec not in outer:
            # A new list: copies of a spec may still hold the old one.
            spec.lifetime = [first, last]
    return spans


def _read_by(node: Node) -> list[Node]:
    """Return the nodes whose values a node needs; taking one result of several reads nothing of the others."""
    return [] if node.target is operator.getitem and node_specs(node) else node.all_input_nodes


def _extend(spans: dict[TensorSpec, tuple[int, int]], spec: TensorSpec, first: int, last: int) -> None:
    known = spans.get(spec)
    spans[spec] = (first, last) if known is None else (min(first, known[0]), max(last, known[1]))


# XNNPACK kernels read up to this many bytes past the end of their inputs.
_XNNPACK_PADDING = 64


def padding_of(graph_module: GraphModule) -> int:
    """Return how many bytes have to follow every arena of a program: some, if XNNPACK runs anywhere in it."""
    for module in graph_module.modules():
        backend_id = getattr(module, "backend_id", "")
        if isinstance(backend_id, str) and "xnnpack" in backend_id.lower():
            return _XNNPACK_PADDING
    return 0


def graph_calls(graph_module: GraphModule) -> dict[Node, list[GraphModule]]:
    """Return the calls of control flow in a graph, each with its graphs, in order."""
    nodes = (node for node in graph_module.graph.nodes if isinstance(node.target, HigherOrderOperator))
    return {node: graphs for node in nodes if (graphs := graphs_of_call(node))}


def needs_inputs_planned(node: Node) -> bool:
    """Return whether the graphs that a node runs need memory for their inputs.

    A branch reads the values of its parent in place. The body of a `map` or `scan` gets a slice of them in each round.
    """
    return call_kind(node) in (MAP, SCAN)


def call_kind(node: Node) -> str:
    """Return the name of the operator of a call of control flow."""
    return str(getattr(node.target, "_name", node.target))

"""Specs of all values, and views that share the memory of their base."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Node

from exirkit.ir import (
    COND,
    MAP,
    SCAN,
    ControlFlowCall,
    GraphEditor,
    ProgramInterface,
    SubgraphEditor,
    TensorShapeDynamism,
    TensorSpec,
    control_flow_call,
    has_trait,
    ops,
    results_of_graph,
    same_argument,
    subgraph_editors,
    underlying,
    view,
    writes_in_place,
)
from exirkit.passes.analysis import reject_graph_calls
from exirkit.passes.contract import Pass

Destinations = Mapping[tuple[Node, int | None], Any]
"""Specs that nodes of a body have to have, by node and place in its list of results."""


def called_bodies(editor: GraphEditor) -> Iterator[tuple[ControlFlowCall, SubgraphEditor]]:
    """Yield each call of control flow of a graph with an editor of each of its bodies."""
    editors = {id(body.program.graph_module): body for body in subgraph_editors(editor)}
    for node in list(editor.graph.nodes):
        call = control_flow_call(node)
        if call is not None:
            yield from ((call, editors[id(body)]) for body in dict.fromkeys(call.subgraphs))


def all_editors(editor: GraphEditor) -> Iterator[GraphEditor]:
    """Yield the editor of a graph, and those of the bodies of its control flow at any depth."""
    yield editor
    for body in subgraph_editors(editor):
        yield from all_editors(body)


def share_input_specs(call: ControlFlowCall, body: SubgraphEditor) -> None:
    """Give the inputs of a body the specs of what they stand for; the rows of sliced tensors keep their own.

    What a loop carries lies in the memory of the loop's results.
    """
    inputs = body.graph.find_nodes(op="placeholder")
    results = call.node.meta.get("spec") or []
    rows = len(call.carried) + len(call.sliced)
    for place, node in enumerate(inputs):
        if place < len(call.carried):
            spec = results[place] if place < len(results) else None
        elif place < rows or place - rows >= len(call.shared):
            continue
        else:
            operand = call.shared[place - rows]
            spec = operand.meta.get("spec") if isinstance(operand, Node) else None
        if node.meta.get("spec") is not spec:
            body.set_meta(node, "spec", spec)


def destinations(call: ControlFlowCall, body: SubgraphEditor) -> Destinations:
    """Return the specs of the results that a branch writes right into the memory of the call's results."""
    if call.kind != COND:
        return {}
    found: dict[tuple[Node, int | None], Any] = {}
    specs = call.node.meta.get("spec") or []
    for result, spec in zip(results_of_graph(body.program.graph_module), specs, strict=False):
        if isinstance(result, Node) and spec is not None:
            found[_producer(result)] = spec
    return found


def _producer(node: Node) -> tuple[Node, int | None]:
    if node.target is operator.getitem and isinstance(node.args[0], Node) and isinstance(node.args[1], int):
        return node.args[0], node.args[1]
    return node, None


class PropagateSpecs(Pass):
    """Set `meta["spec"]` of each node whose value is a tensor, or a sequence of tensors, from its `meta["val"]`.

    An element that `getitem` takes out shares the spec object of its sequence, and a write-back that of the
    placeholder it writes: one spec object is one piece of memory. Parameters, constants and buffers that nothing
    mutates are `const`.

    An input of a branch or a loop's body has the spec of what it is given, one that is carried from round to round that
    of the loop's result, and a result of a branch that of the call's result: it is computed at its place.

    Requires: mutations are written back; strides of values are what kernels produce.
    """

    name = "propagate-specs"
    requires = ("dim-orders-agree", "symbols-lowered", "outputs-separate", "body-results-separate", "no-assertions")
    ensures = ("specs",)
    invalidates = ("bounded-shapes",)

    def edit(self, editor: GraphEditor) -> None:
        """Set the specs.

        Raises:
            ModelError: EK432, for each operator that calls other graphs.
        """
        reject_graph_calls(editor.program.graph_module)
        self._placeholders(editor)
        _set_specs(editor, {})

    def _placeholders(self, editor: GraphEditor) -> None:
        interface = ProgramInterface.of(editor.program)
        for node in interface.placeholders:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                spec = TensorSpec.from_tensor(value)
                spec.const = interface.is_stored(node) and not interface.is_written(node)
                _set_spec(editor, node, spec)


def _set_specs(editor: GraphEditor, given: Destinations) -> None:
    """Set the specs of all calls of a graph, and of the bodies of its control flow.

    Args:
        editor: Editor of the graph, whose inputs have their specs.
        given: Specs that are to be those of certain nodes.
    """
    for node in editor.graph.nodes:
        if node.op != "call_function":
            continue
        shared = _shared_spec(node)
        if shared is not None:
            if node.meta.get("spec") is not shared:
                editor.set_meta(node, "spec", shared)
        elif not _set_given(editor, node, given):
            _set_spec(editor, node, _own_spec(node))
        _mark_rows(node)
    for call, body in called_bodies(editor):
        share_input_specs(call, body)
        _set_row_specs(call, body)
        _set_specs(body, destinations(call, body))


def _set_given(editor: GraphEditor, node: Node, given: Destinations) -> bool:
    """Set the spec of a node of whose memory the graph around it has a part; return whether it is such a node."""
    if (node, None) in given:
        editor.set_meta(node, "spec", given[node, None])
        return True
    own = _own_spec(node) if given else None
    if not isinstance(own, list) or not any((node, place) in given for place in range(len(own))):
        return False
    editor.set_meta(node, "spec", [given.get((node, place), spec) for place, spec in enumerate(own)])
    return True


def _mark_rows(node: Node) -> None:
    """Let the results of a loop that grow row by row have sizes that change, as far as the runtime can tell."""
    call = control_flow_call(node)
    if call is None or call.kind not in (MAP, SCAN):
        return
    for spec in node.meta["spec"][len(call.carried) :]:
        spec.shape_dynamism = max(spec.shape_dynamism, TensorShapeDynamism.DYNAMIC_BOUND)


def _set_row_specs(call: ControlFlowCall, body: SubgraphEditor) -> None:
    inputs = body.graph.find_nodes(op="placeholder")
    for node in inputs[len(call.carried) : len(call.carried) + len(call.sliced)]:
        _set_spec(body, node, TensorSpec.from_tensor(node.meta["val"]))


def _set_spec(editor: GraphEditor, node: Node, spec: Any) -> None:
    """Set a spec unless the node has one that says the same: who holds on to that one must not lose it."""
    if spec is not None and not _says_the_same(node.meta.get("spec"), spec):
        editor.set_meta(node, "spec", spec)


def _says_the_same(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_says_the_same, old, new))
    if not isinstance(old, TensorSpec) or not isinstance(new, TensorSpec):
        return old is new
    return (old.dtype, old.dim_order, old.const) == (new.dtype, new.dim_order, new.const) and same_argument(
        tuple(old.shape), tuple(new.shape)
    )


def _shared_spec(node: Node) -> Any:
    """Return the spec of another node whose memory a node's value lies in, or None."""
    if node.target is operator.getitem:
        source, index = node.args[0], cast(int, node.args[1])
        specs = source.meta.get("spec")  # type: ignore[union-attr]
        return specs[index] if isinstance(specs, list) else None
    if writes_in_place(node.target):
        return node.args[0].meta["spec"]  # type: ignore[union-attr]
    return None


def _own_spec(node: Node) -> Any:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return TensorSpec.from_tensor(value)
    if isinstance(value, list | tuple) and any(isinstance(one, torch.Tensor) for one in value):
        return [TensorSpec.from_tensor(one) if isinstance(one, torch.Tensor) else None for one in value]
    return None


_ATEN = torch.ops.aten

# Results that hold the elements of the first argument in row-major order, whatever the other arguments are.
_RESHAPES = frozenset(
    {
        _ATEN.view_copy.default,
        _ATEN._unsafe_view.default,
        _ATEN.unsqueeze_copy.default,
        _ATEN.squeeze_copy.default,
        _ATEN.squeeze_copy.dim,
        _ATEN.squeeze_copy.dims,
    }
)

# Results that are the first argument if they have its shape, dtype and dim order.
_COPIES = _RESHAPES | {
    _ATEN.alias_copy.default,
    _ATEN.detach_copy.default,
    _ATEN.lift_fresh_copy.default,
    _ATEN.clone.default,
    _ATEN._to_copy.default,
    _ATEN.expand_copy.default,
    _ATEN.repeat.default,
    _ATEN.slice_copy.Tensor,
    ops.edge.dim_order_ops._clone_dim_order.default._op,
    ops.edge.dim_order_ops._to_dim_order_copy.default._op,
}


@dataclass(eq=False, kw_only=True)
class EliminateViews(Pass):
    """Let a copy that leaves all elements where they are share the memory of its source.

    A copy in the same shape gives way to its source. One in another shape becomes `exirkit.ir.view`: its spec has the
    spec that owns the memory as `storage_base`. With static shapes in planned memory, or of a constant, no
    instruction is left; of others, one that sets sizes and address.

    A copy stays a copy where sharing could be seen: if its source is a buffer or input that is written back later, if
    it is an output whose place the caller names, if it is an output whose memory would be that of an input or of
    another output.

    Args:
        alloc_graph_output: Outputs are planned.

    Requires: specs with bounded sizes.
    """

    name = "eliminate-views"
    requires = ("specs", "bounded-shapes", "outputs-separate")
    invalidates = ()

    alloc_graph_output: bool = True

    def edit(self, editor: GraphEditor) -> None:
        """Eliminate the copies, in graph order, so that the source of each is resolved before it; and of bodies."""
        self._eliminate(editor)
        for call, body in called_bodies(editor):
            # The graph around it may have given the inputs other specs.
            share_input_specs(call, body)
            with body.transaction(self.name, records_effect=False):
                self.edit(body)

    def _eliminate(self, editor: GraphEditor) -> None:
        owners = _Owners(editor, self.alloc_graph_output)
        candidates: list[Node] = []
        for node in list(editor.graph.nodes):
            if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
                continue
            op = underlying(node.target)
            source = node.args[0]
            if op not in _COPIES and not has_trait(op, "permute"):
                continue
            if not isinstance(source.meta.get("spec"), TensorSpec) or not owners.may_share(node, source):
                continue
            if op in _COPIES and _is_same(source, node):
                owners.give_way(node, source)
                editor.replace(node, source)
                candidates.append(node)
            elif _is_reshaping(op, source, node) and (sizes := _sizes(op, node)) is not None:
                root = owners.share(node, source)
                editor.retarget(node, view, (root, sizes), {}, val=node.meta["val"])
                editor.set_meta(node, "spec", _view_spec(node.meta["spec"], root.meta["spec"]))
                candidates.append(source)
        for node in reversed(candidates):
            if not node._erased:
                editor.erase_unused(node)


class _Owners:
    """Which node owns the memory of each, and which memory may be shared."""

    def __init__(self, editor: GraphEditor, alloc_graph_output: bool) -> None:
        views = editor.graph.find_nodes(op="call_function", target=view)
        self._roots: dict[Node, Node] = {node: node.all_input_nodes[0] for node in views}
        # Results of a body are written where the graph around it wants them, or copied before the next round.
        is_body = isinstance(editor, SubgraphEditor)
        interface = ProgramInterface(editor.graph, None if is_body else editor.program.graph_signature)
        self._written = interface.written
        self._inputs = set(interface.user_inputs)
        self._outputs = {result for result in interface.user_results if isinstance(result, Node)}
        # Owners of the memory of outputs, grown as copies that are outputs give up theirs.
        self._returned = {self.root(node) for node in self._outputs}
        self._may_return_shared = alloc_graph_output and not is_body

    def root(self, node: Node) -> Node:
        """Return the node whose memory a node's value lies in."""
        return self._roots.get(node, node)

    def may_share(self, node: Node, source: Node) -> bool:
        """Return whether `node` may lie in the memory of `source`."""
        root = self.root(source)
        # What the runtime finds memory for may lie elsewhere by the time when the view is used.
        if root in self._written or root.meta["spec"].is_dynamic_unbound_tensor:
            return False
        if node not in self._outputs:
            return True
        return self._may_return_shared and root not in self._inputs and root not in self._returned

    def share(self, node: Node, source: Node) -> Node:
        """Record that `node` lies in the memory of `source`, and return the owner of that memory."""
        root = self.root(source)
        self._roots[node] = root
        if node in self._outputs:
            self._returned.add(root)
        return root

    def give_way(self, node: Node, source: Node) -> None:
        """Record that `source` replaces `node`, also as an output."""
        if node in self._outputs:
            self._outputs.add(source)
            self._returned.add(self.root(source))


def _is_same(source: Node, node: Node) -> bool:
    before, after = source.meta["val"], node.meta["val"]
    old, new = source.meta["spec"], node.meta["spec"]
    return (
        before.dtype == after.dtype
        and same_argument(tuple(before.shape), tuple(after.shape))
        and old.dim_order == new.dim_order
    )


def _memory_order(spec: TensorSpec) -> list[int]:
    """Return the dims in the order of memory, without those of size 1, whose place means nothing."""
    return [dim for dim in spec.dim_order if spec.shape[dim] != 1 or not spec.is_static_shape_tensor]


def _is_reshaping(op: Any, source: Node, node: Node) -> bool:
    old, new = source.meta["spec"], node.meta["spec"]
    if old.dtype != new.dtype or old.nbytes() != new.nbytes() or not (_is_row_major(old) and _is_row_major(new)):
        return False
    if has_trait(op, "permute"):
        return _moves_only_ones(op, node, old)
    # Copies in the same shape get here if they change the dim order of dims of size 1 only.
    return op in _RESHAPES or same_argument(tuple(source.meta["val"].shape), tuple(node.meta["val"].shape))


def _is_row_major(spec: TensorSpec) -> bool:
    order = _memory_order(spec)
    return order == sorted(order)


def _moves_only_ones(op: Any, node: Node, source: TensorSpec) -> bool:
    order = _permutation(op, node, len(source.shape))
    # A dynamic dim can have any size, also where its bound is 1.
    symbolic = [not isinstance(size, int) for size in node.args[0].meta["val"].shape]  # type: ignore[union-attr]
    kept = [dim for dim in order if source.shape[dim] != 1 or symbolic[dim]]
    return kept == sorted(kept)


def _permutation(op: Any, node: Node, rank: int) -> list[int]:
    order = list(range(rank))
    if op is _ATEN.permute_copy.default:
        dims: Any = node.args[1]
        return [dim % rank for dim in dims]
    if op is _ATEN.t_copy.default:
        return order[::-1]
    first, second = (int(dim) % rank for dim in node.args[1:3])  # type: ignore[arg-type]
    order[first], order[second] = order[second], order[first]
    return order


def _sizes(op: Any, node: Node) -> list[Any] | None:
    """Return the size argument of the view: integers, nodes, or one -1; None if there is no way to state it."""
    shape = [_as_int(size) for size in node.meta["val"].shape]
    symbolic = [dim for dim, size in enumerate(shape) if size is None]
    if not symbolic:
        return shape
    if op is _ATEN.view_copy.default:
        return list(node.args[1])  # type: ignore[arg-type]
    if len(symbolic) == 1 and math.prod(size for size in shape if size is not None) > 0:
        return [-1 if size is None else size for size in shape]
    return None


def _as_int(size: Any) -> int | None:
    return size if isinstance(size, int) else None


def _view_spec(spec: TensorSpec, base: TensorSpec) -> TensorSpec:
    result = copy.copy(spec)
    # What a body is given may be a view itself.
    while base.storage_base is not None:
        base = base.storage_base
    result.storage_base = base
    result.const = base.const
    return result

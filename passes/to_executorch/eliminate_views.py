"""Copies that only rename the shape of their source share its memory instead."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from exirkit.ir import GraphEditor, SubgraphEditor, TensorSpec, ops, results_of_graph, same_argument, underlying, view
from exirkit.passes.contract import Pass

from .propagate_specs import called_bodies, share_input_specs
from .separate_memory import mutated_outputs

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

# Results that are a reshaping if only dims of size 1 change their place among the others.
_PERMUTATIONS = frozenset({_ATEN.permute_copy.default, _ATEN.transpose_copy.int, _ATEN.t_copy.default})


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
            if op not in _COPIES and op not in _PERMUTATIONS:
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
        signature = editor.program.graph_signature
        placeholders = editor.graph.find_nodes(op="placeholder")
        views = editor.graph.find_nodes(op="call_function", target=view)
        self._roots: dict[Node, Node] = {node: node.all_input_nodes[0] for node in views}
        self._written = set(mutated_outputs(editor.program).values())
        # Results of a body are written where the graph around it wants them, or copied before the next round.
        is_body = isinstance(editor, SubgraphEditor)
        self._inputs = {
            node
            for node, spec in zip(placeholders, signature.input_specs, strict=not is_body)
            if spec.kind is InputKind.USER_INPUT
        }
        results = results_of_graph(editor.program.graph_module)
        specs = [None] * len(results) if is_body else signature.output_specs
        self._outputs = {
            node
            for node, spec in zip(results, specs, strict=True)
            if isinstance(node, Node) and (spec is None or spec.kind is OutputKind.USER_OUTPUT)
        }
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
    if op in _PERMUTATIONS:
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

"""The layouts that a program promises of its results, stated as calls that outlive all decompositions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from exirkit.ir import (
    GraphEditor,
    OpOverload,
    ProgramInterface,
    control_flow_call,
    dim_order_from_stride,
    has_unbacked_symbols,
    infer_value,
    results_of_graph,
    same_argument,
    stride_from_dim_order,
)
from exirkit.passes.contract import BROKEN_BY_EDITS, Pass

_ROW_MAJOR, _CHANNELS_LAST = (0, 1, 2, 3), (0, 2, 3, 1)
_FORMATS: dict[tuple[int, ...], torch.memory_format] = {
    _ROW_MAJOR: torch.contiguous_format,
    _CHANNELS_LAST: torch.channels_last,
}
_COPY = torch.ops.aten._to_copy.default
# They show the argument, or make a copy, whose layout they are told.
_TOLD = (torch.ops.aten.contiguous, torch.ops.aten.to)


class StateResultLayouts(Pass):
    """Copy each result of four dims that may be channels last into the layout that torch has noted of it.

    Operators keep layouts that what they are made of does not: copies for views are row-major, and so is what is
    computed from them. Where a result lies as was stated in the end, `remove-noops` takes the copy away again.
    Nothing is stated of a result that owes its layout to a view, such as a permutation: as a copy it is row-major.

    Before: `%max = adaptive_max_pool2d(%x, [2, 2])` of a channels-last `%x`; `return (%max,)`
    After: `%max = ...`; `%copy = _to_copy(%max, memory_format=channels_last)`; `return (%copy,)`
    """

    name = "state-result-layouts"
    # Where operators of libraries are decomposed, what follows turns the copies into operators of Edge.
    invalidates = ("edge-operators", *BROKEN_BY_EDITS)

    def edit(self, editor: GraphEditor) -> None:
        """Insert the copies; results that are inputs lie as the caller has laid them."""
        interface = ProgramInterface.of(editor.program)
        users = {one for one in interface.user_results if isinstance(one, Node)}
        noted = {one: order for one in users if (order := _noted_order(one)) is not None}
        if not noted:
            return
        cone = _computed_for(noted)
        if not any(_is_channels_last(one) for one in cone):
            return
        others = _with_copies_for_views(editor, cone)
        copies: dict[Node, Node] = {}
        output = editor.graph.output_node()
        # In the order of the graph, so that names do not depend on the order of a set.
        for one in (node for node in editor.graph.nodes if node in noted):
            if one not in others or _order(others[one]) == noted[one]:
                form = {"memory_format": _FORMATS[noted[one]]}
                copies[one] = editor.call(_COPY, (one,), form, before=output, origins=one, val=one.meta["val"])
        results = results_of_graph(editor.program.graph_module)
        stated = [
            copies.get(value, value) if place in _places_of_users(interface) else value
            for place, value in enumerate(results)
        ]
        editor.rewire(output, (tuple(stated),))


def _places_of_users(interface: ProgramInterface) -> set[int]:
    """Return the places of results that go to the user, and not into a buffer or an input."""
    mutated = {id(spec) for _, _, spec in interface.mutations}
    return {place for place, (_, spec) in enumerate(interface.results) if id(spec) not in mutated}


def _order(value: Any) -> tuple[int, ...] | None:
    """Return the dim order of a tensor of four dims; None for anything else, and where elements do not lie densely."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.dim() != len(_ROW_MAJOR):
        return None
    order = tuple(dim_order_from_stride(value.stride(), value.shape))
    return order if all(same_argument(*one) for one in _strides(value, order)) else None


def _strides(value: torch.Tensor, order: Sequence[int]) -> list[tuple[Any, Any]]:
    """Return the strides that a tensor has, and would have in a dim order, where its size is not 1."""
    dense = stride_from_dim_order(value.shape, order)
    pairs = zip(value.shape, value.stride(), dense, strict=True)
    return [(stride, other) for size, stride, other in pairs if not same_argument(size, 1)]


def _noted_order(result: Node) -> tuple[int, ...] | None:
    """Return the dim order of what a program computes, if runtimes have it."""
    order = _order(result.meta.get("val")) if result.op == "call_function" else None
    return order if order in _FORMATS else None


def _is_channels_last(node: Node) -> bool:
    return _order(node.meta.get("val")) == _CHANNELS_LAST


def _computed_for(results: Iterable[Node]) -> set[Node]:
    """Return the results and all that they are computed from."""
    found: set[Node] = set()
    ahead = list(results)
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += node.all_input_nodes
    return found


def _with_copies_for_views(editor: GraphEditor, cone: set[Node]) -> dict[Node, Any]:
    """Return the values that lie otherwise once views are row-major copies; None where that is not known."""
    others: dict[Node, Any] = {}
    for node in editor.graph.nodes:
        if node not in cone or node.op != "call_function":
            continue
        kept = _shown_as_it_is(node)
        if kept is not None:
            if kept in others:
                others[node] = others[kept]
        elif _is_view(node):
            value = _row_major(editor, node.meta.get("val"))
            if value is not node.meta.get("val"):
                others[node] = value
        elif not others.keys().isdisjoint(node.all_input_nodes) and control_flow_call(node) is None:
            others[node] = _inferred(editor, node, others)
    return others


def _is_view(node: Node) -> bool:
    op = node.target
    if not isinstance(op, OpOverload) or op.overloadpacket in _TOLD:
        return False
    shown = [one.alias_info for one in op._schema.returns]
    return any(one is not None and not one.is_write for one in shown)


def _shown_as_it_is(node: Node) -> Node | None:
    """Return the tensor that a call shows as a whole."""
    source = node.args[0] if node.args else None
    value, shown = node.meta.get("val"), source.meta.get("val") if isinstance(source, Node) else None
    if not (isinstance(source, Node) and isinstance(value, torch.Tensor) and isinstance(shown, torch.Tensor)):
        return None
    op = node.target
    may_show = isinstance(op, OpOverload) and any(one.alias_info is not None for one in op._schema.returns)
    if not may_show or value.dtype is not shown.dtype or value.layout is not torch.strided:
        return None
    left, right = ((tuple(one.shape), tuple(one.stride())) for one in (value, shown))
    return source if same_argument(left, right) else None


def _row_major(editor: GraphEditor, value: Any) -> Any:
    if isinstance(value, list | tuple):
        made = [_row_major(editor, one) for one in value]
        return value if all(left is right for left, right in zip(made, value, strict=True)) else made
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    strides = stride_from_dim_order(value.shape, range(value.dim()))
    if same_argument(tuple(value.stride()), tuple(strides)):
        return value
    with editor.fake_mode:
        return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)


def _inferred(editor: GraphEditor, node: Node, others: dict[Node, Any]) -> Any:
    """Return the value of a call on other values; None where it is not known."""
    if has_unbacked_symbols(node) or any(others.get(one, one) is None for one in node.all_input_nodes):
        return None
    args, kwargs = map_aggregate(
        (node.args, dict(node.kwargs)), lambda one: others.get(one, one) if isinstance(one, Node) else one
    )
    try:
        return infer_value(editor.fake_mode, node.target, args, kwargs)
    except Exception:  # What a decomposition or the view after it makes of another layout is not known.
        return None

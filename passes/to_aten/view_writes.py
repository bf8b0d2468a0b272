"""What a value holds after a write to a view of it, computed without a write."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.operator_schemas import normalize_function

from exirkit.ir import GraphEditor

from .whole_graph_needed import WholeGraphNeededError


Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def source_after_write(editor: GraphEditor, view: Node, source: Node, value: Node, before: Node) -> Node:
    """Return what the source of a view holds when the view has been overwritten.

    Args:
        editor: Editor of the graph.
        view: The view: a call on the source, or an item of one.
        source: What the source held.
        value: What the view shows.
        before: Node in front of which the calls are placed.

    Raises:
        WholeGraphNeededError: EK426, it cannot be said for this kind of view.
    """
    if view.target is operator.getitem:
        # The list of views is nothing of its own: it stands for the source.
        return _after_write_to_item(editor, view, source, value, before)
    if _is_list(view) or view.target in _SAME or is_in_place(view):
        return value
    if view.target in _RESHAPED:
        return editor.call(aten.reshape_as.default, (value, source), before=before, origins=view)
    make = _SCATTERED.get(view.target)
    if make is None:
        raise WholeGraphNeededError(f"a result of {view.target} is written to", view)
    target, args, kwargs = make(_arguments(view), source, value)
    return editor.call(target, args, kwargs, before=before, origins=view)


def is_in_place(node: Node) -> bool:
    """Tell whether a call writes to an argument."""
    return node.op == "call_function" and isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _is_list(view: Node) -> bool:
    return isinstance(view.meta.get("val"), list | tuple)


def _arguments(view: Node) -> dict[str, Any]:
    """Return the arguments of a view by name, the defaults included."""
    named = normalize_function(view.target, view.args, dict(view.kwargs), normalize_to_only_use_kwargs=True)  # type: ignore[arg-type]
    if named is None:
        raise WholeGraphNeededError(f"{view.target} is called in an unusual way", view)
    return dict(named.kwargs)


def _after_write_to_item(editor: GraphEditor, item: Node, source: Node, value: Node, before: Node) -> Node:
    views: Any = item.args[0]
    index: Any = item.args[1]
    given, sizes = _arguments(views), [one.shape for one in views.meta["val"]]
    dim = given.get("dim", 0)
    if views.target is aten.unbind.int:
        args: tuple[Any, ...] = (source, value, dim, index)
        return editor.call(aten.select_scatter.default, args, before=before, origins=item)
    if views.target not in (aten.split.Tensor, aten.split_with_sizes.default):
        raise WholeGraphNeededError(f"a result of {views.target} is written to", item)
    lengths = [shape[dim] for shape in sizes]
    if not all(isinstance(length, int) for length in lengths):
        raise WholeGraphNeededError(f"a result of {views.target}, whose size varies, is written to", item)
    start = sum(lengths[:index])
    args = (source, value, dim, start, start + lengths[index])
    return editor.call(aten.slice_scatter.default, args, before=before, origins=item)


def _turned_back(given: Mapping[str, Any], _source: Node, value: Node) -> Call:
    dims = [dim % len(given["dims"]) for dim in given["dims"]]
    return aten.permute.default, (value, [dims.index(dim) for dim in range(len(dims))]), {}


def _transposed(given: Mapping[str, Any], _source: Node, value: Node) -> Call:
    return aten.transpose.int, (value, given["dim0"], given["dim1"]), {}


def _flipped(_given: Mapping[str, Any], _source: Node, value: Node) -> Call:
    return aten.t.default, (value,), {}


def _sliced(given: Mapping[str, Any], source: Node, value: Node) -> Call:
    where = {name: given[name] for name in ("dim", "start", "end", "step") if name in given}
    return aten.slice_scatter.default, (source, value), where


def _selected(given: Mapping[str, Any], source: Node, value: Node) -> Call:
    return aten.select_scatter.default, (source, value, given["dim"], given["index"]), {}


def _diagonal(given: Mapping[str, Any], source: Node, value: Node) -> Call:
    where = {name: given[name] for name in ("offset", "dim1", "dim2") if name in given}
    return aten.diagonal_scatter.default, (source, value), where


# Views that show all of their source, element by element.
_SAME = frozenset({aten.alias.default, aten.detach.default, aten.lift_fresh.default})

# Views of all elements in the order of the source: of `expand`, torch refuses writes where it repeats any.
_RESHAPED = frozenset(
    {
        aten.view.default,
        aten.expand.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.unsqueeze.default,
        aten._unsafe_view.default,
    }
)

_SCATTERED: Mapping[Any, Callable[[Mapping[str, Any], Node, Node], Call]] = {
    aten.permute.default: _turned_back,
    aten.transpose.int: _transposed,
    aten.t.default: _flipped,
    aten.slice.Tensor: _sliced,
    aten.select.int: _selected,
    aten.diagonal.default: _diagonal,
}

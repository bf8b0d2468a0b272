"""What views show once something was written to their memory."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.operator_schemas import normalize_function

from exirkit.ir import (
    GraphEditor,
    ModelError,
    OpOverload,
    has_trait,
)

from .operator_recorder import WholeGraphNeededError

aten = torch.ops.aten


@dataclass(slots=True)
class _Shown:
    """What an alias shows: the node that computes it after so many writes to its family."""

    node: Node
    writes: int


@dataclass(slots=True)
class AliasFamilies:
    """Values by the memory that they show.

    Of each piece of memory one node is the base, and the others are views, of it or of views. After a write to any of
    them, what the base holds is computed, and a view is shown again when it is used next.

    Attributes:
        editor: Editor of the graph.
    """

    editor: GraphEditor
    _sealed: dict[Node, ModelError] = field(default_factory=dict)
    _source: dict[Node, Node] = field(default_factory=dict)
    _writes: dict[Node, int] = field(default_factory=dict)
    _shown: dict[Node, _Shown] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        """Take in a node that stands behind everything that is known, before what it uses is replaced."""
        source = _source_of(node)
        if source is not None:
            self.show(node, source)
        else:
            self._shown[node] = _Shown(node, self._writes.get(node, 0))

    def show(self, node: Node, source: Node) -> None:
        """Take in a view, computed from what its source shows now."""
        self._source[node] = source
        self._shown[node] = _Shown(node, self._writes.get(self.base(node), 0))

    def base(self, node: Node) -> Node:
        """Return the node whose memory this one shows."""
        while node in self._source:
            node = self._source[node]
        return node

    def is_stale(self, node: Node) -> bool:
        """Return whether memory that a node shows was written to after it was computed."""
        return node in self._shown and self._at(node, self._writes.get(self.base(node), 0)) is not node

    def now(self, node: Node, before: Node) -> Node:
        """Return a node in front of `before` that computes what `node` shows after the writes so far."""
        writes = self._writes.get(self.base(node), 0)
        known = self._at(node, writes)
        if known is not None:
            return known
        source = self.now(self._source[node], before)
        shown = _shown_again(self.editor, node, source, before)
        self._shown[node] = _Shown(shown, writes)
        return shown

    def _at(self, node: Node, writes: int) -> Node | None:
        shown = self._shown.get(node)
        return shown.node if shown is not None and shown.writes == writes else None

    def write(self, node: Node, value: Node, before: Node) -> None:
        """Note that what `node` shows is overwritten; bring that into its base.

        Args:
            node: What is written to.
            value: What it shows from now on, of its shape and dtype.
            before: Node in front of which the value of the base is computed.

        Raises:
            WholeGraphNeededError: EK426, it cannot be said what the base holds then.
            ModelError: What the memory was sealed with.
        """
        rejection = self._sealed.get(self.base(node))
        if rejection is not None:
            raise rejection
        chain = [node]
        values = [value]
        while (shown := chain[-1]) in self._source:
            source = self._source[shown]
            # A list of views is nothing of its own: what its items show is memory of what it was made of.
            old = self.now(self._source[source] if shown.target is operator.getitem else source, before)
            values.append(source_after_write(self.editor, shown, old, values[-1], before))
            chain.append(source)
        base = chain[-1]
        writes = self._writes[base] = self._writes.get(base, 0) + 1
        self._keep_others(chain, writes)
        for member, new in zip(chain, values, strict=True):
            if not isinstance(member.meta.get("val"), list | tuple):
                self._shown[member] = _Shown(new, writes)

    def _keep_others(self, chain: Sequence[Node], writes: int) -> None:
        """Let what shows other items of a list of views than the one that is written to stay as it is."""
        written = {of: one for one, of in itertools.pairwise(chain) if one.target is operator.getitem}
        for member, shown in list(self._shown.items()) if written else ():
            item = member
            while item in self._source and self._source[item] not in written:
                item = self._source[item]
            part = written.get(self._source.get(item, item))
            if part is not None and item.args[1] != part.args[1] and shown.writes == writes - 1:
                self._shown[member] = _Shown(shown.node, writes)

    def seal(self, node: Node, rejection: ModelError) -> None:
        """Have every later write to the memory of a node, which may not have been taken in yet, rejected."""
        self._sealed.setdefault(self.base(node), rejection)

    def rename(self, node: Node, target: Node) -> None:
        """Let a node be another name for `target`, as the result of a write is for what was written to."""
        self._source[node] = target
        writes = self._writes.get(self.base(target), 0)
        self._shown[node] = _Shown(self.now(target, node), writes)

    def written(self) -> dict[Node, Node]:
        """Return the bases that were written to, with what they hold in the end."""
        return {base: self._shown[base].node for base in self._writes}


def _source_of(node: Node) -> Node | None:
    """Return the value whose memory a call may show."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    first = node.args[0]
    if node.target is operator.getitem:
        # Of what returns a list of views each item is one; of others each item is a value of its own.
        return first if _source_of(first) is not None else None
    if not isinstance(node.target, OpOverload):
        return None
    arguments = node.target._schema.arguments
    return first if arguments and arguments[0].alias_info is not None else None


def _shown_again(editor: GraphEditor, node: Node, source: Node, before: Node) -> Node:
    """Compute a view again, from what the value that it shows holds now."""
    target, args = node.target, (source, *node.args[1:])
    if target is aten.as_strided.default:
        raise WholeGraphNeededError("what as_strided shows of a value that was written to depends on its strides", node)
    if is_in_place(node):
        # Another name for its argument.
        return source
    if target is aten.view.default:
        # What was written may lie in memory in another order.
        target = aten.reshape.default
    return editor.call(cast(OpOverload, target), args, node.kwargs, before=before, origins=node)


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
    if _is_list(view) or has_trait(view.target, "identity") or is_in_place(view):
        return value
    if view.target in _RESHAPED:
        return editor.call(aten.reshape_as.default, (value, source), before=before, origins=view)
    make = _SCATTERED.get(view.target)
    if make is None:
        raise WholeGraphNeededError(f"a result of {view.target} is written to", view)
    target, args, kwargs = make(_arguments(view), source, value)
    return editor.call(target, args, kwargs, before=before, origins=view)


def is_in_place(node: Node) -> bool:
    """Return whether a call writes to an argument."""
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


# Views of all elements in the order of the source: of `expand`, torch rejects writes where it repeats any.
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

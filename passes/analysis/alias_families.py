"""Which values show the memory of which others, and what each of them shows after writes, in a functional graph."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import cast

import torch
from torch._ops import OpOverload
from torch.fx import Node

from exirkit.ir import GraphEditor, ModelError
from exirkit.passes.to_aten.view_writes import is_in_place, source_after_write
from exirkit.passes.to_aten.whole_graph_needed import WholeGraphNeededError

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
    them, what the base holds is computed, and a view is shown anew when it is used next.

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
            self._source[node] = source
        self._shown[node] = _Shown(node, self._writes.get(self.base(node), 0))

    def base(self, node: Node) -> Node:
        """Return the node whose memory this one shows."""
        while node in self._source:
            node = self._source[node]
        return node

    def is_stale(self, node: Node) -> bool:
        """Tell whether memory that a node shows was written to after it was computed."""
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
        refusal = self._sealed.get(self.base(node))
        if refusal is not None:
            raise refusal
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
        for member, new in zip(chain, values, strict=True):
            if not isinstance(member.meta.get("val"), list | tuple):
                self._shown[member] = _Shown(new, writes)

    def seal(self, node: Node, refusal: ModelError) -> None:
        """Have every later write to the memory of a node, which may not have been taken in yet, refused."""
        self._sealed.setdefault(self.base(node), refusal)

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
    """Compute a view anew, from what the value that it shows holds now."""
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

"""Mutations become writes: the new value of each mutated buffer or input is copied into it when all else is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from exirkit.ir import GraphEditor
from exirkit.passes.contract import Pass

from .inserted_copies import insert_clone

_MUTATIONS = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION})


@dataclass(eq=False, kw_only=True)
class WriteBackMutations(Pass):
    """Write the new value of each mutated buffer, parameter or input into it at the end of the graph.

    All computation reads old values, since every write stands behind it. What is left to go wrong is a write-back or
    an output that is itself the old value of another mutated placeholder. Write-backs are put in an order in which
    each reads its source before that is overwritten; where they form a circle (two buffers change places) or where a
    user output is an old value, a copy of the old value is made first: one for each circle, and one for each returned
    old value.

    Args:
        skip_dim_order: Introduce no operators of `dim_order_ops`.

    Before: `return (%b_second, %b_first)` as the new values of `b_first` and `b_second`
    After: `%clone = _clone_dim_order(%b_first)`; `%copy_ = copy_(%b_first, %b_second)`;
    `%copy__1 = copy_(%b_second, %clone)`; `return (%copy_, %copy__1)`
    """

    name = "write-back-mutations"
    requires = ("edge-operators", "functional")
    ensures = ("mutations-written-back",)
    invalidates = ("edge-operators", "functional", "dim-orders-agree", "specs", "bounded-shapes")

    skip_dim_order: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Insert the copies and the writes, and make the writes the outputs they stand for."""
        output = editor.graph.output_node()
        results = list(output.args[0])  # type: ignore[arg-type]
        positions = mutated_outputs(editor.program)
        sources = {
            owner: results[index] for index, owner in positions.items() if not _is_written(owner, results[index])
        }
        if not sources:
            return
        saved = _Saved(editor, output, self.skip_dim_order)
        for index, value in enumerate(results):
            if index not in positions and value in sources:
                results[index] = saved.value_of(value)
        writes: dict[Node, Node] = {}
        for owner in _order(sources, saved):
            writes[owner] = _write(editor, owner, saved.known.get(sources[owner], sources[owner]), output)
        for index, owner in positions.items():
            results[index] = writes.get(owner, results[index])
        editor.rewire(output, (tuple(results),))


def mutated_outputs(program: ExportedProgram) -> dict[int, Node]:
    """Return the placeholders that a program mutates, by the position of the output that is the new value."""
    signature = program.graph_signature
    placeholders = program.graph_module.graph.find_nodes(op="placeholder")
    by_target: dict[str | None, Node] = {}
    by_name: dict[str, Node] = {}
    for spec, node in zip(signature.input_specs, placeholders, strict=True):
        by_name[node.name] = node
        if spec.target is not None:
            by_target.setdefault(spec.target, node)
    found: dict[int, Node] = {}
    for index, result in enumerate(signature.output_specs):
        if result.kind in _MUTATIONS:
            is_input = result.kind is OutputKind.USER_INPUT_MUTATION
            found[index] = by_name[str(result.target)] if is_input else by_target[result.target]
    return found


def _is_written(owner: Node, value: Node) -> bool:
    """Tell whether a value is in its place already: it never left, or was written back before."""
    return value is owner or (value.target is torch.ops.aten.copy_.default and value.args[0] is owner)


class _Saved:
    """Copies of old values, made on demand and at most once each."""

    def __init__(self, editor: GraphEditor, output: Node, skips: bool) -> None:
        self.known: dict[Node, Node] = {}
        self._editor = editor
        self._skips = skips
        # All copies are made before the first write.
        self._before = output

    def value_of(self, owner: Node) -> Node:
        """Return a copy of what `owner` holds before any write."""
        if owner not in self.known:
            clone = insert_clone(self._editor, owner, self._before, skip_dim_order=self._skips)
            self.known[owner] = clone
        return self.known[owner]


def _order(sources: Mapping[Node, Node], saved: _Saved) -> list[Node]:
    """Return the owners in an order in which no write precedes a read of the value it destroys.

    Each owner has one source, so the reads among owners form trees that end in at most one circle each.
    """
    unread = dict.fromkeys(sources, 0)
    for source in sources.values():
        if source in unread and source not in saved.known:
            unread[source] += 1
    ordered: list[Node] = []
    ready = [owner for owner, readers in unread.items() if not readers]
    remaining = dict.fromkeys(sources)
    for start in list(sources):
        while ready:
            owner = ready.pop()
            ordered.append(owner)
            del remaining[owner]
            source = sources[owner]
            if source in remaining and source not in saved.known:
                unread[source] -= 1
                if not unread[source]:
                    ready.append(source)
        if start in remaining:
            # Only circles are left, and this owner is on one: with its old value saved, it can be written at once.
            saved.value_of(start)
            ready.append(start)
    return ordered


def _write(editor: GraphEditor, owner: Node, value: Node, output: Node) -> Node:
    copy = torch.ops.aten.copy_.default
    return editor.call(copy, (owner, value), before=output, origins=value, val=owner.meta["val"])

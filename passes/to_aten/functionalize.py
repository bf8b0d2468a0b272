"""Replace writes by values that are new."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import (
    GraphEditor,
    OpOverload,
    SubgraphEditor,
    control_flow_call,
    has_trait,
    same_value,
    subgraph_editors,
    value_of,
)
from exirkit.passes.contract import Pass

from .alias_families import AliasFamilies, is_in_place
from .operator_recorder import WholeGraphNeededError, functional_variant
from .written_operands import hand_out_writes, reject_writes_to_carried

aten = torch.ops.aten


class Functionalize(Pass):
    """Replace in-place operators by their functional variants, and let later uses see what was written.

    A write to a view becomes a new value of what it is a view of; other views of that are computed again when they are
    used next. What an input or a buffer holds in the end becomes a mutation of the program. What a branch or the body
    of a loop writes to one of its operands becomes one more result of the call.

    A value whose shape is changed in place is a view of what it was from there on.

    Requires: operators that return their argument, or a view of it, say so in their schema, as core operators do.
    Ensures: no operator writes to its arguments.

    Before: `%relu_ = aten.relu_.default(%conv)`
    After: `%relu = aten.relu.default(%conv)`
    """

    name = "functionalize"
    requires = ("core-operators",)
    ensures = ("functional",)
    invalidates = ("core-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Replace in-place operators, in graph order.

        Raises:
            WholeGraphNeededError: EK426, an operator has no functional variant, or writes to an unusual view.
            ModelError: EK427, a body writes to what it is given in a way that cannot be a result.
        """
        if not _has_writes(editor):
            return
        written = _functionalize(editor)
        for owner in editor.graph.find_nodes(op="placeholder"):
            if owner in written:
                editor.add_mutation(owner, written[owner])


def _has_writes(editor: GraphEditor) -> bool:
    return any(map(is_in_place, editor.graph.nodes)) or any(map(_has_writes, subgraph_editors(editor)))


def _functionalize(editor: GraphEditor) -> dict[Node, Node]:
    """Make one graph and the bodies it runs functional; return what is written to that was not made here."""
    families = AliasFamilies(editor)
    replaced: list[Node] = []
    bodies = {body.program.graph_module: body for body in subgraph_editors(editor)}
    for node in list(editor.graph.nodes):
        if is_in_place(node):
            _replace(editor, node, families)
            replaced.append(node)
            continue
        # What a call shares memory with is told from what it was given, not from what that is replaced by.
        families.add(node)
        given = control_flow_call(node)
        operands = () if given is None else (*given.carried, *given.sliced, *given.shared)
        _take_present(editor, node, families)
        call = control_flow_call(node)
        if call is not None:
            writes = [_functionalize_body(bodies[module]) for module in call.subgraphs]
            reject_writes_to_carried(call, writes)
            hand_out_writes(editor, call, operands, [bodies[module] for module in call.subgraphs], writes, families)
    for node in reversed(replaced):
        editor.erase(node)
    return {base: value for base, value in families.written().items() if base.op in ("placeholder", "get_attr")}


def _functionalize_body(body: SubgraphEditor) -> dict[int, Node]:
    """Make a body functional; return what its inputs hold in the end, where that is something new, by their number."""
    if not _has_writes(body):
        return {}
    inputs = list(body.graph.find_nodes(op="placeholder"))
    with body.transaction(Functionalize.name, records_effect=False):
        return {inputs.index(owner): value for owner, value in _functionalize(body).items()}


_DROPOUTS = frozenset(
    {aten.dropout_.default, aten.feature_dropout_.default, aten.alpha_dropout_.default,
     aten.feature_alpha_dropout_.default}
)  # fmt: skip


def _replace(editor: GraphEditor, node: Node, families: AliasFamilies) -> None:
    """Compute what an in-place operator writes; its node stays, without users in the end."""
    written = node.args[0] if node.args else None
    op = cast(OpOverload, node.target)
    if not isinstance(written, Node):
        raise WholeGraphNeededError(f"{op} has no functional variant", node)
    if op in _DROPOUTS and node.args[1:] and (node.args[1] == 0 or node.args[2:] == (False,)):
        # Outside of training it is another name of the value.
        families.rename(node, written)
        return
    if torch.Tag.inplace_view in op.tags:
        if op is aten.detach_.default:
            families.rename(node, written)
        else:
            _reshape(editor, node, written, families)
        return
    args: Any
    args, kwargs = map_arg(
        (node.args, node.kwargs), lambda one: families.now(one, node) if families.is_stale(one) else one
    )
    if op is aten.copy_.default and same_value(args[0].meta["val"], value_of(args[1])):
        new: Node = _copied_whole(editor, node, args[1])
    elif (variant := functional_variant(op)) is not None:
        new = editor.call(variant, args, kwargs, before=node, origins=node)
    else:
        raise WholeGraphNeededError(f"{op} has no functional variant", node)
    new = _with_layout_of(editor, node, new, written.meta["val"])
    families.write(written, new, node)
    families.rename(node, written)


def _reshape(editor: GraphEditor, node: Node, written: Node, families: AliasFamilies) -> None:
    """Let a view stand for a value whose shape is changed in place, wherever the value is used from there on."""
    variant = functional_variant(cast(OpOverload, node.target))
    if variant is None or written.op != "call_function":
        raise WholeGraphNeededError(f"{node.target} changes the shape of what was not made here", node)
    later = [one for one in written.users if node < one]
    if any(one.op == "output" for one in later):
        # As a result of the program it is recorded with the shape that it had.
        raise WholeGraphNeededError(f"{node.target} changes the shape of a result", node)
    args = (families.now(written, node), *node.args[1:])
    shown = editor.call(variant, args, dict(node.kwargs), before=node, origins=node)
    families.show(shown, written)
    families.rename(node, shown)
    for user in later:
        named = map_arg((user.args, dict(user.kwargs)), lambda one: node if one is written else one)
        editor.rewire(user, *named)


def _copied_whole(editor: GraphEditor, node: Node, source: Node) -> Node:
    """Return what a tensor holds to which all of a source was copied: it, or a copy of it if a quantizer noted one."""
    if has_trait(source.target, "dequantize") and any(has_trait(user.target, "quantize") for user in node.users):
        return editor.call(aten.clone.default, (source,), before=node, origins=node)
    return source


def _with_layout_of(editor: GraphEditor, node: Node, value: Node, wanted: torch.Tensor) -> Node:
    """Give what is written the dtype of its place."""
    if tuple(value.meta["val"].shape) != tuple(wanted.shape):
        raise WholeGraphNeededError(f"{node.target} computes another shape than it was given", node)
    if value.meta["val"].dtype is wanted.dtype:
        return value
    return editor.call(aten._to_copy.default, (value,), {"dtype": wanted.dtype}, before=node, origins=node)


def _take_present(editor: GraphEditor, node: Node, families: AliasFamilies) -> None:
    """Let a node use what its arguments show now."""
    for stale in filter(families.is_stale, list(node.all_input_nodes)):
        shown = families.now(stale, node)
        same = same_value(shown.meta["val"], stale.meta["val"])
        editor.replace_in(node, stale, shown)
        if node.target is aten.view.default and not same:
            # What was written may lie in memory in another order.
            editor.retarget(node, aten.reshape.default)
        elif node.target is aten.as_strided.default and not same:
            raise WholeGraphNeededError("what as_strided shows depends on the strides of what was written", node)

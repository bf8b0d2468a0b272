"""Replace operators that write to a tensor by those that return the result, in bodies of control flow as well."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import BodyEditor, GraphEditor, bodies_of, control_flow_call, same_value
from exirkit.passes.analysis.alias_families import AliasFamilies
from exirkit.passes.contract import Pass

from .subgraph_writes import hand_out_writes, refuse_writes_to_carried
from .view_writes import is_in_place
from .whole_graph_needed import WholeGraphNeededError



class Functionalize(Pass):
    """Replace in-place operators by their functional twins, and let later uses see what was written.

    A write to a view becomes a new value of what it is a view of; other views of that are computed anew when they are
    used next. What an input or a buffer holds in the end becomes a mutation of the program. What a branch or the body
    of a loop writes to one of its operands becomes one more result of the call.

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
            WholeGraphNeededError: EK426, an operator has no functional twin, or writes to an unusual view.
            ModelError: EK427, a body writes to what it is given in a way that cannot be a result.
        """
        if not _has_writes(editor):
            return
        written = _functionalize(editor)
        for owner in editor.graph.find_nodes(op="placeholder"):
            if owner in written:
                editor.add_mutation(owner, written[owner])


def _has_writes(editor: GraphEditor) -> bool:
    return any(map(is_in_place, editor.graph.nodes)) or any(map(_has_writes, bodies_of(editor)))


def _functionalize(editor: GraphEditor) -> dict[Node, Node]:
    """Make one graph and the bodies it runs functional; return what is written to that was not made here."""
    families = AliasFamilies(editor)
    replaced: list[Node] = []
    bodies = {body.program.graph_module: body for body in bodies_of(editor)}
    for node in list(editor.graph.nodes):
        if is_in_place(node):
            _replace(editor, node, families)
            replaced.append(node)
            continue
        # What a call shares memory with is told from what it was given, not from what that is replaced by.
        families.add(node)
        call = control_flow_call(node)
        operands = () if call is None else (*call.carried, *call.sliced, *call.shared)
        _take_present(editor, node, families)
        if call is not None:
            writes = [_functionalize_body(bodies[module]) for module in call.bodies]
            refuse_writes_to_carried(call, writes)
            hand_out_writes(editor, call, operands, [bodies[module] for module in call.bodies], writes, families)
    for node in reversed(replaced):
        editor.erase(node)
    return {base: value for base, value in families.written().items() if base.op in ("placeholder", "get_attr")}


def _functionalize_body(body: BodyEditor) -> dict[int, Node]:
    """Make a body functional; return what its inputs hold in the end, where that is something new, by their number."""
    if not _has_writes(body):
        return {}
    inputs = list(body.graph.find_nodes(op="placeholder"))
    with body.transaction(Functionalize.name, records_effect=False):
        return {inputs.index(owner): value for owner, value in _functionalize(body).items()}


def _replace(editor: GraphEditor, node: Node, families: AliasFamilies) -> None:
    """Compute what an in-place operator writes; its node stays, without users in the end."""
    written = node.args[0] if node.args else None
    op = cast(OpOverload, node.target)
    if not isinstance(written, Node):
        raise WholeGraphNeededError(f"{op} has no functional twin", node)
    if torch.Tag.inplace_view in op.tags:
        if op is not aten.detach_.default:
            raise WholeGraphNeededError(f"{op} changes the shape of a value that has other names", node)
        families.rename(node, written)
        return
    args: Any
    args, kwargs = map_arg(
        (node.args, node.kwargs), lambda one: families.now(one, node) if families.is_stale(one) else one
    )
    if op is aten.copy_.default and same_value(args[0].meta["val"], _value_of(args[1])):
        new: Node = args[1]
    elif (twin := _functional_twin(op)) is not None:
        new = editor.call(twin, args, kwargs, before=node, origins=node)
    else:
        raise WholeGraphNeededError(f"{op} has no functional twin", node)
    new = _as_in_its_place(editor, node, new, written.meta["val"])
    families.write(written, new, node)
    families.rename(node, written)


def _value_of(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, Node) else argument


def _as_in_its_place(editor: GraphEditor, node: Node, value: Node, wanted: torch.Tensor) -> Node:
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


def _functional_twin(op: OpOverload) -> OpOverload | None:
    """Return the overload that computes what an in-place one writes: same arguments, no underscore in the name."""
    namespace, _, name = op._schema.name.partition("::")
    written = [argument for argument in op._schema.arguments if argument.alias_info and argument.alias_info.is_write]
    if not name.endswith("_") or name.endswith("__") or len(written) != 1 or op._schema.arguments[0] != written[0]:
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    twin = getattr(packet, op._overloadname, None)
    if twin is None or twin._schema.is_mutable:
        return None
    same = [argument.name for argument in twin._schema.arguments] == [
        argument.name for argument in op._schema.arguments
    ]
    return twin if same else None

"""What branches and bodies of loops write to their operands: results of the call, or a rejection."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import (
    COND,
    WHILE,
    ControlFlowCall,
    GraphEditor,
    ModelError,
    SubgraphEditor,
    alias_root,
    fake_like,
    locate,
    results_of_graph,
)

from .alias_families import AliasFamilies

aten = torch.ops.aten


Writes = Sequence[Mapping[int, Node]]
"""For each body of a call, what its inputs hold in the end, where they are written to, by their number."""


def reject_writes_to_carried(call: ControlFlowCall, writes: Writes) -> None:
    """Reject writes that no result of a call can stand for.

    Raises:
        ModelError: EK427, the condition of a loop writes; or the body of one writes to what it carries, or to rows;
            or a `map` or `scan` writes to what is shared by its rounds.
    """
    if not any(writes):
        return
    if call.kind not in (COND, WHILE):
        raise _rejection(call, f"the body of {call.kind} writes to one of its operands")
    if call.kind == WHILE and writes[0]:
        raise _rejection(call, "the condition of a loop writes to one of its operands")
    if any(index < len(call.carried) for index in writes[-1]):
        raise _rejection(call, "the body of a loop writes to a value that it carries")


def hand_out_writes(
    editor: GraphEditor,
    call: ControlFlowCall,
    operands: Sequence[Any],
    bodies: Sequence[SubgraphEditor],
    writes: Writes,
    families: AliasFamilies,
) -> None:
    """Make what the bodies of a call write to its operands results of the call, and these the operands' new values.

    Args:
        editor: Editor of the graph of the call.
        call: The call; its operands are up to date.
        operands: Its operands as they were known to the families.
        bodies: Editors of its bodies, in order.
        writes: What the bodies wrote.
        families: Of the graph of the call.

    Raises:
        ModelError: EK427, an operand shares memory with another one that the bodies see.
    """
    written = sorted({index for found in writes for index in found})
    seal_shared_results(call, bodies, operands, families)
    if not written:
        if call.node.kwargs:
            # Which operands are written to: none, as far as the graphs tell.
            editor.rewire(call.node, None, {}, val=call.node.meta["val"])
        return
    _reject_shared_memory(call, operands, written, families)
    values = [fake_like(editor.fake_mode, operands[index].meta["val"]) for index in written]
    if call.kind == COND:
        for body, found in zip(bodies, writes, strict=True):
            _return_also(body, [found.get(index) for index in written], written, call.node)
        args: tuple[Any, ...] = call.node.args
    else:
        _return_also(bodies[-1], [writes[-1][index] for index in written], written, call.node)
        for body in bodies:
            body.carry(written)
        args = (*call.node.args[:2], *_carried_and_shared(call, written))
    results = call.node.meta["val"]
    editor.rewire(call.node, args, {}, val=results)
    editor.set_value(call.node, (*results, *values))
    for place, (index, value) in enumerate(zip(written, values, strict=True), start=len(results)):
        follower = call.node.next
        got = editor.call(operator.getitem, (call.node, place), before=follower, origins=call.node, val=value)
        families.write(operands[index], got, follower)


def _carried_and_shared(call: ControlFlowCall, written: Sequence[int]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    count = len(call.carried)
    shared = dict(enumerate(call.shared, start=count))
    moved = tuple(shared.pop(index) for index in written)
    return (*call.carried, *moved), tuple(shared.values())


def _return_also(body: SubgraphEditor, values: Sequence[Node | None], indices: Sequence[int], call: Node) -> None:
    """Give a body more results: new values of inputs, or copies of those that it leaves alone.

    Copies have the debug handle of the call: the inputs of a body have none.
    """
    output = body.graph.output_node()
    inputs = list(body.graph.find_nodes(op="placeholder"))
    more = [
        body.call(aten.clone.default, (inputs[index],), before=output, origins=call) if value is None else value
        for index, value in zip(indices, values, strict=True)
    ]
    body.rewire(output, ((*results_of_graph(body.program.graph_module), *more),))


def seal_shared_results(
    call: ControlFlowCall, bodies: Sequence[SubgraphEditor], operands: Sequence[Any], families: AliasFamilies
) -> None:
    """Reject writes to results of a call that may be its operands, or one value: it would be seen through both."""
    rejection = _rejection(call, "a value is written to that a branch may have returned under another name")
    for body in bodies:
        inputs = list(body.graph.find_nodes(op="placeholder"))
        bases = [
            alias_root(one) if isinstance(one, Node) else None for one in results_of_graph(body.program.graph_module)
        ]
        for place, base in enumerate(bases):
            if base is None or (base.op != "placeholder" and bases.count(base) == 1):
                continue
            for user in call.node.users:
                if user.args[1:] == (place,):
                    families.seal(user, rejection)
            if base in inputs and isinstance(operands[inputs.index(base)], Node):
                families.seal(operands[inputs.index(base)], rejection)


def _reject_shared_memory(
    call: ControlFlowCall, operands: Sequence[Any], written: Sequence[int], families: AliasFamilies
) -> None:
    bases = [families.base(one) if isinstance(one, Node) else None for one in operands]
    for index in written:
        if bases.count(bases[index]) > 1:
            raise _rejection(call, "a body writes to an operand that shares memory with another one")


def _rejection(call: ControlFlowCall, message: str) -> ModelError:
    return ModelError(
        code="EK427",
        message=message,
        location=locate(call.node),
    )

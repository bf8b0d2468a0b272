"""Whether control flow was emitted as its graph says: jumps, rounds, what is carried, and rows.

Copies and moves are followed symbolically, so that it does not matter in which order values are carried, only whether
every one of them arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from torch.fx import GraphModule, Node

from exirkit.emit import Bool, JumpFalseCall, KernelCall, MoveCall, Tensor
from exirkit.ir import COND, WHILE, ControlFlowCall, TensorSpec, results_of_graph

if TYPE_CHECKING:
    from .emission import Walk

_COPY = "aten::clone.out"


def walk_control_flow(walk: Walk, call: ControlFlowCall) -> None:
    """Walk along the instructions of one call and of all that it runs."""
    if call.kind == COND:
        _branches(walk, call)
    elif call.kind == WHILE:
        _while(walk, call)
    else:
        _rows(walk, call)


def result(call: ControlFlowCall, place: int) -> Any:
    """Return what stands for a result: its spec, or call and place of a number."""
    specs = call.node.meta.get("spec")
    spec = None if specs is None else specs[place]
    return (call.node, place) if spec is None else spec


def _branches(walk: Walk, call: ControlFlowCall) -> None:
    to_other = walk.take(JumpFalseCall)
    walk.argument(call.predicate, to_other.cond_value_index, "the condition")
    _branch(walk, call, call.subgraphs[0])
    to_end = _always(walk)
    walk.require(to_other.destination_instruction == walk.at, "the jump to the other branch leads elsewhere")
    _branch(walk, call, call.subgraphs[1])
    walk.require(to_end.destination_instruction == walk.at, "the jump behind the branches leads elsewhere")


def _branch(walk: Walk, call: ControlFlowCall, body: GraphModule) -> None:
    walk.body(body, call.shared)
    for place, one in enumerate(results_of_graph(body)):
        wanted = result(call, place)
        if isinstance(wanted, TensorSpec):
            walk.require(one.meta["spec"] is wanted, f"result {place} of a branch is computed elsewhere")
        else:
            moved = walk.take(MoveCall)
            walk.argument(one, moved.move_from, f"result {place}")
            walk.same(wanted, moved.move_to)


def _while(walk: Walk, call: ControlFlowCall) -> None:
    _begin(walk, call)
    carried = [result(call, place) for place in range(len(call.carried))]
    head = walk.at
    walk.body(call.subgraphs[0], [*carried, *call.shared])
    to_end = walk.take(JumpFalseCall)
    walk.argument(results_of_graph(call.subgraphs[0])[0], to_end.cond_value_index, "the condition")
    walk.body(call.body, [*carried, *call.shared])
    _carry(walk, call, lambda found: isinstance(found, JumpFalseCall))
    _end_of_round(walk, head, to_end)


def _rows(walk: Walk, call: ControlFlowCall) -> None:
    _begin(walk, call)
    count = _count(walk, call)
    stacked = [result(call, place) for place in range(len(call.carried), len(call.node.meta["spec"]))]
    started = walk.take(MoveCall)
    walk.argument(0, started.move_from, "the first row")
    number, head = started.move_to, walk.at
    goes_on = walk.kernel("executorch_prim::lt.Scalar")
    walk.require(goes_on[0] == number, "something else than the number of the row decides")
    count(goes_on[1])
    to_end = walk.take(JumpFalseCall)
    walk.require(to_end.cond_value_index == goes_on[2], "something else decides whether there is a round")
    rows = _slices(walk, call, number)
    carried = [result(call, place) for place in range(len(call.carried))]
    walk.body(call.body, [*carried, *rows, *call.shared])
    for target, one in zip(stacked, results_of_graph(call.body)[len(carried) :], strict=True):
        _sized(walk, target, one, number)
        stored = walk.kernel("executorch_prim::et_copy_index.tensor")
        walk.same(target, stored[0])
        walk.argument(one, stored[1], "a row of the result")
        walk.require(stored[2] == number, "a row is stored at the index of another one")
    _carry(walk, call, lambda found: isinstance(found, KernelCall) and walk.operator_of(found) != _COPY)
    counted = walk.kernel("executorch_prim::add.Scalar")
    walk.argument(1, counted[1], "the step")
    walk.require(counted[0] == counted[2] == number, "rows are not counted")
    _end_of_round(walk, head, to_end)


def _slices(walk: Walk, call: ControlFlowCall, number: int) -> list[TensorSpec]:
    inputs = call.body.graph.find_nodes(op="placeholder")[len(call.carried) :]
    specs = [one.meta["spec"] for one in inputs[: len(call.sliced)]]
    for source, spec in zip(call.sliced, specs, strict=True):
        found = walk.kernel("aten::select_copy.int_out")
        walk.argument(source, found[0], "what is sliced")
        walk.argument(0, found[1], "the dim")
        walk.require(found[2] == number, "another row is read")
        walk.same(spec, found[3])
        walk.same(spec, found[4])
    return specs


def _count(walk: Walk, call: ControlFlowCall) -> Callable[[int], None]:
    """Return what checks that a value is the number of rows."""
    size = call.sliced[0].meta["val"].shape[0]
    if isinstance(size, int):
        return lambda index: walk.argument(size, index, "the number of rows")
    found = walk.kernel("aten::sym_size.int")
    walk.argument(call.sliced[0], found[0], "what is counted")
    walk.argument(0, found[1], "the dim")
    walk.require(found[1] != found[2], "the dim is overwritten")
    return lambda index: walk.require(index == found[2], "another number than that of the rows")


def _sized(walk: Walk, target: Any, row: Node, number: int) -> None:
    """Walk along what makes room for rows of a size that varies, when the first is there."""
    sizes = row.meta["val"].shape
    if all(isinstance(size, int) for size in sizes):
        return
    compared = walk.kernel("executorch_prim::eq.Scalar")
    walk.require(compared[0] == number, "something else than the number of the row is compared")
    walk.argument(0, compared[1], "the first row")
    to_store = walk.take(JumpFalseCall)
    walk.require(to_store.cond_value_index == compared[2], "something else decides whether rows are sized")
    wanted = [1, *sizes]
    for dim, size in enumerate(sizes):
        if not isinstance(size, int):
            asked = walk.kernel("aten::sym_size.int")
            walk.argument(row, asked[0], "the row")
            walk.argument(dim, asked[1], "the dim")
            wanted[dim + 1] = asked[2]
    filled = walk.kernel("aten::full.out")
    items = walk.value(filled[0]).items
    walk.require(len(items) == len(wanted), "rows have another number of dims")
    for item, size, known in zip(items, wanted, (1, *sizes), strict=True):
        if isinstance(known, int):
            walk.argument(size, item, "a size of rows")
        else:
            walk.require(item == size, "another size than that of the row")
    walk.same(target, filled[-1])
    walk.require(to_store.destination_instruction == walk.at, "the jump over the sizes of rows leads elsewhere")


def _begin(walk: Walk, call: ControlFlowCall) -> None:
    for place, start in enumerate(call.carried):
        source, target = _copied(walk)
        walk.argument(start, source, f"what is carried as {place}")
        walk.same(result(call, place), target)


def _carry(walk: Walk, call: ControlFlowCall, is_end: Callable[[Any], bool]) -> None:
    """Follow copies and moves to the end of a round, and see that each value arrives where it is carried."""
    holds: dict[int, int] = {}
    while not is_end(walk.following()):
        source, target = _copied(walk)
        holds[target] = holds.get(source, source)
    for place, one in enumerate(results_of_graph(call.body)[: len(call.carried)]):
        target = walk.known(result(call, place))
        walk.argument(one, holds.get(target, target), f"what is carried as {place}")


def _copied(walk: Walk) -> tuple[int, int]:
    if isinstance(walk.following(), MoveCall):
        moved = walk.take(MoveCall)
        # A moved tensor is one under two names: the next round writes over what it carries.
        walk.require(not isinstance(walk.value(moved.move_from), Tensor), "a tensor is moved instead of copied")
        return moved.move_from, moved.move_to
    args = walk.kernel(_COPY)
    walk.require(args[-2] == args[-1], "a copy that returns something else than it writes")
    return args[0], args[-1]


def _end_of_round(walk: Walk, head: int, to_end: JumpFalseCall) -> None:
    walk.require(_always(walk).destination_instruction == head, "the jump to the next round leads elsewhere")
    walk.require(to_end.destination_instruction == walk.at, "the jump out of the loop leads elsewhere")


def _always(walk: Walk) -> JumpFalseCall:
    found: JumpFalseCall = walk.take(JumpFalseCall)
    decides = walk.value(found.cond_value_index)
    walk.require(isinstance(decides, Bool) and not decides.bool_val, "a jump that is not always taken")
    return found


def number_results(node: Node, call: ControlFlowCall) -> Any:
    """Return what stands for a number that `getitem` takes out of the results of a call, None for a tensor."""
    found = result(call, cast(int, node.args[1]))
    return None if isinstance(found, TensorSpec) else found

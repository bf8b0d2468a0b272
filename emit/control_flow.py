"""Emission of control flow: calls become jumps.

A branch computes its results in the memory of the call's results, so that nothing is copied behind it. A loop's results
hold what it carries: what it begins with is copied there, and what a round returns at the end of the round. Rows of
results are copied to their places as they are made. A loop tests before every round whether there is to be one, the
first included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch.fx import GraphModule, Node

from exirkit.ir import COND, WHILE, ContractError, ControlFlowCall, Diagnostic, TensorSpec, locate, results_of_graph

from .schema import Bool, Instruction, Int, JumpFalseCall, KernelCall, MoveCall
from .values import Ids, ValueTable, make_table

_SIZE = ("aten::sym_size", "int")
_ROW = ("aten::select_copy", "int_out")
_COPY = ("aten::clone", "out")
_STORE_ROW = ("executorch_prim::et_copy_index", "tensor")
_ADD = ("executorch_prim::add", "Scalar")
_LESS = ("executorch_prim::lt", "Scalar")
_EQUAL = ("executorch_prim::eq", "Scalar")
_FILL = ("aten::full", "out")


class MethodPlan(Protocol):
    """The plan of a method as far as it is emitted, to which a call of control flow adds.

    Attributes:
        values: Values of the plan.
        instructions: Instructions so far.
    """

    values: ValueTable
    instructions: list[Instruction]

    def body(self, body: GraphModule, inputs: Sequence[Ids | None]) -> list[Ids | None]:
        """Emit the instructions of a graph that is called, and return where its results are."""

    def where(self, value: Any) -> Ids | None:
        """Return the index of the value of an argument, or indices."""

    def tensor(self, node: Node, spec: TensorSpec) -> int:
        """Return the index of the tensor of a node that a spec describes."""

    def operator(self, name: tuple[str, str]) -> int:
        """Return the index of an operator."""

    def add_call(self, node: Node, call: Any) -> None:
        """Add an instruction of a call of control flow."""


class ControlFlowEmitter:
    """Emits calls of `cond`, `map`, `scan` and `while_loop`."""

    def __init__(self, plan: MethodPlan) -> None:
        self._plan = plan

    def emit(self, call: ControlFlowCall) -> Ids:
        """Emit one call and all that it runs, and return where its results are.

        Raises:
            ContractError: EK560, a branch does not write its result where the call's result is.
        """
        results = self._results(call.node)
        if call.kind == COND:
            self._branches(call, results)
        elif call.kind == WHILE:
            self._while(call, results)
        else:
            self._rows(call, results)
        return results

    def _results(self, node: Node) -> list[int]:
        """Make room for the results: tensors with a place, and numbers."""
        specs = node.meta.get("spec") or [None] * len(node.meta["val"])
        new = self._plan.values.new
        return [new(Int(int_val=0)) if spec is None else self._plan.tensor(node, spec) for spec in specs]

    # Branches

    def _branches(self, call: ControlFlowCall, results: Sequence[int]) -> None:
        shared = [self._plan.where(one) for one in call.shared]
        to_other = self._jump(call.node, self._where(call.predicate))
        self._branch(call, call.subgraphs[0], shared, results)
        to_end = self._jump(call.node)
        self._land(to_other)
        self._branch(call, call.subgraphs[1], shared, results)
        self._land(to_end)

    def _branch(
        self, call: ControlFlowCall, body: GraphModule, shared: Sequence[Ids | None], results: Sequence[int]
    ) -> None:
        specs = call.node.meta.get("spec") or [None] * len(results)
        for place, (found, result) in enumerate(zip(self._plan.body(body, shared), results, strict=True)):
            if specs[place] is None:
                self._move(call.node, found, result)
            elif found != result:
                raise ContractError(_computed_elsewhere(call.node, place))

    # Loops

    def _while(self, call: ControlFlowCall, results: Sequence[int]) -> None:
        shared = [self._plan.where(one) for one in call.shared]
        self._begin(call, results)
        head = len(self._plan.instructions)
        (decision,) = self._plan.body(call.subgraphs[0], [*results, *shared])
        to_end = self._jump(call.node, decision)
        self._carry(call, self._plan.body(call.subgraphs[1], [*results, *shared]), results)
        self._jump(call.node, destination=head)
        self._land(to_end)

    def _rows(self, call: ControlFlowCall, results: Sequence[int]) -> None:
        node, values = call.node, self._plan.values
        carried, stacked = results[: len(call.carried)], results[len(call.carried) :]
        sliced = [self._where(one) for one in call.sliced]
        shared = [self._plan.where(one) for one in call.shared]
        self._begin(call, carried)
        count = self._count(call)
        number, goes_on = values.new(Int(int_val=0)), values.new(Bool(bool_val=False))
        zero, step = self._constant(0), self._constant(1)
        self._move(node, zero, number)
        head = len(self._plan.instructions)
        self._call(node, _LESS, [number, count, goes_on])
        to_end = self._jump(node, goes_on)
        rows = []
        inputs = call.body.graph.find_nodes(op="placeholder")[len(carried) : len(carried) + len(sliced)]
        for placeholder, source in zip(inputs, sliced, strict=True):
            row = self._plan.tensor(placeholder, placeholder.meta["spec"])
            self._call(node, _ROW, [source, zero, number, row, row])
            rows.append(row)
        made = self._plan.body(call.body, [*carried, *rows, *shared])
        # Rows first: one may be what the round began with, which is overwritten then.
        computed = results_of_graph(call.body)[len(carried) :]
        for target, result, row_node in zip(stacked, made[len(carried) :], computed, strict=True):
            self._size_rows(node, target, row_node, result, number)
            self._call(node, _STORE_ROW, [target, result, number])
        self._carry(call, made[: len(carried)], carried)
        self._call(node, _ADD, [number, step, number])
        self._jump(node, destination=head)
        self._land(to_end)

    def _count(self, call: ControlFlowCall) -> int:
        """Return where the number of rows is; torch maps and scans over at least one."""
        first = call.sliced[0]
        size = first.meta["val"].shape[0]
        if isinstance(size, int):
            return self._constant(size)
        return self._size(call.node, self._where(first), 0)

    def _size_rows(self, node: Node, target: int, row: Node, found: Ids | None, number: int) -> None:
        """Take the size of rows from the first one, where it varies: storing a row only changes their number."""
        sizes: Sequence[Any] = row.meta["val"].shape
        if all(isinstance(size, int) for size in sizes):
            return
        is_first = self._plan.values.new(Bool(bool_val=False))
        self._call(node, _EQUAL, [number, self._constant(0), is_first])
        to_store = self._jump(node, is_first)
        items = [self._constant(1)]
        for dim, size in enumerate(sizes):
            items.append(self._constant(size) if isinstance(size, int) else self._size(node, found, dim))
        self._call(node, _FILL, [self._plan.values.integers(items), self._constant(0), target, target])
        self._land(to_store)

    def _size(self, node: Node, tensor: Ids | None, dim: int) -> int:
        """Ask for a size of a tensor, and return where it is."""
        size = self._plan.values.new(Int(int_val=0))
        self._call(node, _SIZE, [tensor, self._constant(dim), size])
        return size

    def _begin(self, call: ControlFlowCall, results: Sequence[int]) -> None:
        """Copy what the first round begins with to where it is carried."""
        for place, (start, result) in enumerate(zip(call.carried, results, strict=True)):
            self._set(call, place, self._where(start), result)

    def _carry(self, call: ControlFlowCall, made: Sequence[Ids | None], results: Sequence[int]) -> None:
        """Copy what a round returns to where the next one, or what follows the loop, looks for it."""
        specs = call.node.meta.get("spec") or [None] * len(results)
        sources = list(made)
        for place, found in enumerate(made):
            # Numbers may change places; tensors that do have been copied by a pass.
            if specs[place] is None and found != results[place] and found in results:
                kept = sources[place] = self._plan.values.new(Int(int_val=0))
                self._move(call.node, found, kept)
        for place, (source, result) in enumerate(zip(sources, results, strict=True)):
            if source != result:
                self._set(call, place, source, result)

    def _set(self, call: ControlFlowCall, place: int, source: Ids | None, target: int) -> None:
        specs = call.node.meta.get("spec")
        if specs is None or specs[place] is None:
            self._move(call.node, source, target)
        else:
            self._call(call.node, _COPY, [source, self._plan.values.constant(None), target, target])

    # Instructions

    def _where(self, value: Any) -> Any:
        return self._plan.where(value)

    def _constant(self, value: int) -> int:
        found = self._plan.values.constant(value)
        assert found is not None, "a number of the format"
        return found

    def _call(self, node: Node, operator: tuple[str, str], args: Sequence[Any]) -> None:
        self._plan.add_call(node, make_table(KernelCall, op_index=self._plan.operator(operator), args=list(args)))

    def _move(self, node: Node, source: Any, target: int) -> None:
        self._plan.add_call(node, make_table(MoveCall, move_from=source, move_to=target))

    def _jump(self, node: Node, unless: Any = None, destination: int = 0) -> int:
        """Add a jump, which is always taken without a condition, and return its index."""
        if unless is None:
            unless = self._plan.values.constant(False)
        index = len(self._plan.instructions)
        self._plan.add_call(
            node, make_table(JumpFalseCall, cond_value_index=unless, destination_instruction=destination)
        )
        return index

    def _land(self, jump: int) -> None:
        """Let a jump lead to the next instruction."""
        call = self._plan.instructions[jump].instr_args
        assert isinstance(call, JumpFalseCall)
        landed = make_table(
            JumpFalseCall,
            cond_value_index=call.cond_value_index,
            destination_instruction=len(self._plan.instructions),
        )
        self._plan.instructions[jump] = make_table(Instruction, instr_args=landed)


def _computed_elsewhere(node: Node, place: int) -> Diagnostic:
    return Diagnostic.of(
        "EK560",
        f"a branch of %{node.name} computes result {place} elsewhere than where the call has it",
        location=locate(node),
    )

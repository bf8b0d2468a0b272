"""Random edits for property tests: every choice is made by a function that is handed in, so that failures shrink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from tests.ir.program_snapshot import exact
from torch._subclasses import FakeTensor
from torch.fx import Node
from torch.utils._sympy.value_ranges import ValueRanges

from exirkit.ir import DiagnosticError, GraphEditor, edge_operator

ATEN = torch.ops.aten
UNARY = (ATEN.relu.default, ATEN.neg.default, edge_operator(ATEN.exp.default), edge_operator(ATEN.clone.default))
BINARY = (ATEN.add.Tensor, ATEN.mul.Tensor, edge_operator(ATEN.sub.Tensor))
NAMES = ("add", "x", "max", "relu_1", "1x", "a.b", "", "mul_1", "fresh")
TENSORS = (
    torch.tensor(0.0),
    torch.tensor(-0.0),
    torch.tensor(1),
    torch.tensor(True),
    torch.tensor(float("nan")),
    torch.tensor([1.0]),
    torch.full((4,), 2.0),
    torch.ones(3, 4),
)


class PlannedError(Exception):
    """Raised in the middle of edits, to see what is left of them."""


def fail() -> None:
    """Raise the planned error."""
    raise PlannedError


class RandomEdits:
    """Draws edits and makes them; legal ones for the most part, as far as the order of nodes goes."""

    def __init__(self, editor: GraphEditor, choose: Callable[[int], int]) -> None:
        """Take the editor, and a function that chooses a number below the one it is given."""
        self.editor = editor
        self._choose = choose
        self._edits = [
            self.call_one,
            self.call_two,
            self.erase,
            self.erase_unused,
            self.replace,
            self.replace_in,
            self.rewire,
            self.retarget,
            self.move,
            self.rename,
            self.set_meta,
            self.remove_meta,
            self.add_constant,
            self.remove_input,
            self.set_tensor,
            self.set_range,
            self.return_other,
            self.back_and_forth,
            self.make_and_erase,
            self.nested,
        ]

    def run(self, most: int, depth: int = 0) -> None:
        """Make up to `most` edits; what the editor rejects must leave no trace."""
        for _ in range(self._choose(most + 1)):
            edit = self._any_of(self._edits)
            if edit == self.nested:
                self.nested(depth)
                continue
            before = exact(self.editor.program)
            try:
                edit()
            except DiagnosticError:
                after = exact(self.editor.program)
                # A call may have had values inferred that were due for it already.
                del before["meta"], after["meta"]
                assert after == before, f"a rejected {edit.__name__} has left a trace"

    # Choices

    def _any_of(self, options: Sequence[Any]) -> Any:
        return options[self._choose(len(options))]

    @property
    def nodes(self) -> list[Node]:
        return list(self.editor.graph.nodes)

    def one_of(self, nodes: list[Node]) -> Node | None:
        return nodes[self._choose(len(nodes))] if nodes else None

    def a_call(self) -> Node | None:
        return self.one_of([node for node in self.nodes if node.op == "call_function"])

    def a_tensor(self, before: Node | None = None) -> Node | None:
        return self.one_of(
            [
                node
                for node in self.nodes
                if isinstance(node.meta.get("val"), FakeTensor) and (before is None or node < before)
            ]
        )

    def a_place(self) -> Node:
        places = [node for node in self.nodes if node.op != "placeholder"]
        place = self.one_of(places)
        assert place is not None
        return place

    # Edits

    def call_one(self) -> None:
        before = self.a_place()
        source = self.a_tensor(before)
        if source is not None:
            self.editor.call(self._any_of(UNARY), (source,), before=before, origins=source)

    def call_two(self) -> None:
        before = self.a_place()
        left, right = self.a_tensor(before), self.a_tensor(before)
        if left is not None and right is not None:
            self.editor.call(self._any_of(BINARY), (left, right), before=before, origins=[left, right])

    def erase(self) -> None:
        node = self.a_call()
        if node is not None:
            self.editor.erase(node)

    def erase_unused(self) -> None:
        node = self.one_of(self.nodes)
        if node is not None:
            self.editor.erase_unused(node)

    def replace(self) -> None:
        old = self.a_tensor()
        if old is None or not old.users:
            return
        new = self.a_tensor(min(old.users))
        if new is not None:
            self.editor.replace(old, new)

    def replace_in(self) -> None:
        old = self.a_tensor()
        user = None if old is None else self.one_of(list(old.users))
        new = None if user is None else self.a_tensor(user)
        if old is not None and user is not None and new is not None:
            self.editor.replace_in(user, old, new)

    def rewire(self) -> None:
        node = self.a_call()
        places = [] if node is None else [at for at, arg in enumerate(node.args) if isinstance(arg, Node)]
        if node is None or not places:
            return
        place, source = self._any_of(places), self.a_tensor(node)
        if source is not None:
            args = list(node.args)
            args[place] = source
            self.editor.rewire(node, args)

    def retarget(self) -> None:
        node = self.a_call()
        if node is None:
            return
        if node.target is ATEN.permute.default:
            self.editor.retarget(node, ATEN.permute_copy.default)
        elif node.target in UNARY:
            self.editor.retarget(node, self._any_of(UNARY))
        elif node.target in BINARY:
            self.editor.retarget(node, self._any_of(BINARY))
        elif node.target is ATEN.sum.dim_IntList:
            self.editor.retarget(node, ATEN.sum.dim_IntList, (node.args[0], [0]))

    def move(self) -> None:
        node = self.one_of(self.nodes)
        if node is None:
            return
        places = self._places_of(node)
        if places:
            self.editor.move(node, self._any_of(places))

    def _places_of(self, node: Node) -> list[Node]:
        """Return the nodes in front of which a node can stand."""
        nodes = self.nodes
        low = max((nodes.index(source) + 1 for source in node.all_input_nodes), default=0)
        low = max(low, len([one for one in nodes if one.op == "placeholder"]))
        high = min((nodes.index(user) for user in node.users), default=len(nodes) - 1)
        return nodes[low : high + 1]

    def rename(self) -> None:
        node = self.one_of(self.nodes)
        if node is not None and node.op != "output":
            self.editor.rename(node, self._any_of(NAMES))

    def set_meta(self) -> None:
        node = self.one_of(self.nodes)
        if node is not None:
            value = self._any_of((1, True, 1.0, -0.0, 0.0, "text", (1, 2), [1, 2], None))
            self.editor.set_meta(node, self._any_of(("tag", "custom")), value)

    def remove_meta(self) -> None:
        node = self.one_of(self.nodes)
        if node is not None:
            self.editor.remove_meta(node, self._any_of(("tag", "custom", "stack_trace")))

    def add_constant(self) -> None:
        tensor = self._any_of(TENSORS)
        self.editor.add_constant(tensor, name=self._any_of(("c", "linear", "training", "count", "a.b")))

    def remove_input(self) -> None:
        node = self.one_of([node for node in self.nodes if node.op == "placeholder"])
        if node is not None:
            self.editor.remove_input(node)

    def set_tensor(self) -> None:
        node = self.one_of([node for node in self.nodes if node.op == "placeholder"])
        if node is not None:
            self.editor.set_tensor(node, self._any_of(TENSORS))

    def set_range(self) -> None:
        ranges = self.editor.program.range_constraints
        if ranges:
            symbol = self._any_of(sorted(ranges, key=str))
            old = ranges[symbol]
            self.editor.set_range(symbol, ValueRanges(old.lower, self._any_of((old.upper, 60))))

    def return_other(self) -> None:
        output = self.editor.graph.output_node()
        results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
        place = self._choose(len(results))
        results[place] = self._any_of((None, 3, self.a_tensor()))
        self.editor.rewire(output, (tuple(results),))

    def back_and_forth(self) -> None:
        """Change a few things and change them back by further edits, not by an undo."""
        node = self.a_call()
        if node is None:
            return
        target: Any = node.target
        name, follower, tag = node.name, node.next, node.meta.get("tag")
        self.editor.rename(node, "elsewhere")
        self.editor.rename(node, name)
        self.editor.retarget(node, ATEN.relu.default, val=node.meta.get("val"))
        self.editor.retarget(node, cast(Any, target), val=node.meta.get("val"))
        self.editor.move(node, self._places_of(node)[-1])
        self.editor.move(node, follower)
        self.editor.set_meta(node, "tag", object())
        self.editor.set_meta(node, "tag", tag) if tag is not None else self.editor.remove_meta(node, "tag")

    def make_and_erase(self) -> None:
        source = self.a_tensor()
        if source is not None:
            made = self.editor.call(ATEN.neg.default, (source,), before=self.editor.graph.output_node())
            self.editor.set_meta(made, "tag", 1)
            self.editor.erase(made)
        self.editor.remove_input(self.editor.add_constant(torch.full((2,), 5.0), name="passing"))

    def nested(self, depth: int = 0) -> None:
        """Make edits in a transaction of their own, which may fail."""
        if depth == 2:
            return
        before = exact(self.editor.program)
        way = self._any_of(("commit", "raise", "roll back", "roll back and go on"))
        try:
            with self.editor.transaction("nested") as transaction:
                self.run(4, depth + 1)
                if way == "raise":
                    raise PlannedError  # noqa: TRY301
                if way != "commit":
                    transaction.roll_back()
                    assert exact(self.editor.program) == before
                if way == "roll back and go on":
                    before_second = exact(self.editor.program)
                    self.run(2, depth + 1)
                    transaction.roll_back()
                    assert exact(self.editor.program) == before_second
        except (PlannedError, DiagnosticError):
            assert exact(self.editor.program) == before
            assert not transaction.modified

"""A solution put into a program: conversions are made, calls get converted arguments, stored tensors are converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import (
    ContractError,
    Diagnostic,
    GraphEditor,
    locate,
    named_arguments,
    same_argument,
    show_value,
    split_arguments,
    underlying,
)
from exirkit.patterns.engine.graph_builder import GraphBuilder, dialect_of
from exirkit.patterns.operators.in_place import calls_by_target
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import ExpressionError

from .compilation import is_covered_kind
from .declaration import Transfer
from .fitting import with_tensors
from .inference import Answers
from .noting import remove_attribute, write_attribute
from .problem import Solution, Use
from .squares import converted


def apply_solution(editor: GraphEditor, solution: Solution, stored: Mapping[Node, torch.Tensor]) -> int:
    """Edit a graph so that its tensors have the values of a solution.

    Args:
        editor: Editor, inside a transaction.
        solution: What was chosen for the graph as it is.
        stored: Tensors behind inputs that are converted while the program is lowered.

    Returns:
        How many stored tensors were converted.

    Raises:
        ContractError: EK297, a tensor did not come out as its value says.
        ModelError: EK111, an operator does not take converted arguments.
    """
    return _Materialiser(editor, solution, stored).run()


class _Materialiser:
    def __init__(self, editor: GraphEditor, solution: Solution, stored: Mapping[Node, torch.Tensor]) -> None:
        self._editor = editor
        self._solution = solution
        self._problem = solution.problem
        self._made = solution.problem.made
        self._stored = stored
        self._wrap, self._is_edge = dialect_of(calls_by_target(editor.graph))
        # For tensors whose call is made by a program now: the node that stands for them.
        self._now: dict[Node, Node] = {}
        self._converted: dict[tuple[Node, str], Node] = {}
        self._folded: dict[Node, None] = {}
        self._before = {node: node.meta["val"] for node in self._problem.gives}

    def run(self) -> int:
        """Visit the nodes in graph order: what a call takes has been converted before it."""
        # What a tensor is, its row said of the program as it was.
        order = [node for node in self._editor.graph.nodes if self._is_touched(node)]
        for node in order:
            row = self._problem.rows.get(node)
            if row is None or row.model.delegates or self._solution.leaves(node):
                self._rewire(node)
            elif row.call is not None:
                self._call(node, row)
            else:
                self._adapt(node, row)
        self._editor.propagate()
        self._check()
        self._write()
        unused = [node for node in self._folded if not node.users]
        self._editor.remove_inputs(unused)
        return len(self._folded)

    def _is_touched(self, node: Node) -> bool:
        """Whether a node gets other arguments, or is another call."""
        if any(self._wants(use) != self._solution.value_of(use.tensor) for use in self._problem.demands.get(node, ())):
            return True
        row = self._problem.rows.get(node)
        return row is not None and not self._solution.leaves(node) and bool(row.adapt or row.call)

    def _wants(self, use: Use) -> str:
        return self._solution.value(use.wants)

    # Calls

    def _tensors(self, node: Node) -> dict[tuple[str, int | None], Node]:
        """Return the tensors that a call takes, by argument: converted where it needs another value."""
        return {
            (use.name, use.index): self._at(use.tensor, self._wants(use), node)
            for use in self._problem.demands.get(node, ())
        }

    def _rewire(self, node: Node) -> None:
        """Give a node converted arguments; the same tensor can be several of them, at different values."""
        row = self._problem.rows.get(node)
        if row is not None and not row.model.delegates:
            args, kwargs = split_arguments(
                underlying(node.target), with_tensors(named_arguments(node), self._tensors(node))
            )
            self._editor.rewire(node, args, kwargs)
            return
        uses = self._problem.demands.get(node, ())
        swapped = {self._now.get(use.tensor, use.tensor): self._at(use.tensor, self._wants(use), node) for use in uses}
        args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda one: swapped.get(one, one))
        self._editor.rewire(node, args, kwargs)

    def _adapt(self, node: Node, row: Transfer) -> None:
        tensors = self._tensors(node)
        given = with_tensors(self._problem.arguments[node] if row.adapt else named_arguments(node), tensors)
        given.update(self._adapted(node, row, given))
        args, kwargs = split_arguments(underlying(node.target), given)
        self._editor.rewire(node, args, kwargs)

    def _adapted(self, node: Node, row: Transfer, given: Mapping[str, Any]) -> dict[str, Any]:
        value = self._solution.chosen.get(node, self._made.first)
        names = self._made.answered({**given, **self._made.constants(value)}, self._known(node))
        try:
            return {name: one.value(names) for name, one in row.adapt.items()}
        except ExpressionError as error:
            raise self._broken(node, f"row {row.number} ({row.place()}): {error.message}") from None

    def _known(self, node: Node) -> dict[int, Any]:
        """Return what is known of the tensors that a call takes, whatever they are converted to."""
        uses = self._problem.demands.get(node, ())
        return {id(self._at(use.tensor, self._wants(use), node)): self._fact(use.tensor) for use in uses}

    def _fact(self, tensor: Node) -> Any:
        return self._problem.facts.get(tensor)

    def _call(self, node: Node, row: Transfer) -> None:
        assert row.call is not None
        tensors = self._tensors(node)
        value = self._solution.chosen.get(node, self._made.first)
        given = with_tensors(self._problem.arguments[node], tensors)
        names = self._made.answered({**given, **self._made.constants(value)}, self._known(node))
        builder = self._builder(node, [node])
        try:
            results = [builder.node_of(one, node.meta["val"]) for one in row.call.run(names, builder)]
        except ExpressionError as error:
            raise self._broken(node, f"row {row.number} ({row.place()}): {error.message}") from None
        if is_covered_kind(node.meta["val"]):
            self._replace(node, results[0])
        else:
            for user in list(node.users):
                self._replace(user, results[user.args[1]])  # type: ignore[index]
        self._editor.erase_unused(node)

    def _replace(self, old: Node, new: Node) -> None:
        self._now[old] = new
        self._editor.replace(old, new)

    # Conversions

    def _at(self, tensor: Node, wanted: str, user: Node) -> Node:
        """Return a tensor at a value, converted in front of its first user that needs that."""
        given = self._solution.value_of(tensor)
        now = self._now.get(tensor, tensor)
        if given is None or given == wanted:
            return now
        key = (tensor, wanted)
        if key not in self._converted:
            self._converted[key] = self._convert(tensor, now, given, wanted, user)
        return self._converted[key]

    def _convert(self, tensor: Node, now: Node, given: str, wanted: str, user: Node) -> Node:
        if tensor in self._stored and not self._problem.costs[tensor]:
            made = converted(self._made, self._stored[tensor].detach(), given, wanted, self._fact(tensor))
            self._folded[tensor] = None
            return self._editor.add_constant(made.clone(), name=f"{tensor.name}_{wanted}", origins=tensor)
        builder = self._builder(user, [tensor] if tensor.op == "call_function" else [user])
        try:
            for program in self._made.way(given, wanted):
                facts = Answers({id(now): self._fact(tensor)})
                now = builder.node_of(program.run({"x": now, FACTS: facts}, builder)[0])
        except ExpressionError as error:
            raise self._broken(tensor, f"{given} -> {wanted}: {error.message}") from None
        return now

    def _builder(self, before: Node, origins: Sequence[Node]) -> GraphBuilder:
        sizes = [node for node in before.all_input_nodes if is_covered_kind(node.meta.get("val"))]
        return GraphBuilder(
            self._editor,
            before,
            origins,
            wrap=self._wrap,
            lifts_numbers=self._is_edge,
            name=f"{origins[0].name}_number",
            sizes=sizes,
        )

    # Values, as an attribute

    def _write(self) -> None:
        """Give tensors whose value is not the first the attribute that says so, and take it from others."""
        if self._made.model.write is None:
            return
        key = self._made.model.write.key or self._made.model.write.attribute
        at = [(self._now.get(one, one), self._solution.value_of(one)) for one in self._problem.gives]
        at += [(node, value) for (_, value), node in self._converted.items()]
        for node, value in at:
            if value is None or node._erased:
                continue
            fields = self._made.written(value)
            if fields is not None:
                write_attribute(self._editor, node, key, fields)
            elif key in node.meta:
                remove_attribute(self._editor, node, key)

    # What came out

    def _check(self) -> None:
        """Compare what is recorded of each tensor that has another value than before with what its value says."""
        for tensor, before in self._before.items():
            value = self._solution.value_of(tensor)
            now = self._now.get(tensor, tensor)
            if value is None or value == self._made.recorded_value(before) or now._erased or now.op == "placeholder":
                continue
            with self._editor.fake_mode:
                expected = converted(self._made, before, self._made.first, value, self._fact(tensor))
            if not self._is_alike(expected, now.meta["val"]):
                row = self._problem.rows.get(tensor)
                claim = "" if row is None else f" (row {row.number}, {row.place()})"
                message = (
                    f"%{now.name} is to be at {value}{claim}, and came out as {_laid_out(now.meta['val'])},"
                    f" not {_laid_out(expected)}"
                )
                raise self._broken(now, message)

    def _is_alike(self, expected: torch.Tensor, found: Any) -> bool:
        if expected.dtype != found.dtype or not same_argument(tuple(expected.shape), tuple(found.shape)):
            return False
        if not self._made.lies_as_recorded:
            return True
        steps = [_steps(one) for one in (expected, found)]
        return same_argument(*steps)

    def _broken(self, node: Node, message: str) -> ContractError:
        return ContractError(
            Diagnostic.of(
                "EK297",
                f"{self._made.model.id}: {message}",
                location=locate(node),
                hint="the propagation is wrong for this call: `exirkit propagation check` tries its rows",
            )
        )


def _steps(value: torch.Tensor) -> tuple[Any, ...]:
    """Return the strides that mean something: those of dims with more than one element."""
    sizes = zip(value.shape, value.stride(), strict=True)
    return tuple(step for size, step in sizes if not (isinstance(size, int) and size == 1))


def _laid_out(value: torch.Tensor) -> str:
    return f"{show_value(value)} with strides {list(value.stride())}"

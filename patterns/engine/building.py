"""From a replacement to nodes: calls are made by the graph editor, constants enter signature and state through it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node

from exirkit.ir import GraphEditor
from exirkit.patterns.operators.arguments import is_tensor_argument
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.terms import Operator


class GraphBuilder:
    """Makes nodes in front of a place.

    Args:
        editor: Editor, inside a transaction.
        before: Where new calls stand.
        origins: Nodes that they stand for, the anchor first.
        wrap: From an operator to what the dialect calls it.
        lifts_numbers: Numbers given for tensors become constants, as in Edge.
        name: Wish for the names of constants.
        sizes: Where sizes that vary can be read: tensors by symbol.

    Attributes:
        made: New calls, in order.
        constants: New placeholders.
    """

    def __init__(
        self,
        editor: GraphEditor,
        before: Node,
        origins: Sequence[Node],
        *,
        wrap: Any,
        lifts_numbers: bool,
        name: str,
        sizes: Sequence[Node] = (),
    ) -> None:
        self.editor = editor
        self.before = before
        self.origins = tuple(origins)
        self.wrap = wrap
        self.lifts_numbers = lifts_numbers
        self.name = name
        self.sizes = tuple(sizes)
        self.made: list[Node] = []
        self.constants: list[Node] = []
        self._symbols: dict[Any, Node] = {}
        self._tensors: dict[int, tuple[torch.Tensor, Node]] = {}

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call; return its node, or its results if it has several."""
        schema = op._schema.arguments
        positional = [self._argument(schema[index], value) for index, value in enumerate(args)]
        kinds = {argument.name: argument for argument in schema}
        named = {key: self._argument(kinds[key], value) for key, value in kwargs.items()}
        node = self._make(self.wrap(op), tuple(positional), named)
        value = node.meta.get("val")
        return Results(self, node, len(value)) if isinstance(value, list | tuple) else node

    def item(self, node: Node, index: int) -> Node:
        """Return the node of one result of a call."""
        known = next((u for u in node.users if u.target is operator.getitem and u.args[1] == index), None)
        return known if known is not None else self._make(operator.getitem, (node, index), {})

    def node_of(self, value: Any, like: Any = None) -> Node:
        """Return the node of a result of the replacement.

        Raises:
            ExpressionError: It is neither a node nor a constant.
        """
        found = self.argument(value)
        if isinstance(found, Node):
            return found
        if isinstance(found, int | float | bool) and isinstance(like, torch.Tensor):
            return self._constant(torch.tensor(found, dtype=like.dtype))
        raise ExpressionError(f"a replacement gives tensors, not a {type(found).__name__}")

    def argument(self, value: Any) -> Any:
        """Return a value as an argument of a node.

        Raises:
            ExpressionError: It is a node that cannot be used at this place, or a number that cannot be computed.
        """
        if isinstance(value, Node):
            return self._usable(value)
        if isinstance(value, torch.Tensor):
            return self._constant(value)
        if isinstance(value, torch.SymInt):
            return self._size(value)
        if isinstance(value, torch.SymFloat | torch.SymBool):
            raise ExpressionError("a number computed from sizes that vary cannot be an argument here")
        if isinstance(value, Results):
            return [self.argument(one) for one in value]
        if isinstance(value, list | tuple | range):
            return [self.argument(one) for one in value]
        return value

    def _usable(self, node: Node) -> Node:
        if node._erased or node.graph is not self.editor.graph:
            raise ExpressionError(f"%{node.name} is no node of the graph that is rewritten")
        if not node < self.before:
            raise ExpressionError(f"%{node.name} is computed later than the replacement stands")
        return node

    def _argument(self, argument: Any, value: Any) -> Any:
        is_number = isinstance(value, int | float | bool)
        if self.lifts_numbers and is_number and is_tensor_argument(argument.type):
            dtype = torch.float32 if isinstance(value, float) else None
            return self._constant(torch.tensor(value, dtype=dtype))
        return self.argument(value)

    def _make(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Node:
        node = self.editor.call(target, args, kwargs, before=self.before, origins=self.origins)
        self.made.append(node)
        return node

    def _constant(self, tensor: torch.Tensor) -> Node:
        known = self._tensors.get(id(tensor))
        if known is not None:
            return known[1]
        node = self.editor.add_constant(tensor, name=self.name, origins=self.origins)
        self._tensors[id(tensor)] = (tensor, node)
        self.constants.append(node)
        return node

    def _size(self, size: torch.SymInt) -> Any:
        expression = size.node.expr
        if expression.is_Integer:
            return int(expression)
        return self._expression(expression)

    def _expression(self, expression: sympy.Expr) -> Any:
        if expression.is_Integer:
            return int(expression)
        known = self._symbols.get(expression)
        if known is None:
            known = self._read(expression) or self._computed(expression)
            self._symbols[expression] = known
        return known

    def _read(self, expression: sympy.Expr) -> Node | None:
        for node in self.sizes:
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt) and value.node.expr == expression:
                return node
            if not isinstance(value, torch.Tensor):
                continue
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr == expression:
                    return self._make(self.wrap(torch.ops.aten.sym_size.int), (node, dim), {})
        return None

    def _computed(self, expression: sympy.Expr) -> Node:
        combine = operator.add if expression.is_Add else operator.mul if expression.is_Mul else None
        name = type(expression).__name__
        if combine is None and name in ("FloorDiv", "CleanDiv", "Mod", "PythonMod"):
            combine = operator.mod if "Mod" in name else operator.floordiv
        if combine is None or not expression.args:
            raise ExpressionError(f"the size {expression} cannot be read from any value of the match")
        result, *others = [self._expression(part) for part in expression.args]
        for other in others:
            result = self._make(combine, (result, other), {})
        if not isinstance(result, Node):
            raise ExpressionError(f"the size {expression} cannot be computed")
        return result


class Results(Sequence[Any]):
    """Results of a call with several; the nodes that take them out are made when they are asked for."""

    def __init__(self, builder: GraphBuilder, node: Node, count: int) -> None:
        self.builder = builder
        self.node = node
        self.length = count

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(self.length)[index]]
        if not -self.length <= index < self.length:
            raise IndexError(f"the call has {self.length} results")
        return self.builder.item(self.node, index % self.length)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self.length))

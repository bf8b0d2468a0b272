"""From a replacement to nodes: the graph editor makes calls, and constants enter signature and state through it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import (
    INFER,
    DeferredTensor,
    EdgeOpOverload,
    FakeTensor,
    FakeTensorMode,
    GraphEditor,
    NotComputableError,
    copy_graph_module,
    dim_order_from_stride,
    edge_operator,
    end_bytes,
    fake_like,
    graph_argument,
    handles_like,
    infer_value,
    returns_view,
    same_argument,
    underlying,
)
from exirkit.patterns.engine.bodies import make_run
from exirkit.patterns.engine.run_time_numbers import RunTimeNumbers
from exirkit.patterns.forms.catalogue import copying
from exirkit.patterns.operators.arguments import tensor_places
from exirkit.patterns.operators.control_flow import ControlFlow
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.syntax.attributes import Attribute
from exirkit.patterns.syntax.expressions import ExpressionError, NameView
from exirkit.patterns.syntax.programs import Builder
from exirkit.patterns.syntax.replacement_words import BUILDER
from exirkit.patterns.syntax.terms import Operator

_PLAIN = frozenset({int, float, bool, str, type(None)})
"""Types of arguments that are given as they are."""


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
        store_as: How tensors are stored that a replacement says to store, as a kind of input, and whether it persists.
        stored: Stored tensors of the match: what users note of them under `custom`, new constants have too.

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
        store_as: tuple[InputKind, bool] = (InputKind.CONSTANT_TENSOR, True),
        stored: Sequence[Node] = (),
    ) -> None:
        self.editor = editor
        self.before = before
        self.origins = tuple(origins)
        self.wrap = wrap
        self.lifts_numbers = lifts_numbers
        self.name = name
        self.store_as = store_as
        self._custom = next((one.meta["custom"] for one in stored if "custom" in one.meta), None)
        self.made: list[Node] = []
        self.constants: list[Node] = []
        self._numbers = RunTimeNumbers(self.make, wrap(torch.ops.aten.sym_size.int), sizes)
        self._tensors: dict[int, tuple[torch.Tensor, Node]] = {}

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call; return its node, or its results if it has several."""
        if isinstance(op, ControlFlow):
            given = [*args, *(kwargs[one.name] for one in op._schema.arguments[len(args) :])]
            node = make_run(self, op, given)
            return Results(self, node, len(node.meta["val"]))
        lifted = tensor_places(op) if self.lifts_numbers else ()
        positional = [self._argument(value, at in lifted) for at, value in enumerate(args)]
        named = {key: self._argument(value, key in lifted) for key, value in kwargs.items()}
        node = self.make(self.wrap(op), tuple(positional), named)
        value = node.meta.get("val")
        return Results(self, node, len(value)) if isinstance(value, list | tuple) else node

    def put_attribute(self, value: Any, attribute: Attribute, fields: Mapping[str, Any]) -> Any:
        """Give a new call an attribute; return its node.

        Raises:
            ExpressionError: It is not a new call, or a field is not known while the program is lowered.
        """
        if not isinstance(value, Node) or value not in self.made:
            raise ExpressionError(f"attribute {attribute.name} can be given to a new call only")
        for name, field_value in fields.items():
            if isinstance(field_value, Node | torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
                raise ExpressionError(f"field {name!r} of attribute {attribute.name} is not a plain value")
        attribute.write(value, fields, self.editor.set_meta)
        return value

    def item(self, node: Node, index: int) -> Node:
        """Return the node of one result of a call."""
        known = next((u for u in node.users if u.target is operator.getitem and u.args[1] == index), None)
        return known if known is not None else self.make(operator.getitem, (node, index), {})

    def store(self, tensor: torch.Tensor) -> Node:
        """Store a tensor as what it replaces is stored: as a parameter, a buffer or a constant."""
        return self._constant(tensor, self.store_as)

    def take(self, compute: Callable[[Any], Any], names: Mapping[str, Any]) -> Node:
        """Let the program take what is computed from an input instead of it; example inputs are computed as well.

        Raises:
            ExpressionError: It is not one tensor, or has sizes that no input can have.
        """
        root = self.origins[0]
        old = root.meta["val"]
        value = compute(_Values(names, {root: old}, _Inference(self.editor.fake_mode)))
        if not isinstance(value, torch.Tensor):
            raise ExpressionError(f"the program would take a {type(value).__name__} instead of %{root.name}")
        if {str(one) for one in value.shape if not isinstance(one, int)} != {
            str(one) for one in old.shape if not isinstance(one, int)
        }:
            raise ExpressionError(f"sizes of %{root.name} that vary would become others")

        def example(given: torch.Tensor) -> Any:
            with torch.no_grad():
                return compute(_Values(names, {root: given}, TensorBuilder()))

        self.editor.set_user_input(root, value, example)
        return root

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
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Node):
            return self._usable(value)
        if isinstance(value, torch.Tensor):
            return self._constant(value)
        if isinstance(value, torch.SymInt | torch.SymFloat):
            return self._numbers.argument(value)
        if isinstance(value, torch.SymBool):
            raise ExpressionError("a condition on sizes that vary cannot be an argument here")
        if isinstance(value, Results):
            return [self.argument(one) for one in value]
        if isinstance(value, list | tuple | range):
            # Most are sizes and strides.
            return list(value) if _PLAIN.issuperset(map(type, value)) else [self.argument(one) for one in value]
        return value

    def _usable(self, node: Node) -> Node:
        if node._erased or node.graph is not self.editor.graph:
            raise ExpressionError(f"%{node.name} is not a node of the graph that is rewritten")
        if not node < self.before:
            raise LateInputError(f"%{node.name} is computed later than the replacement stands")
        return node

    def _argument(self, value: Any, is_lifted: bool) -> Any:
        """Return a value as an argument; a number given for a tensor may have to become one."""
        if not is_lifted:
            return self.argument(value)
        if isinstance(value, int | float | bool):
            dtype = torch.float32 if isinstance(value, float) else None
            return self._constant(torch.tensor(value, dtype=dtype))
        made = self.argument(value)
        if isinstance(value, torch.SymInt | torch.SymFloat):
            # What Edge does with such a number beside a tensor.
            dtype = torch.float32 if isinstance(value, torch.SymFloat) else torch.int64
            return self.make(self.wrap(torch.ops.aten.scalar_tensor.default), (made,), {"dtype": dtype})
        return made

    def copy(self, node: Node, copied: Mapping[Node, Any]) -> Any:
        """Make a call of another graph again.

        Args:
            node: The call.
            copied: What stands here for nodes of that graph.
        """

        def here(one: Node) -> Any:
            return self.argument(copied[one])

        if node.op == "get_attr":
            module = graph_argument(node)
            assert module is not None, "bodies read graphs, and no other attributes"
            return self.editor.add_subgraph(copy_graph_module(module), str(node.target), before=self.before)
        target: Any = node.target
        args, kwargs = map_arg(node.args, here), map_arg(node.kwargs, here)
        made = self.editor.call(target, args, kwargs, before=self.before, origins=(*self.origins[:1], node))
        self.made.append(made)
        return made

    def around(self, node: Node) -> Node:
        """Return what stands here for a constant of the program."""
        return node

    def inside(self, editor: GraphEditor, before: Node, hand: Callable[[Node], Node]) -> GraphBuilder:
        """Return a builder for a body of control flow.

        Args:
            editor: Editor of the body.
            before: Where its calls stand.
            hand: From a stored tensor of the program to what stands for it in the body.
        """
        return _BodyBuilder(self, editor, before, hand)

    def make(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Node:
        """Make a call of a target of the dialect."""
        val = self._value_of_same(target, args, kwargs)
        node = self.editor.call(target, args, kwargs, before=self.before, origins=self.origins, val=val)
        self.made.append(node)
        return node

    def _value_of_same(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the value of a call that is among what is replaced: sizes that vary are slow to infer."""
        for one in self.origins:
            value = one.meta.get("val")
            # Arguments are told apart by type as well: of integers, 1 and 1.0 make results of different dtypes.
            is_same = one.target is target and same_argument(one.args, args) and same_argument(one.kwargs, dict(kwargs))
            if is_same and type(value) is FakeTensor:
                is_own = not returns_view(target) and "unbacked_bindings" not in one.meta
                return fake_like(self.editor.fake_mode, value) if is_own else INFER
        return INFER

    def _constant(
        self, tensor: torch.Tensor, store_as: tuple[InputKind, bool] = (InputKind.CONSTANT_TENSOR, True)
    ) -> Node:
        known = self._tensors.get(id(tensor))
        if known is not None:
            return known[1]
        if isinstance(tensor, DeferredTensor):
            try:
                # Done once, to know that it can be done.
                end_bytes(tensor, dim_order_from_stride(tensor.stride(), tensor.shape))
            except NotComputableError as error:
                raise ExpressionError(str(error)) from None
        kind, is_persistent = store_as
        if kind is InputKind.PARAMETER and not (tensor.is_floating_point() or tensor.is_complex()):
            kind = InputKind.BUFFER
        node = self.editor.add_constant(
            tensor, name=self.name, origins=self.origins, kind=kind, persistent=is_persistent
        )
        if self._custom is not None:
            self.editor.set_meta(node, "custom", self._custom)
        self._tensors[id(tensor)] = (tensor, node)
        self.constants.append(node)
        return node


class _BodyBuilder(GraphBuilder):
    """Makes nodes of a body; what it stores, the program around stores, and hands it on.

    Args:
        outer: Builder of the graph around.
        editor: Editor of the body.
        before: Where its calls stand.
        hand: From a stored tensor to what stands for it.
    """

    def __init__(self, outer: GraphBuilder, editor: GraphEditor, before: Node, hand: Callable[[Node], Node]) -> None:
        super().__init__(
            editor, before, outer.origins, wrap=outer.wrap, lifts_numbers=outer.lifts_numbers, name=outer.name
        )
        self.outer = outer
        self.hand = hand

    def around(self, node: Node) -> Node:
        """Return what stands here for a constant of the program: it is handed in."""
        return self.hand(self.outer.around(node))

    def _constant(
        self, tensor: torch.Tensor, store_as: tuple[InputKind, bool] = (InputKind.CONSTANT_TENSOR, True)
    ) -> Node:
        return self.hand(self.outer._constant(tensor, store_as))


class _Inference:
    """Runs calls on fake tensors, and adds no condition on sizes.

    Args:
        mode: Their mode.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        found = infer_value(self.mode, op, args, kwargs)
        return list(found) if isinstance(found, tuple | list) else found


class _Values(NameView):
    """Names of a match in which nodes are their values, and calls are run."""

    def __init__(self, names: Mapping[str, Any], given: Mapping[Node, torch.Tensor], builder: Builder) -> None:
        super().__init__(names)
        self.given = given
        self.builder = builder
        self.is_real = isinstance(builder, TensorBuilder)

    def __getitem__(self, key: str) -> Any:
        if key == BUILDER:
            return self.builder
        value = self.names[key]
        if isinstance(value, Node):
            return self.given.get(value, value.meta.get("val"))
        return _hinted(value) if self.is_real else value


def _hinted(value: Any) -> Any:
    """Return sizes that vary as what they are for the example inputs."""
    if isinstance(value, list | tuple):
        return [_hinted(one) for one in value]
    return int(value.node.hint) if isinstance(value, torch.SymInt) else value


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


class LateInputError(ExpressionError):
    """What a replacement reads is computed behind the place where it is to stand."""


def dialect_of(calls: Iterable[Node]) -> tuple[Any, bool]:
    """Return how operators are called in a program: as torch does, or by handles as in Edge."""
    for target in (node.target for node in calls):
        if underlying(target) is not target:
            handle = edge_operator if isinstance(target, EdgeOpOverload) else cache(handles_like(target))
            return partial(_copying_handle, handle), True
    return (lambda op: op), False


def _copying_handle(handle: Callable[[Any], Any], op: Any) -> Any:
    return handle(copying(op))

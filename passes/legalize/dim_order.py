"""Layouts of tensors become what the kernels of the runtime take and produce."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import (
    ControlFlowCall,
    Diagnostic,
    EdgeOpOverload,
    GraphEditor,
    ModelError,
    OpOverload,
    ProgramInterface,
    SubgraphEditor,
    contiguous_stride,
    control_flow_call,
    dim_order_from_stride,
    edge_operator,
    has_trait,
    has_unbacked_symbols,
    infer_value,
    locate,
    ops,
    results_of_graph,
    same_argument,
    stride_from_dim_order,
    underlying,
)
from exirkit.passes.contract import Pass
from exirkit.passes.to_executorch.propagate_specs import all_editors, called_bodies

_ATEN = torch.ops.aten

_TENSOR_TENSOR = "add sub mul div eq ne lt le gt ge remainder fmod bitwise_and bitwise_or bitwise_xor"

WITH_NUMBER: dict[OpOverload, OpOverload] = {
    **{getattr(_ATEN, name).Tensor: getattr(_ATEN, name).Scalar for name in _TENSOR_TENSOR.split()},
    _ATEN.div.Tensor_mode: _ATEN.div.Scalar_mode,
    _ATEN.pow.Tensor_Tensor: _ATEN.pow.Tensor_Scalar,
}
"""For an operator on two tensors, the one that takes a number as its second operand."""

WITH_NUMBER_FIRST: dict[OpOverload, OpOverload] = {
    **{getattr(_ATEN, name).Tensor: getattr(_ATEN, name).Scalar for name in ["add", "mul", "eq", "ne"]},
    _ATEN.sub.Tensor: _ATEN.rsub.Scalar,
    _ATEN.lt.Tensor: _ATEN.gt.Scalar,
    _ATEN.gt.Tensor: _ATEN.lt.Scalar,
    _ATEN.le.Tensor: _ATEN.ge.Scalar,
    _ATEN.ge.Tensor: _ATEN.le.Scalar,
}
"""For an operator on two tensors, the one that takes the second tensor, and a number instead of the first."""


DimOrder = tuple[int, ...]

_CHANNELS_LAST = (0, 2, 3, 1)
_CHANNELS_LAST_FORMATS = (torch.channels_last, torch.channels_last_3d)
_COPY = torch.ops.aten.copy_.default
_CLONE = torch.ops.aten.clone.default


@dataclass(eq=False, kw_only=True)
class LegalizeDimOrder(Pass):
    """Insert copies to another dim order where a kernel does not take, or does not produce, the layout of a value.

    Elementwise kernels want one layout and one shape for all their tensors, convolution and pooling one layout for
    input and output, all others row-major tensors. What a kernel always writes row-major (`nonzero`) is recorded as
    such. Constants are laid out again instead of being copied at run time, and a constant number becomes a plain one,
    which has no layout. Results of branches and loops are row-major. Results of the program keep the layout they had.

    A graph of row-major tensors, the usual case, is only examined.

    Args:
        skip_dim_order: Introduce no operators of `dim_order_ops`: only inputs, constants and recorded layouts are
            fixed.

    Before: `%sum = sum.dim_IntList(%x, [1])` where x is channels last
    After: `%copy = _to_dim_order_copy(%x, dim_order=[0, 1, 2, 3])`; `%sum = sum.dim_IntList(%copy, [1])`
    """

    name = "legalize-dim-order"
    ensures = ("dim-orders-agree",)
    invalidates = ("specs", "bounded-shapes")

    skip_dim_order: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Visit every node once, in graph order; then at those of the bodies of control flow."""
        editors = list(all_editors(editor))
        if self.skip_dim_order:
            for one in editors:
                _leave_out_preserved(one)
        graphs = [one.graph for one in editors]
        every = (value for graph in graphs for node in graph.nodes for value in _tensors(node))
        inputs = (node for graph in graphs for node in graph.find_nodes(op="placeholder"))
        if all(map(_is_row_major, every)) and all(map(_is_dense, inputs)):
            return
        _Legalizer(editor, self.skip_dim_order).sweep()
        self._legalize_bodies(editor)

    def _legalize_bodies(self, editor: GraphEditor) -> None:
        for call, body in called_bodies(editor):
            with body.transaction(self.name, records_effect=False):
                _BodyLegalizer(call, body, self.skip_dim_order).sweep()
                self._legalize_bodies(body)


def _leave_out_preserved(editor: GraphEditor) -> None:
    """Leave `memory_format=preserve_format` out of clones: it is what they do without one, and no kernel takes it."""
    for node in list(editor.graph.nodes):
        if node.kwargs.get("memory_format") == torch.preserve_format and underlying(node.target) is _CLONE:
            kwargs = {key: value for key, value in node.kwargs.items() if key != "memory_format"}
            editor.retarget(node, node.target, node.args, kwargs, val=node.meta["val"])


class _Legalizer:
    def __init__(self, editor: GraphEditor, skips: bool) -> None:
        self._editor = editor
        self._skips = skips
        self._changed: set[Node] = set()
        self._forced: dict[Node, Any] = {}
        self._copies: dict[tuple[Node, DimOrder], Node] = {}
        # Targets, in the program's tables, of placeholders that hold constants.
        self._constants: dict[Node, str] = {}

    def sweep(self) -> None:
        """Legalize the nodes in their order."""
        nodes = list(self._editor.graph.nodes)
        output = self._editor.graph.output_node()
        results = results_of_graph(self._editor.program.graph_module)
        wanted = [self._wanted(one) if _is_tensor(one) else None for one in results]
        self._placeholders()
        for node in nodes:
            if node.op != "call_function":
                continue
            if not self._changed.isdisjoint(node.all_input_nodes):
                self._infer(node)
            operands = [one for one in node.all_input_nodes if _is_tensor(one)]
            if not all(_is_row_major(value) for one in (*operands, node) for value in _tensors(one)):
                self._call(node, underlying(node.target), operands)
        self._settle()
        self._restore_results(output, wanted)
        for constant in self._constants:
            if not constant.users:
                self._editor.remove_input(constant)

    def _wanted(self, result: Node) -> DimOrder:
        """Return the dim order that a result is to have."""
        return _order(result)

    def _placeholders(self) -> None:
        """Make inputs and constants row-major or channels last, without gaps: the runtime knows no other layouts."""
        editor = self._editor
        interface = ProgramInterface.of(editor.program)
        for node, spec in interface.inputs.items():
            if not _is_tensor(node):
                continue
            is_stored = interface.is_stored(node)
            if not (_is_legal(_order(node)) and _is_dense(node)):
                self._changed.add(node)
                order = _order(node) if _is_legal(_order(node)) else _row_major(node)
                if is_stored:
                    editor.set_tensor(node, _in_memory(self._lookup(str(spec.target)), order))
                else:
                    self._set_value(node, self._laid_out(node.meta["val"], order))
            if is_stored and not interface.is_written(node):
                self._constants[node] = str(spec.target)

    def _call(self, node: Node, op: Any, operands: Sequence[Node]) -> None:
        if self._skips and node.kwargs.get("memory_format") in _CHANNELS_LAST_FORMATS:
            self._keep_layout(node, operands)
        call = control_flow_call(node)
        if call is not None:
            rows = [one for one in (*call.carried, *call.sliced) if _is_tensor(one)]
            self._demand(node, {one: _row_major(one) for one in rows})
            self._force(node, None)
        elif has_trait(op, "any_layouts"):
            self._state_legal_order(node)
        elif self._skips and op is _CLONE and "memory_format" not in node.kwargs:
            # It copies byte by byte, whatever the layout, as long as both are the same.
            self._force(node, _order(operands[0]))
        elif not isinstance(op, OpOverload) or op.namespace != "aten":
            # Kernels of other libraries may take any layout.
            return
        elif has_trait(op, "channels_last") and _order(node) == _CHANNELS_LAST:
            self._demand(node, {operands[0]: _CHANNELS_LAST})
        elif has_trait(op, "one_layout") and self._is_uniform(node, op):
            order = _order(node.args[0] if op is _COPY else node)
            order = order if _is_legal(order) else _row_major(node)
            self._demand(node, {one: order for one in node.all_input_nodes if _is_tensor(one)})
            self._force(node, order)
        else:
            self._demand(node, {one: _row_major(one) for one in operands})
            self._force(node, None)

    def _keep_layout(self, node: Node, operands: Sequence[Node]) -> None:
        """Without dim-order operators: keep the layout of the operand, because no kernel makes another one."""
        kwargs = {key: value for key, value in node.kwargs.items() if key != "memory_format"}
        if not (operands and _order(operands[0]) == _order(node)):
            kwargs["memory_format"] = torch.contiguous_format
        self._rewire(node, node.args, kwargs)
        self._infer(node)

    def _state_legal_order(self, node: Node) -> None:
        order = node.kwargs.get("dim_order")
        if order is not None and not _is_legal(tuple(order)):  # type: ignore[arg-type]
            value = self._laid_out(node.meta["val"], None)
            kwargs = {**node.kwargs, "dim_order": list(_row_major(node))}
            self._rewire(node, node.args, kwargs)
            self._set_value(node, value)

    def _is_uniform(self, node: Node, op: OpOverload) -> bool:
        """Return whether all operands have the shape of the result, once a constant became a plain number if needed."""
        operands = [one for one in node.all_input_nodes if _is_tensor(one)]
        odd = [one for one in operands if not _same_shape(one.meta["val"], node.meta["val"])]
        return not odd or (len(odd) == 1 and self._use_number(node, op, odd[0]))

    def _use_number(self, node: Node, op: OpOverload, operand: Node) -> bool:
        if operand not in self._constants or len(node.args) < 2:
            return False
        left, right = node.args[:2]
        is_first = left is operand
        variant = (WITH_NUMBER_FIRST if is_first else WITH_NUMBER).get(op)
        tensor = self._lookup(self._constants[operand])
        # A factor (`alpha`) belongs to the second operand, whichever that is.
        if variant is None or tensor.numel() != 1 or (is_first and node.kwargs):
            return False
        args = (right if is_first else left, tensor.item(), *node.args[2:])
        value, known = infer_value(self._editor.fake_mode, variant, args, node.kwargs), node.meta["val"]
        if value.dtype != known.dtype or not _same_shape(value, known):
            return False
        target = edge_operator(variant) if isinstance(node.target, EdgeOpOverload) else variant
        self._editor.retarget(node, target, args, dict(node.kwargs), val=known)
        self._set_value(node, value)
        return True

    def _demand(self, node: Node, orders: Mapping[Node, DimOrder]) -> None:
        """Give a call its operands in these orders, and infer its value again if that changed any of them."""
        others = {one: self._in_order(one, order) for one, order in orders.items() if _order(one) != order}
        if all(one is other for one, other in others.items()):
            return
        if node.target is _COPY:
            # The first argument is what is written.
            others.pop(node.all_input_nodes[0], None)
        args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda one: others.get(one, one))
        self._rewire(node, args, kwargs)
        self._infer(node)

    def _rewire(self, node: Node, args: Any, kwargs: Any) -> None:
        """Give a call other arguments; its value is the sweep's business."""
        target: Any = node.target
        self._editor.retarget(node, target, args, kwargs, val=node.meta["val"])

    def _in_order(self, node: Node, order: DimOrder) -> Node:
        """Return a node with the same value in another dim order; made once, right behind the node."""
        if (node, order) not in self._copies:
            self._copies[(node, order)] = self._made_in_order(node, order)
        return self._copies[(node, order)]

    def _made_in_order(self, node: Node, order: DimOrder) -> Node:
        editor = self._editor
        # Constants of one element are shared whatever their strides are, so that another layout cannot be had.
        if node in self._constants and (tensor := self._lookup(self._constants[node])).numel() > 1:
            return editor.add_constant(_in_memory(tensor, order), name=f"{node.name}_laid_out", origins=node)
        if self._skips:
            raise ModelError(_no_way(node, order))
        copy = ops.edge.dim_order_ops._to_dim_order_copy.default
        before = node.next
        while before.op == "placeholder":
            before = before.next
        value = self._laid_out(node.meta["val"], order)
        return editor.call(copy, (node,), {"dim_order": list(order)}, before=before, origins=node, val=value)

    def _restore_results(self, output: Node, wanted: Sequence[DimOrder | None]) -> None:
        results = results_of_graph(self._editor.program.graph_module)
        for place, (one, order) in enumerate(zip(results, wanted, strict=True)):
            if order is not None and _is_legal(order) and _order(one) != order and one.target is not _COPY:
                results[place] = self._in_order(one, order)
        # The graph that says whether a loop goes on returns one value, not a tuple of one.
        is_tuple = isinstance(output.args[0], list | tuple)
        self._editor.rewire(output, (tuple(results) if is_tuple else results[0],))

    def _infer(self, node: Node) -> None:
        if not has_unbacked_symbols(node) and control_flow_call(node) is None:
            self._set_value(node, infer_value(self._editor.fake_mode, node.target, node.args, node.kwargs))

    def _force(self, node: Node, order: DimOrder | None) -> None:
        """Record what the kernel writes, which inference may see otherwise."""
        value = self._laid_out(node.meta["val"], order)
        if value is not node.meta["val"]:
            self._forced[node] = value
            self._set_value(node, value)

    def _settle(self) -> None:
        """Let the editor infer what it has to, without losing what was forced."""
        self._editor.propagate()
        for node, value in self._forced.items():
            if not node._erased and not same_value_and_layout(node.meta["val"], value):
                self._editor.set_value(node, value)
                self._editor.propagate()

    def _set_value(self, node: Node, value: Any) -> None:
        if not same_value_and_layout(node.meta["val"], value):
            self._editor.set_value(node, value)
            self._changed.add(node)

    def _laid_out(self, value: Any, order: DimOrder | None) -> Any:
        """Return a value (or values) like this one, in a dim order; None for row-major."""
        if isinstance(value, list | tuple):
            laid_out = [self._laid_out(one, order) for one in value]
            return value if all(map(operator.is_, laid_out, value)) else type(value)(laid_out)
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        strides = stride_from_dim_order(value.shape, order if order is not None else range(value.dim()))
        if same_argument(tuple(strides), tuple(value.stride())):
            return value
        with self._editor.fake_mode:
            return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)

    def _lookup(self, target: str) -> torch.Tensor:
        program = self._editor.program
        found: torch.Tensor = program.state_dict[target] if target in program.state_dict else program.constants[target]
        return found


def _no_way(node: Node, order: DimOrder) -> Diagnostic:
    return Diagnostic.of(
        code="EK428",
        message=f"%{node.name} is laid out in dim order {list(_order(node))}, and is needed in order {list(order)}",
        location=locate(node),
        expected="layouts that all kernels take, where no operator may change them",
        hint="leave out `_skip_dim_order=True`, or export the model with contiguous inputs and weights",
    )


class _BodyLegalizer(_Legalizer):
    """Legalizes a body: inputs are laid out as what they are given, and results row-major, alike in all branches."""

    def __init__(self, call: ControlFlowCall, body: SubgraphEditor, skips: bool) -> None:
        super().__init__(body, skips)
        self._call_of_body = call

    def _wanted(self, result: Node) -> DimOrder:
        return _row_major(result)

    def _made_in_order(self, node: Node, order: DimOrder) -> Node:
        made = super()._made_in_order(node, order)
        handle = self._call_of_body.node.meta.get("debug_handle")
        if made.meta.get("debug_handle") is None and handle is not None:
            # What an input of the body comes from has no handle; the call is what the copy is made for.
            self._editor.set_meta(made, "debug_handle", handle)
        return made

    def _placeholders(self) -> None:
        call = self._call_of_body
        inputs = self._editor.graph.find_nodes(op="placeholder")
        shared = inputs[len(call.carried) + len(call.sliced) :]
        operands = dict(zip(shared, call.shared, strict=False))
        for node in inputs:
            if _is_tensor(node):
                operand = operands.get(node)
                order = _order(operand) if _is_tensor(operand) else _row_major(node)
                self._set_value(node, self._laid_out(node.meta["val"], order))


def same_value_and_layout(left: Any, right: Any) -> bool:
    """Return whether two values, or sequences of them, agree in dtype, shape and strides."""
    return same_argument(_described(left), _described(right))


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), tuple(value.stride()) if value.layout is torch.strided else None)
    return [_described(one) for one in value] if isinstance(value, list | tuple) else value


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("val")
    for one in value if isinstance(value, list | tuple) else (value,):
        if isinstance(one, torch.Tensor) and one.layout is torch.strided:
            yield one


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _is_row_major(value: torch.Tensor) -> bool:
    if value.dim() < 2 or same_argument(tuple(value.stride()), tuple(contiguous_stride(value.shape))):
        return True
    return dim_order_from_stride(value.stride(), value.shape) == list(range(value.dim()))


def _is_dense(node: Node) -> bool:
    """Return whether the recorded strides are those of the dim order: no gaps, and nothing repeated."""
    return all(
        same_argument(tuple(value.stride()), tuple(stride_from_dim_order(value.shape, _order(node))))
        for value in _tensors(node)
    )


def _in_memory(tensor: torch.Tensor, order: DimOrder) -> torch.Tensor:
    """Return a copy that is laid out in a dim order."""
    strides = stride_from_dim_order(tensor.shape, order)
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor.detach())


def _order(node: Any) -> DimOrder:
    value = next(_tensors(node))
    return tuple(dim_order_from_stride(value.stride(), value.shape))


def _row_major(node: Node) -> DimOrder:
    return tuple(range(next(_tensors(node)).dim()))


def _is_legal(order: DimOrder) -> bool:
    return order == tuple(range(len(order))) or order == _CHANNELS_LAST


def _same_shape(left: torch.Tensor, right: torch.Tensor) -> bool:
    return same_argument(tuple(left.shape), tuple(right.shape))

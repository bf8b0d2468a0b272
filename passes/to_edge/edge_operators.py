"""Edge operators: the argument types that they take, constants outside the graph, and the operators themselves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, reduce
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    EdgeOpOverload,
    GraphEditor,
    ModelError,
    dim_order_from_stride,
    edge_operator,
    locate,
    ops,
    underlying,
)
from exirkit.passes.contract import Pass

_NUMBERS = (bool, int, float, complex)
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class ScalarsToTensors(Pass):
    """Turn a Python number in a tensor's place into a constant of no dims.

    The constant gets the dtype in which the operator computes, so no cast is left to be done at run time: `x + 1` on
    floats adds a float constant. Equal constants are shared.

    Source: torch's promotion rules for a tensor and a Python number.

    Before: `%add = aten.add.Tensor(%x, 1)`
    After: `%add = aten.add.Tensor(%x, %c_scalar)` with the constant `tensor(1.)`
    """

    name = "scalars-to-tensors"
    enters_bodies = True
    requires = ("constants-lifted",)
    ensures = ("numbers-lifted",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Lift the numbers."""
        for node in list(editor.graph.nodes):
            for name, value in tensor_slots(node):
                if type(value) in _NUMBERS:
                    constant = editor.add_constant(_constant(node, value), name="c_scalar", origins=node)
                    _set_argument(editor, node, name, constant)


class SymbolsToTensors(Pass):
    """Turn a symbolic number in a tensor's place into a tensor that is made from it at run time.

    Before: `%mul = aten.mul.Tensor(%x, %sym_size)`
    After: `%t = aten.scalar_tensor.default(%sym_size, dtype=...)`; `%mul = aten.mul.Tensor(%x, %t)`
    """

    name = "symbols-to-tensors"
    enters_bodies = True
    requires = ("numbers-lifted",)
    ensures = ("tensor-arguments",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Insert the conversions."""
        for node in list(editor.graph.nodes):
            for name, value in tensor_slots(node):
                if isinstance(value, Node) and isinstance(value.meta.get("val"), (*_SYMBOLS, *_NUMBERS)):
                    dtype = computed_dtype(node, _example(value.meta["val"]))
                    made = editor.call(
                        torch.ops.aten.scalar_tensor.default,
                        (value,),
                        {"dtype": dtype},
                        before=node,
                        origins=node,
                    )
                    _set_argument(editor, node, name, made)


def tensor_slots(node: Node) -> Iterator[tuple[str | int, Any]]:
    """Yield position or name, and value, of the arguments for which the operator's schema wants one tensor."""
    if node.op != "call_function":
        return
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return
    positions, names = _tensor_arguments(underlying(node.target))
    for position in positions:
        if position < len(node.args):
            yield position, node.args[position]
    for name in names if node.kwargs else ():
        if name in node.kwargs:
            yield name, node.kwargs[name]


@cache
def _tensor_arguments(op: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    wanted = [
        (position, argument.name)
        for position, argument in enumerate(op._schema.arguments)
        if isinstance(argument.type, torch.TensorType)
        or (
            isinstance(argument.type, torch.OptionalType)
            and isinstance(argument.type.getElementType(), torch.TensorType)
        )
    ]
    return tuple(position for position, _ in wanted), tuple(name for _, name in wanted)


def computed_dtype(node: Node, number: Any) -> torch.dtype:
    """Return the dtype in which an operator computes with `number` beside its tensors.

    With no tensor beside it, the number alone decides.
    """
    tensors = [
        value.meta["val"]
        for _, value in tensor_slots(node)
        if isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)
    ]
    if not tensors:
        return torch.result_type(number, number)
    dtypes = [torch.result_type(tensor, number) for tensor in tensors]
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = torch.promote_types(result, dtype)
    return result


def _constant(node: Node, number: bool | int | float | complex) -> torch.Tensor:
    try:
        dtype = computed_dtype(node, number)
        # Two steps, because a number that does not fit wraps in torch's arithmetic, while tensor() rejects it. The
        # first keeps all digits of a float, which the default dtype does not.
        exact = torch.float64 if isinstance(number, float) else None
        return torch.tensor(number, dtype=exact).to(dtype)
    except (OverflowError, RuntimeError) as error:
        raise ModelError(
            Diagnostic(
                code="EK423",
                message=f"the number {number} does not fit a tensor: {error}",
                location=locate(node),
                expected="an integer of 64 bits or a float",
            )
        ) from error


def _example(value: Any) -> bool | int | float:
    """Return a plain number of the same kind: promotion depends on the kind only."""
    if isinstance(value, torch.SymBool | bool):
        return True
    return 1 if isinstance(value, torch.SymInt | int) else 1.0


def _set_argument(editor: GraphEditor, node: Node, where: str | int, value: Node) -> None:
    if isinstance(where, int):
        args = list(node.args)
        args[where] = value
        _rewire_like(editor, node, tuple(args), dict(node.kwargs))
    else:
        _rewire_like(editor, node, node.args, {**node.kwargs, where: value})


def _rewire_like(editor: GraphEditor, node: Node, args: Any, kwargs: dict[str, Any]) -> None:
    # A constant of no dims and the computed dtype changes neither shape nor dtype of the result.
    editor.rewire(node, args, kwargs, val=node.meta["val"])


# Operators whose two operands the kernels of small runtimes want in one dtype.
_ARITHMETIC = frozenset(
    {
        torch.ops.aten.add.Tensor,
        torch.ops.aten.sub.Tensor,
        torch.ops.aten.mul.Tensor,
        torch.ops.aten.div.Tensor,
        torch.ops.aten.div.Tensor_mode,
        torch.ops.aten.minimum.default,
        torch.ops.aten.maximum.default,
    }
)


_WHERE = torch.ops.aten.where.self


class PromoteTypes(Pass):
    """Insert casts so that both operands of an arithmetic operator have the dtype that torch promotes them to.

    Ensures: operands of the operators above have one dtype; those of `where` have it if one of them would not count in
        torch, because it has no dims, and does count in a kernel.

    Before: `%add = aten.add.Tensor(%i64, %f32)`
    After: `%c = aten._to_copy.default(%i64, dtype=torch.float32)`; `%add = aten.add.Tensor(%c, %f32)`
    """

    name = "promote-types"
    enters_bodies = True
    requires = ("tensor-arguments",)
    invalidates = ()
    before = ("convert-to-edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Insert the casts."""
        for node in list(editor.graph.nodes):
            op = underlying(node.target)
            if node.op != "call_function" or (op not in _ARITHMETIC and op is not _WHERE):
                continue
            at = 1 if op is _WHERE else 0
            left, right = node.args[at : at + 2]
            if not (isinstance(left, Node) and isinstance(right, Node)):
                continue
            one, other = left.meta["val"], right.meta["val"]
            promoted = torch.result_type(one, other)
            if one.dtype == other.dtype or (op is _WHERE and promoted == torch.promote_types(one.dtype, other.dtype)):
                continue
            cast = [self._cast(editor, node, operand, promoted) for operand in (left, right)]
            editor.rewire(node, (*node.args[:at], *cast, *node.args[at + 2 :]), val=node.meta["val"])

    @staticmethod
    def _cast(editor: GraphEditor, node: Node, operand: Node, dtype: torch.dtype) -> Node:
        if operand.meta["val"].dtype == dtype:
            return operand
        return editor.call(torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype}, before=node, origins=node)


class LiftConstants(Pass):
    """Turn `get_attr` nodes of tensors into placeholders with a place in signature and constants.

    Passes that create tensors leave such nodes behind.
    """

    name = "lift-constants"
    enters_bodies = True
    ensures = ("constants-lifted",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Lift every tensor attribute."""
        module = editor.program.graph_module
        for node in editor.graph.find_nodes(op="get_attr"):
            value = reduce(getattr, str(node.target).split("."), module)
            if isinstance(value, torch.Tensor):
                name = str(node.target).replace(".", "_").lstrip("_")
                editor.replace(node, editor.add_constant(value, name=f"c_{name}", origins=node))
                editor.erase(node)


_VARIANTS: dict[OpOverload | DefinedOperator, Any] = {
    torch.ops.aten._to_copy.default: ops.edge.dim_order_ops._to_dim_order_copy.default,
    torch.ops.aten.clone.default: ops.edge.dim_order_ops._clone_dim_order.default,
    torch.ops.aten.empty.memory_format: ops.edge.dim_order_ops._empty_dim_order.default,
}

_KEPT_ARGUMENTS = ("dtype", "non_blocking")


class UseDimOrderOperators(Pass):
    """Replace `_to_copy`, `clone` and `empty` by operators of `dim_order_ops` that name the order of dims in memory.

    The order is the one the value has, so no memory format is left to be guessed at run time.
    """

    name = "use-dim-order-operators"
    enters_bodies = True
    requires = ("no-views",)
    invalidates = ()
    before = ("convert-to-edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Replace the operators."""
        for node in list(editor.graph.nodes):
            if node.op != "call_function":
                continue
            variant = _VARIANTS.get(underlying(node.target)) if callable(node.target) else None
            if variant is None:
                continue
            value = node.meta["val"]
            kwargs = {key: node.kwargs[key] for key in _KEPT_ARGUMENTS if key in node.kwargs}
            kwargs["dim_order"] = list(dim_order_from_stride(value.stride(), value.shape))
            editor.retarget(node, variant, node.args, kwargs, val=value)
            editor.rename(node, editor.graph._target_to_str(variant))


# Assertions are no operators of the Edge dialect: they stay as they are until the graph is lowered further.
_ASSERTIONS = frozenset(
    {
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
    }
)


class ConvertToEdgeOperators(Pass):
    """Replace each torch overload by its edge handle, and name the node after it.

    Ensures: call targets are edge handles, arithmetic on sizes, `getitem`, or assertions.

    Before: `%add = aten.add.Tensor(%x, %y)`
    After: `%aten_add_tensor = edge.aten.add.Tensor(%x, %y)`
    """

    name = "convert-to-edge-operators"
    enters_bodies = True
    requires = ("functional", "control-flow", "no-views", "tensor-arguments", "constants-lifted")
    ensures = ("edge-operators",)
    invalidates = ("core-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Convert every call."""
        names: dict[EdgeOpOverload, str] = {}
        for node in editor.graph.nodes:
            target = node.target
            if node.op != "call_function" or not isinstance(target, OpOverload) or target in _ASSERTIONS:
                continue
            handle = edge_operator(target)
            editor.retarget(node, handle, val=node.meta.get("val"))
            if handle not in names:
                names[handle] = editor.graph._target_to_str(handle)
            editor.rename(node, names[handle])

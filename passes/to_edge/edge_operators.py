"""Edge operators instead of ATen overloads, and constants as inputs."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
import torch.export.custom_ops  # registers the operator below
from torch._ops import OpOverload
from torch.fx import Node

from exirkit.ir import (
    DefinedOperator,
    EdgeOpOverload,
    GraphEditor,
    ProgramInterface,
    dim_order_from_stride,
    edge_operator,
    get_param_tensor,
    ops,
    underlying,
    written_by_position,
)
from exirkit.passes.contract import Pass


class LiftConstants(Pass):
    """Turn `get_attr` nodes of tensors into placeholders with a place in signature and constants.

    Passes that create tensors leave such nodes behind. Weights that are objects of tensor subclasses, as torchao's
    `quantize_` makes them, are stored as the tensors that they consist of, which torch.export takes out by calls.
    """

    name = "lift-constants"
    enters_bodies = True
    ensures = ("constants-lifted",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Lift every tensor attribute."""
        _take_subclasses_apart(editor)
        module = editor.program.graph_module
        for node in editor.graph.find_nodes(op="get_attr"):
            value = reduce(getattr, str(node.target).split("."), module)
            if isinstance(value, torch.Tensor):
                name = str(node.target).replace(".", "_").lstrip("_")
                editor.replace(node, editor.add_constant(value, name=f"c_{name}", origins=node))
                editor.erase(node)


def _take_subclasses_apart(editor: GraphEditor) -> None:
    """Store the inner tensors of weights that are objects of tensor subclasses."""
    taken = list(editor.graph.find_nodes(op="call_function", target=_INNER_TENSOR))
    interface = ProgramInterface.of(editor.program) if taken else None
    stored: dict[tuple[Node, tuple[str, ...]], Node] = {}
    # From the last to the first: what is taken out of an inner tensor comes behind that.
    for node in reversed(taken):
        assert interface is not None
        owner, path = _owner_of(node)
        if not node.users:
            editor.erase(node)
        elif interface.is_stored(owner) and not interface.is_written(owner):
            if (owner, path) not in stored:
                value = reduce(getattr, path, get_param_tensor(editor, owner))
                kind, name = interface.inputs[owner].kind, "_".join((owner.name, *path))
                assert value is not None
                stored[owner, path] = editor.add_constant(value, name=name, origins=node, kind=kind)
            editor.replace(node, stored[owner, path])
            editor.erase(node)


def _owner_of(node: Node) -> tuple[Node, tuple[str, ...]]:
    """Return where an inner tensor comes from, and the attributes on the way to it."""
    owner: Any = node.args[0]
    attribute = str(node.args[1])
    if owner.target is _INNER_TENSOR:
        outermost, path = _owner_of(owner)
        return outermost, (*path, attribute)
    return owner, (attribute,)


_INNER_TENSOR = torch.ops.export.access_subclass_inner_tensor.default

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

    Arguments that may be given by position are, as torch.export writes them; calls that passes made may name them.

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
            args, kwargs = written_by_position(target, node.args, node.kwargs) if node.kwargs else (None, None)
            editor.retarget(node, handle, args, kwargs, val=node.meta.get("val"))
            if handle not in names:
                names[handle] = editor.graph._target_to_str(handle)
            editor.rename(node, names[handle])

"""Making the calls of one replacement in an Edge program."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import GraphEditor, dim_order_from_stride, ops, underlying
from exirkit.passes.analysis import StoredValues
from exirkit.passes.contract import Pass

_CHANNELS_LAST = [0, 2, 3, 1]


class EdgeCalls:
    """Makes Edge calls in front of a node, on behalf of it; call it with a target and its arguments.

    Args:
        editor: Editor of the graph.
        node: The node that the calls are to replace.
        skip_dim_order: Make no operators of `dim_order_ops`.
    """

    def __init__(self, editor: GraphEditor, node: Node, *, skip_dim_order: bool = False) -> None:
        self._editor = editor
        self.node = node
        self._skip_dim_order = skip_dim_order

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Make a call and return its node."""
        return self._editor.call(target, args, kwargs, before=self.node, origins=self.node)

    def given_value(self, value: torch.Tensor, target: Any, *args: Any) -> Node:
        """Make a call whose value is known; where no size varies, it is inferred."""
        if all(isinstance(size, int) for size in value.shape):
            return self(target, *args)
        return self._editor.call(target, args, before=self.node, origins=self.node, val=value)

    def size(self, tensor: Node, dim: int) -> int | Node:
        """Return the size of a dim, as a node where it varies."""
        size = tensor.meta["val"].shape[dim]
        if isinstance(size, int):
            return size
        call = ops.edge.aten.sym_size.int
        return self._editor.call(call, (tensor, dim), before=self.node, origins=self.node, val=size)

    def cast(self, tensor: Node, dtype: torch.dtype) -> Node:
        """Return a tensor of another dtype, with the same layout."""
        value = tensor.meta["val"]
        if value.dtype is dtype:
            return tensor
        if self._skip_dim_order:
            return self(ops.edge.aten._to_copy.default, tensor, dtype=dtype)
        order = list(dim_order_from_stride(value.stride(), value.shape))
        return self(ops.edge.dim_order_ops._to_dim_order_copy.default, tensor, dtype=dtype, dim_order=order)

    def laid_out_as(self, tensor: Node, value: torch.Tensor) -> Node:
        """Return a tensor in the layout of a value of its sizes, if that is channels last."""
        order, found = (list(dim_order_from_stride(one.stride(), one.shape)) for one in (value, tensor.meta["val"]))
        if self._skip_dim_order or order == found or order != _CHANNELS_LAST:
            return tensor
        return self(ops.edge.dim_order_ops._clone_dim_order.default, tensor, dim_order=order)

    def given(self, *names: str) -> list[Any]:
        """Return arguments of the node by name, with their defaults."""
        target: Any = self.node.target
        schema = underlying(target)._schema.arguments
        given = dict(zip((one.name for one in schema), self.node.args, strict=False)) | dict(self.node.kwargs)
        defaults = {one.name: one.default_value for one in schema}
        return [given.get(name, defaults[name]) for name in names]

    def known(self, value: Any) -> torch.Tensor | None:
        """Return what a tensor contains, if the program stores it and only reads it, or fills it with one number."""
        if not isinstance(value, Node):
            return None
        if value.target is ops.edge.aten.full.default:
            filled = value.args[1]
            return torch.tensor([filled]).to(value.meta["val"].dtype) if isinstance(filled, int | float) else None
        return StoredValues(self._editor.program).tensor(value)

    def view(self, tensor: Node, sizes: Sequence[Any]) -> Node:
        """Return a tensor read as one of other sizes, of which one may be -1."""
        return self(ops.edge.aten.view_copy.default, tensor, list(sizes))

    def permute(self, tensor: Node, dims: Sequence[int]) -> Node:
        """Return a tensor with its dims in another order."""
        return self(ops.edge.aten.permute_copy.default, tensor, list(dims))


class CallLegalization(Pass):
    """A pass that replaces those calls of an Edge program that kernels reject, each on its own."""

    enters_subgraphs = True
    requires = ("edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Replace the calls, in graph order."""
        for node in list(editor.graph.nodes):
            if self.concerns(node):
                self.put(editor, node)

    @staticmethod
    @abstractmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""

    def put(self, editor: GraphEditor, node: Node) -> None:
        """Replace a node by what `made` returns."""
        editor.replace(node, self.made(EdgeCalls(editor, node)))
        editor.erase(node)

    def made(self, calls: EdgeCalls) -> Node:
        """Make the calls that replace `calls.node`, and return the last one."""
        raise NotImplementedError

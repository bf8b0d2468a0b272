"""The hooks of an `ExportPass`: one per kind of node, each making by default the node that it is called for."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from exirkit.ir import Diagnostic, UsageError, edge_operator
from exirkit.passes.user_passes.base import PassBase

from .tracer import ExportTracer
from .values import NodeMetadata, ProxyValue, entries_of
from .walk import GraphWalk


class ExportPassHooks(PassBase):
    """What subclasses of `ExportPass` may override.

    Attributes:
        tracer: Builder of the new graph, while a graph is being re-traced.
        fake_tensor_mode: Mode of the graph's fake tensors, meanwhile.
    """

    tracer: ExportTracer | None = None
    fake_tensor_mode: FakeTensorMode | None = None
    _walk: GraphWalk | None = None

    @abstractmethod
    def call_submodule(self, graph_module: GraphModule, inputs: tuple[Any, ...]) -> PassResult:
        """Re-trace a graph."""

    # The name is what subclasses in the field override and call.
    @abstractmethod
    def _fx(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, meta: NodeMetadata
    ) -> ProxyValue:
        """Make one node."""

    def on_attr(self, attr: ProxyValue) -> None:
        """Hear of a constant tensor that the new graph reads; `attr.data` is the tensor itself."""

    def placeholder(self, name: str, arg: Any, meta: NodeMetadata) -> ProxyValue:
        """Make an input of the graph."""
        tracer = self.active_tracer
        old = self._walk.node if self._walk is not None else None
        is_heir = old is not None and old.op == "placeholder" and old.target == name
        default = old.args if is_heir and old is not None else ()
        node = tracer.append("placeholder", name, default, {}, old.name if is_heir and old is not None else name)
        if is_heir and old is not None and old.type is not None:
            node.type = old.type
        node.meta.update(entries_of(meta))
        if "val" in node.meta or arg is not None:
            if node.meta.get("val") is not arg:
                node.meta.pop("tensor_meta", None)
            node.meta["val"] = arg
        return tracer.produced(arg, node)

    def call_operator(
        self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """Make a call of an operator: a torch overload, a handle from `ops.edge`, or any other function on tensors."""
        return self._fx("call_function", op, args, kwargs, meta)

    def call_size_operator(
        self, tensor_proxy: ProxyValue, dim: int, meta: NodeMetadata, *, edge_dialect: bool = False
    ) -> ProxyValue | int:
        """Return a size of a tensor for use as an argument: an int if it is static, else a node that reads it."""
        size = tensor_proxy.to_tensor().shape[dim]
        if isinstance(size, int):
            return size
        plain = torch.ops.aten.sym_size.int
        # Not through the hook of the subclass, which most likely is the one that asks.
        return self._fx("call_function", edge_operator(plain) if edge_dialect else plain, (tensor_proxy, dim), {}, meta)

    def call_size_operator_all(
        self, tensor_proxy: ProxyValue, meta: NodeMetadata, *, edge_dialect: bool = False
    ) -> list[ProxyValue | int]:
        """Return all sizes of a tensor, see `call_size_operator`."""
        rank = tensor_proxy.to_tensor().dim()
        return [self.call_size_operator(tensor_proxy, dim, meta, edge_dialect=edge_dialect) for dim in range(rank)]

    def call_sym(self, target: Callable[..., Any], args: tuple[Any, ...], meta: NodeMetadata) -> ProxyValue:
        """Make a call of a function on numbers, such as `operator.add` or `torch.sym_max`."""
        return self._fx("call_function", target, args, {}, meta)

    def call_cond(
        self, pred: Any, true_fn: GraphModule, false_fn: GraphModule, inputs: Sequence[Any], meta: NodeMetadata
    ) -> ProxyValue:
        """Re-trace both branches and make the `cond`."""
        chosen = self.call_submodule(true_fn, tuple(inputs)).graph_module
        otherwise = self.call_submodule(false_fn, tuple(inputs)).graph_module
        return self._fx("call_function", torch.ops.higher_order.cond, (pred, chosen, otherwise, inputs), {}, meta)

    def call_while(
        self,
        cond_fn: GraphModule,
        body_fn: GraphModule,
        carried_inputs: Sequence[Any],
        additional_inputs: Sequence[Any],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """Re-trace condition and body and make the `while_loop`."""
        values = (*carried_inputs, *additional_inputs)
        condition = self.call_submodule(cond_fn, values).graph_module
        body = self.call_submodule(body_fn, values).graph_module
        args = (condition, body, carried_inputs, additional_inputs)
        return self._fx("call_function", torch.ops.higher_order.while_loop, args, {}, meta)

    def call_map(
        self, f: GraphModule, mapped_args: Sequence[Any], operands: Sequence[Any], meta: NodeMetadata
    ) -> ProxyValue:
        """Re-trace the body for one element along dim 0 and make the `map`."""
        values = (*self._elements(mapped_args), *operands)
        body = self.call_submodule(f, values).graph_module
        args = (body, mapped_args, operands)
        return self._fx("call_function", torch.ops.higher_order.map_impl, args, {}, meta)

    def call_scan(
        self,
        combine_fn: GraphModule,
        init: Sequence[Any],
        xs: Sequence[Any],
        additional_inputs: Sequence[Any],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """Re-trace the body for one element along dim 0 and make the `scan`."""
        values = (*init, *self._elements(xs), *additional_inputs)
        body = self.call_submodule(combine_fn, values).graph_module
        args = (body, init, xs, additional_inputs)
        return self._fx("call_function", torch.ops.higher_order.scan, args, {}, meta)

    def call_delegate(
        self, lowered_module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """Make the call of a lowered module."""
        target = self._walk.node.target if self._walk is not None and self._walk.node is not None else None
        return self._fx("call_function", target, (lowered_module, *args), kwargs, meta)

    def call_getitem(self, value: Any, key: Any, meta: NodeMetadata) -> Any:
        """Pick one result; no node is needed where a hook returned the results as a tuple."""
        if isinstance(value, ProxyValue):
            return self._fx("call_function", operator.getitem, (value, key), {}, meta)
        return value[key]

    def output(self, results: Any, meta: NodeMetadata) -> ProxyValue:
        """Make the output of the graph."""
        return self._fx("output", "output", (results,), {}, meta)

    @property
    def active_tracer(self) -> ExportTracer:
        """Tracer of the graph being built.

        Raises:
            UsageError: EK409, no graph is being built.
        """
        if self.tracer is None:
            raise UsageError(
                Diagnostic(
                    code="EK409",
                    message=f"a hook of {type(self).__name__} was called while no graph is being re-traced",
                    hint="call the pass on a graph module; hooks are called by the pass",
                )
            )
        return self.tracer

    @property
    def node_debug_str(self) -> str | None:
        """The node being visited, as text for messages of hooks."""
        return None if self._walk is None or self._walk.node is None else self._walk.node.format_node()

    def _elements(self, tensors: Sequence[Any]) -> list[Any]:
        inference = self.active_tracer.inference
        assert inference is not None
        return [inference.first_slice(tensor) for tensor in tensors]

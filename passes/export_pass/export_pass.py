"""`ExportPass`: passes that rewrite a graph by intercepting its operators one by one."""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from exirkit.ir import (
    ContractError,
    FakeTensorMode,
    InternalError,
    Location,
    ModelError,
    UsageError,
    edge_operator,
    fake_mode_of,
    locate,
    same_value,
)
from exirkit.passes.user_passes.base import PassBase, as_pass_result

from .retracing import ExportTracer as Tracer
from .retracing import GraphWalk, Inference, admitting_real_tensors, mode_of_values
from .snapshot import GraphSnapshot, known_values, remembering
from .values import SYMBOLIC, NodeMetadata, ProxyValue, brief, data_of, entries_of

# Entries, other than `val` itself, that state what a node computes.
_VALUE_KEYS = ("tensor_meta", "spec", "example_value")


class ExportPass(PassBase):
    """Reads a graph node by node, calls a hook for each, and builds a new graph from what the hooks make.

    Subclasses override hooks, above all `call_operator`. In a hook, `super().call_operator(op, args, kwargs, meta)`
    makes one node and returns its value as a `ProxyValue`; a hook may make several nodes, or none and return one of its
    arguments, a constant, or a tuple of values for an operator with several results.

    The module that is read is not changed. Every node has its value in `meta["val"]`: the recorded one where operator
    and arguments are as before, and one inferred on fake tensors elsewhere, so that untouched stretches cost next to
    nothing. If the new graph equals the old one, the result is the old module itself with `modified` False.

    An `ExportPass()` without hooks infers all values again.

    Attributes:
        tracer: Builder of the new graph, while a graph is being re-traced.
        fake_tensor_mode: Mode of the graph's fake tensors, meanwhile.
    """

    tracer: Tracer | None = None
    fake_tensor_mode: FakeTensorMode | None = None
    _walk: GraphWalk | None = None

    # Subclasses that build graphs on their own reach the tracer class through the pass.
    ExportTracer = Tracer

    def __call__(self, graph_module: GraphModule) -> PassResult:
        """Run `requires`, `call` and `ensures`.

        Returns:
            The new module, or the given one with `modified` False when nothing differs from before the call; what an
            overridden `call` claims about `modified` does not matter.

        Raises:
            ContractError: EK403 a hook raised, EK404 an operator cannot run, EK405 an argument has no place in the
                graph, EK406 placeholders or output went missing, EK407 an input lost its symbolic sizes, EK412 `call`
                returned something else than a result.
            ModelError: EK401, EK415, the graph cannot be re-traced.
        """
        before = GraphSnapshot(graph_module) if self._edits_modules else None
        with remembering(graph_module):
            self.requires(graph_module)
            result = as_pass_result(self.call(graph_module), graph_module, type(self).__name__)
        if before is not None:
            is_same = before.matches(result.graph_module)
            result = PassResult(graph_module if is_same else result.graph_module, not is_same)
        self.ensures(result.graph_module)
        return result

    def call(self, graph_module: GraphModule) -> PassResult:
        """Re-trace a module; subclasses that override this may edit before and after calling `super().call`."""
        inputs = tuple(self.inputs(graph_module))
        outer = self.fake_tensor_mode
        mode = mode_of_values(data_of(value) for value in inputs) or fake_mode_of(graph_module)
        self.fake_tensor_mode = mode
        try:
            with admitting_real_tensors(mode):
                result = self.call_submodule(graph_module, inputs)
        finally:
            self.fake_tensor_mode = outer
        known = known_values()
        if known is not None:
            known.learn(result.graph_module)
        return result

    def call_submodule(self, graph_module: GraphModule, inputs: tuple[Any, ...]) -> PassResult:
        """Re-trace the top graph, or a branch or body of a control flow operator.

        Args:
            graph_module: Graph to read.
            inputs: One value for each placeholder.
        """
        before = GraphSnapshot(graph_module)
        mode = self.fake_tensor_mode or fake_mode_of(graph_module)
        tracer = self.ExportTracer(self, graph_module.graph._codegen)
        outer_tracer, outer_walk = self.tracer, self._walk
        shared = outer_tracer.inference if outer_walk is not None and outer_tracer is not None else None
        tracer.inference = shared or Inference(mode)
        tracer.read_from(graph_module)
        # A pass without hooks has one use: to make all values true again.
        walk = GraphWalk(self, graph_module, inputs, believe=type(self) is not ExportPass)
        self.tracer, self._walk = tracer, walk
        try:
            walk.run()
        finally:
            self.tracer, self._walk = outer_tracer, outer_walk
        result = tracer.finish(graph_module)
        self._check_interface(graph_module, result)
        is_modified = not before.matches(result)
        if not is_modified and not self._edits_modules:
            return PassResult(graph_module, False)
        if outer_walk is not None:
            outer_walk.rebuilt(graph_module, result)
        return PassResult(result, is_modified)

    def inputs(self, graph_module: GraphModule) -> list[Any]:
        """Return the values that the placeholders stand for, by default what the graph records for them.

        Raises:
            ModelError: EK401, a placeholder that is used has no recorded value.
        """
        return [_recorded_input(node) for node in graph_module.graph.nodes if node.op == "placeholder"]

    def should_preserve_symbolic_input_metadata(self) -> bool:
        """Return whether losing the symbolic size of an input is an error; override for passes that mean to."""
        return True

    @staticmethod
    def _create_dummy_node_metadata() -> NodeMetadata:
        return NodeMetadata({"stack_trace": "".join(traceback.format_stack(limit=1))})

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
    def active_tracer(self) -> Tracer:
        """Tracer of the graph being built.

        Raises:
            UsageError: EK409, no graph is being built.
        """
        if self.tracer is None:
            raise UsageError(
                code="EK409",
                message=f"a hook of {type(self).__name__} was called while no graph is being re-traced",
                hint="call the pass on a graph module; hooks are called by the pass",
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

    # Entries, other than `val` itself, that say what a node computes.

    @property
    def _edits_modules(self) -> bool:
        # An overridden `call` may edit what it is given, and what `super().call` returns: it gets a module of its own.
        return type(self).call is not ExportPass.call

    def _fx(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, meta: NodeMetadata
    ) -> ProxyValue:
        """Make one node; every hook that makes nodes ends here."""
        tracer, walk, named = self.active_tracer, self._walk, kwargs or {}
        entries = entries_of(meta)
        tracer.provenance = entries
        operands, keywords = tracer.operands(target, args, named)
        if kind == "output":
            node = tracer.append(kind, target, operands, keywords, None if walk is None else walk.claim_name(target))
            node.meta.update({key: value for key, value in entries.items() if key != "val"})
            return ProxyValue(data_of(args[0]), node)
        if walk is not None and walk.node is not None and walk.reuses(target, args, named):
            value, is_fresh = walk.node.meta["val"], False
        else:
            value, is_fresh = self._infer(target, args, named), True
        node = tracer.append(kind, target, operands, keywords, None if walk is None else walk.claim_name(target))
        node.meta.update(entries)
        if is_fresh:
            self._describe(node, value)
        else:
            node.meta["val"] = value
        return tracer.produced(value, node)

    def _infer(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        inference = self.active_tracer.inference
        if inference is None:
            raise InternalError(code="EK409", message="the tracer has no fake tensor mode")
        try:
            return inference.run(target, args, kwargs)
        except Exception as error:
            raise ContractError(
                code="EK404",
                message=f"pass {type(self).__name__} calls {_name(target)}, which cannot run: {brief(error)}",
                location=Location() if self._walk is None else self._walk.location(),
                notes=(f"called with {_shown(args, kwargs)}",),
            ) from error

    def _describe(self, node: Node, value: Any) -> None:
        """Record an inferred value, and drop what the inherited metadata says about another one."""
        old = self._walk.node if self._walk is not None else None
        recorded = old.meta.get("val") if old is not None and old.target == node.target else None
        inference = self.active_tracer.inference
        bindings = None if inference is None else inference.bindings(value, recorded)
        if recorded is None or not same_value(value, recorded):
            for key in _VALUE_KEYS:
                node.meta.pop(key, None)
        if recorded is None:
            node.meta.pop("unbacked_bindings", None)
        if bindings and "unbacked_bindings" not in node.meta:
            node.meta["unbacked_bindings"] = bindings
        # Operators without results have no value, and graphs differ in whether they say so.
        if value is not None or "val" in node.meta:
            node.meta["val"] = value

    def _check_interface(self, old: GraphModule, new: GraphModule) -> None:
        before = [node for node in old.graph.nodes if node.op == "placeholder"]
        after = [node for node in new.graph.nodes if node.op == "placeholder"]
        if len(before) != len(after) or not any(node.op == "output" for node in reversed(new.graph.nodes)):
            raise ContractError(
                code="EK406",
                message=f"pass {type(self).__name__} left {len(after)} of {len(before)} placeholders"
                if len(before) != len(after)
                else f"pass {type(self).__name__} left the graph without an output",
                hint="call super().placeholder once per placeholder, and super().output",
            )
        if not self.should_preserve_symbolic_input_metadata():
            return
        for one, other in zip(before, after, strict=True):
            symbols = _symbols(one.meta.get("val"))
            if any(symbols) and symbols != _symbols(other.meta.get("val")):
                raise ContractError(
                    code="EK407",
                    message=f"pass {type(self).__name__} changed the symbolic sizes of input %{one.name}",
                    location=locate(one),
                    expected=f"symbols {symbols}, got {_symbols(other.meta.get('val'))}",
                )


def _recorded_input(node: Node) -> Any:
    if "val" in node.meta:
        return node.meta["val"]
    described = node.meta.get("tensor_meta")
    if described is not None:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return torch.empty_strided(described.shape, described.stride, dtype=described.dtype)
    if not node.users:
        return None
    raise ModelError(
        code="EK401",
        message=f"placeholder %{node.name} has no recorded value to re-trace with",
        location=locate(node),
    )


def _symbols(value: Any) -> tuple[str | None, ...]:
    """Return the symbolic sizes of a tensor by dim, or the symbolic number itself; None where there is none."""
    leaves = tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)
    return tuple(str(leaf.node.expr) if isinstance(leaf, SYMBOLIC) else None for leaf in leaves)


def _name(target: Any) -> str:
    return str(getattr(target, "__name__", target))


def _shown(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    shown = [_shown_value(arg) for arg in args]
    shown += [f"{key}={_shown_value(arg)}" for key, arg in kwargs.items()]
    return f"({', '.join(shown)})"


def _shown_value(value: Any) -> str:
    data = value.data if isinstance(value, ProxyValue) else value
    if isinstance(data, torch.Tensor):
        return f"{str(data.dtype).removeprefix('torch.')}{list(data.shape)}"
    if isinstance(data, list | tuple):
        return f"[{', '.join(map(_shown_value, data))}]"
    return repr(data) if len(repr(data)) <= 40 else f"{type(data).__name__}"

"""Passes over graph modules and programs in the forms that the official package gives them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    CALL_DELEGATE,
    AllocSpec,
    EdgeOpOverload,
    FakeTensor,
    GraphEditor,
    ProgramInterface,
    TensorSpec,
    UsageError,
    alloc,
    attribute_of,
    called_graphs,
    control_flow_call,
    disable_current_modes,
    edge_operator,
    find_in_place_variant,
    module_of_program,
    ops,
    program_of_module,
    same_argument,
    underlying,
    writes_in_place,
)
from exirkit.passes import (
    ExportPass,
    FoldConstants,
    MergeEqualNodes,
    NodeMetadata,
    PassBase,
    PassResult,
    ProxyValue,
    RemoveAsserts,
    map_args,
    updated_signature,
)

from .shapes import eval_shape_upper_bound, get_memory_format


def dead_code_elimination_pass(graph_module: GraphModule) -> PassResult:
    """Erase calls that nothing uses, in a graph and in those that it calls; the graph itself is edited.

    What writes, asserts or calls a delegate stays.
    """
    modified = False
    for module in called_graphs(graph_module):
        for node in reversed(list(module.graph.nodes)):
            if node.op in ("call_function", "get_attr") and not node.users and _is_idle(node):
                module.graph.erase_node(node)
                modified = True
        module.recompile()
    return PassResult(graph_module, modified)


def _is_idle(node: Node) -> bool:
    return node.target is not CALL_DELEGATE and not node.is_impure()


class RemoveGraphAssertsPass(PassBase):
    """Erase assertions on sizes and values, and what was computed for them alone."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Erase the assertions of a graph."""
        return _rewritten(graph_module, RemoveAsserts())


class CSEPass(ExportPass):
    """Make one node of calls of one ATen operator, or of one function of Python, with the same arguments.

    Calls of other libraries stay: partitioners want a dequantize operator of its own for each call that it belongs to.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        """Merge the calls of a graph."""
        return _rewritten(graph_module, _MergeAten())


class _MergeAten(MergeEqualNodes):
    def may_merge(self, node: Node) -> bool:
        schema = getattr(node.target, "_schema", None)
        return schema is None or schema.name.startswith("aten::")


def _rewritten(graph_module: GraphModule, one: Any) -> PassResult:
    """Run a pass of ours over a graph module on its own."""
    program = program_of_module(graph_module)
    if not one.run(GraphEditor(program)).modified:
        return PassResult(graph_module, False)
    return PassResult(module_of_program(program, graph_module), True)


def constant_prop_pass(
    exported_program: ExportedProgram,
    custom_skip_targets: Collection[EdgeOpOverload] | None = None,
    _skip_dim_order: bool = True,
) -> ExportedProgram:
    """Compute what follows from stored tensors; the program itself is edited and returned.

    Args:
        exported_program: The program.
        custom_skip_targets: Operators that are not computed, besides those that quantise and dequantise.
        _skip_dim_order: Has no effect: no copies are made of constants that the program returns.
    """
    del _skip_dim_order
    kept = frozenset(map(underlying, custom_skip_targets or ()))
    _Folding(kept).run(GraphEditor(exported_program))
    exported_program.graph_module.recompile()
    return exported_program


class _Folding(FoldConstants):
    """Folds all but certain operators, whatever it takes."""

    def __init__(self, kept: frozenset[Any]) -> None:
        super().__init__(byte_budget=None, creation_nbytes=2**62)
        self._kept = kept

    def _may_compute(self, node: Node) -> bool:
        return underlying(node.target) not in self._kept and super()._may_compute(node)


class ConstPropPass(ExportPass):
    """Compute, while a graph is traced, calls whose arguments are constants; the result is a constant of the graph.

    Args:
        propogate_quant: Compute what quantises and dequantises, and nothing else; otherwise everything else.
    """

    def __init__(self, propogate_quant: bool = False) -> None:
        super().__init__()
        self.propogate_quant = propogate_quant

    def call_operator(self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], meta: NodeMetadata) -> Any:
        """Compute a call, or make a node of it."""
        schema = getattr(op, "_schema", None)
        is_quantisation = schema is not None and schema.name.startswith("quantized_decomposed::")
        if is_quantisation is not self.propogate_quant or not _is_constant([args, kwargs]):
            return super().call_operator(op, args, kwargs, meta)
        with disable_current_modes():
            return underlying(op)(*args, **kwargs)


def _is_constant(argument: Any) -> bool:
    if isinstance(argument, Mapping):
        return _is_constant(list(argument.values()))
    if isinstance(argument, list | tuple):
        return all(map(_is_constant, argument))
    if isinstance(argument, torch.Tensor):
        return not isinstance(argument, FakeTensor)
    return argument is None or isinstance(
        argument, bool | int | float | str | torch.dtype | torch.device | torch.layout | torch.memory_format
    )


class ScalarToTensorPass(ExportPass):
    """Make tensors of numbers that stand where an operator wants a tensor."""

    def call_operator(self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], meta: NodeMetadata) -> Any:
        """Make a node with tensors as arguments."""

        def as_tensor(value: Any, argument: Any) -> Any:
            if not isinstance(value, bool | int | float) or not isinstance(argument.type, torch.TensorType):
                return value
            with disable_current_modes():
                return torch.tensor(value)

        args, kwargs = map_args(op, as_tensor, args, kwargs)
        return super().call_operator(op, args, kwargs, meta)


_WITHOUT_DIM_ORDER = {
    ops.edge.dim_order_ops._to_dim_order_copy.default: ops.edge.aten._to_copy.default,
    ops.edge.dim_order_ops._empty_dim_order.default: ops.edge.aten.empty.memory_format,
    ops.edge.dim_order_ops._clone_dim_order.default: ops.edge.aten.clone.default,
}


class DimOrderOpsRevertPass(ExportPass):
    """Replace operators that name the order of dims by those that name a memory format."""

    def call_operator(self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], meta: NodeMetadata) -> Any:
        """Make a node of the operator with a memory format."""
        plain = _WITHOUT_DIM_ORDER.get(op)
        if plain is None:
            return super().call_operator(op, args, kwargs, meta)
        given = dict(kwargs)
        source = args[0]
        value = source.data if isinstance(source, ProxyValue) else source
        ndim = value.dim() if isinstance(value, torch.Tensor) else len(value)
        given["memory_format"] = get_memory_format(given.pop("dim_order", None) or range(ndim))
        return super().call_operator(plain, args, given, meta)


class InitializedMutableBufferPass(ExportPass):
    """Store the initial values of certain buffers that the program mutates, which start as zeros otherwise.

    Args:
        patterns: Parts of the names of their inputs in the graph.
    """

    def __init__(self, patterns: list[str]) -> None:
        super().__init__()
        self.patterns = patterns

    def placeholder(self, name: str, arg: Any, meta: NodeMetadata) -> ProxyValue:
        """Mark an input of such a name."""
        if any(pattern in name for pattern in self.patterns):
            meta["et_init_buffer"] = True
        return super().placeholder(name, arg, meta)


class SpecPropPass(PassBase):
    """Infer all values again, and set `meta["spec"]` of each node from its value.

    What `getitem` takes out shares the spec of its sequence, and the specs of delegates stay as they are.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        """Set the specs of a graph and of those that it calls."""
        result = ExportPass()(graph_module)
        for module in called_graphs(result.graph_module):
            for node in module.graph.nodes:
                _set_spec(node)
        return PassResult(result.graph_module, True)

    def update_placeholder_tensor_specs(self, exported_program: ExportedProgram, graph_module: GraphModule) -> None:
        """Mark the specs of stored tensors that nothing mutates as constant.

        Args:
            exported_program: The program, for its signature.
            graph_module: Its graph, with specs.
        """
        interface = ProgramInterface(graph_module.graph, exported_program.graph_signature)
        for node in interface.placeholders:
            spec = node.meta.get("spec")
            if isinstance(spec, TensorSpec):
                spec.const = interface.is_stored(node) and not interface.is_written(node)


def _set_spec(node: Node) -> None:
    if node.op == "output":
        node.meta["spec"] = torch.fx.map_arg(node.args[0], lambda one: one.meta.get("spec"))
    elif "getitem" in str(node.target) and isinstance(node.args[0], Node):
        index: Any = node.args[1]
        node.meta["spec"] = node.args[0].meta["spec"][index]
    elif node.target is not CALL_DELEGATE or "spec" not in node.meta:
        node.meta["spec"] = _spec_of(node.meta.get("val"))


def _spec_of(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_spec_of(one) for one in value]
    if isinstance(value, torch.Tensor):
        return TensorSpec.from_tensor(value)
    return value if isinstance(value, bool | int | float) else None


class ConstraintBasedSymShapeEvalPass(PassBase):
    """Replace symbolic sizes and strides in the specs of a graph, and of those that it calls, by their upper bounds.

    Lowering does so by itself; backends that plan memory of their own run this pass before that.

    Raises:
        UsageError: EK758, a size has no upper bound.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        """Bound the sizes of all specs, in place."""
        for module in called_graphs(graph_module):
            for node in module.graph.nodes:
                for spec in _specs_in(node.meta.get("spec")):
                    spec.shape = [*eval_shape_upper_bound(spec.shape)]
                    spec.stride = [*eval_shape_upper_bound(spec.stride)]
        return PassResult(graph_module, True)


def _specs_in(noted: Any) -> Iterator[TensorSpec]:
    if isinstance(noted, TensorSpec):
        yield noted
    elif isinstance(noted, list | tuple):
        for one in noted:
            yield from _specs_in(one)


def make_alloc_node(graph_module: GraphModule, val: Any, tensor_meta: Any = None) -> Node:
    """Insert the memory of an out tensor, or of a list of them, at the place where the graph inserts.

    Args:
        graph_module: The graph.
        val: Fake tensor, or a list of them.
        tensor_meta: What is known of the tensors where `val` is None.
    """
    known = tensor_meta if val is None else val
    if known is None:
        raise UsageError(code="EK758", message="nothing is known of the tensor that wants memory")
    is_list = isinstance(known, list | tuple) and not hasattr(known, "dtype")
    specs = [_alloc_spec(one) for one in known] if is_list else _alloc_spec(known)
    node = graph_module.graph.call_function(alloc, (specs,))
    node.meta["val"] = val
    if tensor_meta is not None:
        node.meta["tensor_meta"] = tensor_meta
    return node


def _alloc_spec(value: Any) -> AllocSpec:
    return tuple(eval_shape_upper_bound(value.shape)), value.dtype


class DuplicateDequantNodePass(ExportPass):
    """Give each call a dequantize operator of its own, so that no two partitions share one."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Copy what has several users."""
        target = ops.edge.quantized_decomposed.dequantize_per_tensor.default
        graph, modified = graph_module.graph, False
        for node in graph.find_nodes(op="call_function", target=target):
            for user in list(node.users)[1:]:
                with graph.inserting_before(user):
                    copy = graph.node_copy(node)
                user.replace_input_with(node, copy)
                modified = True
        if modified:
            graph_module.recompile()
        return PassResult(graph_module, modified)


def delegate_external_constants_pass_unlifted(
    module: torch.nn.Module, gen_tag_fn: Callable[[Node], str | None] | None = None
) -> PassResult:
    """Name the data file that each weight of a delegate is to go into, before the weights become inputs.

    Args:
        module: Graph module whose weights are attributes.
        gen_tag_fn: Returns the name for a `get_attr` node, or None to leave the weight in the program.
    """
    modified = False
    for graph_module in (one for one in module.modules() if isinstance(one, GraphModule) and gen_tag_fn is not None):
        for node in graph_module.graph.find_nodes(op="get_attr"):
            if isinstance(attribute_of(node), torch.Tensor) and gen_tag_fn is not None:
                node.meta.setdefault("custom", {})["delegate_constant_tag"] = gen_tag_fn(node)
                modified = True
    return PassResult(module, modified)


def _derive_edge_inplace_overload(functional_op: Any) -> EdgeOpOverload | None:
    """Return the Edge operator that computes the same in the memory of the first argument; None if none does."""
    found = find_in_place_variant(underlying(functional_op))
    return None if found is None else edge_operator(found)


DEFAULT_INPLACEABLE_OPS = frozenset({ops.edge.aten.index_put.default})
"""What `reinplace_pass` replaces unless it is told."""


def reinplace_pass(
    ep: ExportedProgram,
    ops_to_inplace: Collection[Any] | None = None,
    inplace_overrides: Mapping[Any, Any] | None = None,
) -> ExportedProgram:
    """Replace operators by those that write into their first argument, where nothing needs its old value any more.

    The program itself is edited and returned. Never overwritten are parameters and constants, inputs and buffers that
    the program does not mutate anyway, and what has a view.

    Args:
        ep: An Edge program.
        ops_to_inplace: Operators to replace.
        inplace_overrides: Operators that write, by the operator that each replaces, instead of those found by name.

    Raises:
        UsageError: EK763, an operator that is to write does not write into its first argument.
    """
    overrides = dict(inplace_overrides or {})
    wanted = DEFAULT_INPLACEABLE_OPS if ops_to_inplace is None else ops_to_inplace
    writing = {one: _derive_edge_inplace_overload(one) for one in wanted} | overrides
    for op, found in overrides.items():
        _check_writes(op, found)
    interface = ProgramInterface.of(ep)
    mutable = {one for one in interface.placeholders if interface.is_written(one)}
    later: set[Node] = set()
    for node in reversed(list(ep.graph.nodes)):
        found = writing.get(node.target) if node.op == "call_function" else None
        first = node.args[0] if node.args else None
        if found is not None and isinstance(first, Node) and _may_overwrite(first, node, later, mutable):
            with ep.graph.inserting_before(node):
                made = ep.graph.call_function(found, node.args, node.kwargs)
            made.meta = {**node.meta}
            node.replace_all_uses_with(made)
            later.update(node.all_input_nodes)
            ep.graph.erase_node(node)
        else:
            later.update(node.all_input_nodes)
    ep._graph_signature = updated_signature(ep.graph_signature, ep.graph_module)
    ep.graph_module.recompile()
    return ep


def _may_overwrite(first: Node, call: Node, later: set[Node], mutable: set[Node]) -> bool:
    if first in later or call.all_input_nodes.count(first) > 1:
        return False
    if first.op == "placeholder":
        return first in mutable
    if first.op != "call_function" or control_flow_call(first) is not None:
        return False
    old, new = first.meta.get("val"), call.meta.get("val")
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return False
    return old.dtype == new.dtype and same_argument(tuple(old.shape), tuple(new.shape))


def _check_writes(op: Any, found: Any) -> None:
    if not writes_in_place(found):
        raise UsageError(code="EK763", message=f"{found} does not write into its first argument, instead of {op}")

"""One walk over a graph that calls the hooks of an `ExportPass`, and the graph that it builds."""

from __future__ import annotations

import builtins
import copy
import keyword
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.graph import CodeGen
from torch.fx.node import map_aggregate, map_arg
from torch.fx.proxy import GraphAppendingTracer

from exirkit.ir import (
    PROVENANCE_KEYS,
    ContractError,
    EdgeOpOverload,
    FakeTensor,
    FakeTensorMode,
    HigherOrderOperator,
    InternalError,
    Location,
    ModelError,
    OpOverload,
    compute_unbacked_bindings,
    edge_operator,
    fake_like,
    infer_value,
    lazy_graph_module,
    line_that_raised,
    locate,
    same_argument,
    same_value,
)

from .snapshot import attribute, known_values
from .values import SYMBOLIC, NodeMetadata, ProxyValue, brief, data_of


class Inference:
    """Runs operators under one fake tensor mode.

    Tensors of other modes (graphs that were put together from several exports) and real tensors are taken over into the
    mode, each once.

    Attributes:
        mode: Mode of the graph.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        # The originals are kept as well: an id means something only while its object lives.
        self._taken_over: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def run(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return what the target computes on these arguments; proxy values and constants may be nested in them.

        Operators without results, such as assertions on symbolic sizes, are not run: that would assert once more.
        """
        schema = getattr(target, "_schema", None)
        if schema is not None and not schema.returns:
            return None
        operands, named = map_aggregate((tuple(args), dict(kwargs)), self._operand)
        return infer_value(self.mode, target, operands, named)

    def first_slice(self, tensor: Any) -> Any:
        """Return what a loop over dim 0 sees of a tensor in one step."""
        with self.mode, torch.no_grad():
            return torch.select_copy(self._operand(tensor), 0, 0)

    def bindings(self, value: Any, old: Any) -> dict[Any, Any] | None:
        """Return where a fresh result binds new data-dependent symbols, as `meta["unbacked_bindings"]` wants it.

        Args:
            value: What `run` just returned.
            old: What the node computed before the pass, if it is the same operator: its symbols keep their names.
        """
        shape_env = self.mode.shape_env
        if shape_env is None or not shape_env.pending_fresh_unbacked_symbols:
            return None
        return compute_unbacked_bindings(shape_env, value, old)

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor as one of the mode."""
        if isinstance(tensor, FakeTensor) and tensor.fake_mode is self.mode:
            return tensor
        known = self._taken_over.get(id(tensor))
        if known is None:
            taken = (
                fake_like(self.mode, tensor)
                if isinstance(tensor, FakeTensor)
                else self.mode.from_tensor(tensor, static_shapes=True)
            )
            known = self._taken_over[id(tensor)] = (tensor, taken)
        return known[1]

    def _operand(self, leaf: Any) -> Any:
        value = leaf
        if isinstance(leaf, ProxyValue):
            value = leaf.data
        elif isinstance(leaf, Node | Proxy):
            value = (leaf.node if isinstance(leaf, Proxy) else leaf).meta["val"]
        if isinstance(value, torch.Tensor):
            return self.fake(value)
        if isinstance(value, list | tuple):
            return map_aggregate(value, self._operand)
        return value


@contextmanager
def admitting_real_tensors(mode: FakeTensorMode) -> Iterator[None]:
    """Let hooks mix fake values with constants of their own; the graph's mode is shared, so its setting is put back."""
    before = mode.allow_non_fake_inputs
    mode.allow_non_fake_inputs = True
    try:
        yield
    finally:
        mode.allow_non_fake_inputs = before


def mode_of_values(values: Iterable[Any]) -> FakeTensorMode | None:
    """Return the mode of the first fake tensor among these values."""
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)


class ExportTracer(GraphAppendingTracer):
    """Appends nodes to a new graph and turns values into arguments of nodes.

    Attributes:
        callback: The pass, whose `on_attr` hears of constants.
        root: Holds what `get_attr` nodes read.
        inference: Infers values.
        provenance: Metadata of the node being made; nodes made for its arguments inherit from it.
    """

    def __init__(self, callback: Any, codegen: CodeGen) -> None:
        super().__init__(Graph())
        self.graph.set_codegen(copy.copy(codegen))
        self.callback = callback
        self.root = torch.nn.Module()
        self.inference: Inference | None = None
        self.provenance: Mapping[str, Any] = {}
        self._values: list[ProxyValue] = []
        self._is_edge = False
        self._source: torch.nn.Module = self.root
        self._names = _Names(())
        # Objects are kept with their ids: an id means something only while its object lives.
        self._homes: dict[int, tuple[Any, Node]] = {}
        self._readers: dict[int, tuple[Any, Node]] = {}
        self._sizes: dict[Any, tuple[ProxyValue, int | None]] = {}
        self._sized = 0

    @property
    def fake_tensor_mode(self) -> Any:
        """Mode under which values are inferred."""
        return None if self.inference is None else self.inference.mode

    @fake_tensor_mode.setter
    def fake_tensor_mode(self, mode: Any) -> None:
        self.inference = Inference(mode)

    def read_from(self, source: GraphModule) -> None:
        """Keep the names of this module's nodes and attributes for their successors."""
        self._source = source
        self._names = _Names(node.name for node in source.graph.nodes)

    def finalize(self, value: Any, reader: Node) -> None:
        """Say which node of the old graph read a value: it keeps its attribute name."""
        self._homes.setdefault(id(value), (value, reader))

    def succeed(self, old: Any, new: Any) -> None:
        """Give the attribute name of one value to another that takes its place."""
        if id(old) in self._homes:
            self.finalize(new, self._homes[id(old)][1])

    def operands(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Turn values into arguments for a node of this target; nodes are made for constants, submodules and sizes.

        Raises:
            ContractError: EK405, a value has no place in this graph.
        """
        self._is_edge = isinstance(target, EdgeOpOverload)
        return self.create_arg(args), self.create_arg(dict(kwargs))

    def append(self, op: str, target: Any, args: Any, kwargs: Any, name: str | None) -> Node:
        """Append a node.

        Args:
            op: As in `torch.fx.Node`.
            target: As in `torch.fx.Node`.
            args: Arguments from `operands`.
            kwargs: Likewise.
            name: Name that the node shall have; otherwise one is made from the target.
        """
        chosen = self._names.fresh(self._base_name(target)) if name is None else name
        # Given arguments, `create_node` searches them for symbolic numbers, at the price of everything else done here.
        node = self.graph.create_node(op, target, (), {}, chosen)
        node.args = args
        if kwargs:
            node.kwargs = kwargs
        # torch.export names inputs after the user's parameters; fx itself would not call a node `input`.
        if node.name != chosen and self._names.is_free(chosen):
            node.name = chosen
        self._names.take(node.name)
        return node

    def _base_name(self, target: Any) -> str:
        # Torch overloads give short names (`add`), as in exported graphs; handles give whole ones (`aten_add_tensor`).
        base = target.overloadpacket.__name__ if isinstance(target, OpOverload) else target
        return self.graph._target_to_str(base)

    def produced(self, value: Any, node: Node) -> ProxyValue:
        """Return the value of a node just made, and remember its symbolic sizes for `create_arg`."""
        result = ProxyValue(value, node)
        self._values.append(result)
        return result

    def create_arg(self, a: Any) -> Any:
        """Turn values into what a node can hold.

        Raises:
            ContractError: EK405, a value has no place in this graph.
        """
        return map_aggregate(a, self._leaf)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Proxy | ProxyValue):
            return self._own(leaf.node)
        if isinstance(leaf, Node):
            return self._own(leaf)
        if isinstance(leaf, torch.Tensor | torch.nn.Module):
            return self.read(_constant(leaf)).node
        if isinstance(leaf, SYMBOLIC):
            return self._symbol(leaf)
        return leaf

    def _own(self, node: Node) -> Node:
        if node.graph is not self.graph:
            raise ContractError(
                code="EK405",
                message=f"%{node.name} is not a node of the graph being built",
                hint="use the values that the hook was given: nodes of the old graph, and values of an outer graph "
                "inside a branch, have no place here",
            )
        return node

    def read(self, value: Any) -> ProxyValue:
        """Return the node that reads a constant or submodule; each object is read once."""
        known = self._readers.get(id(value))
        if known is not None:
            return ProxyValue(value, known[1])
        home = self._homes.get(id(value))
        like = None if home is None else home[1]
        target = self._place(value, like)
        node = self.append("get_attr", target, (), {}, None if like is None else like.name)
        self._readers[id(value)] = (value, node)
        result = ProxyValue(value, node)
        if like is not None:
            node.meta.update(like.meta)
        elif isinstance(value, torch.Tensor):
            node.meta.update({key: self.provenance[key] for key in PROVENANCE_KEYS if key in self.provenance})
        if isinstance(value, torch.Tensor):
            if self.inference is not None and "val" not in node.meta:
                node.meta["val"] = self.inference.fake(value)
            self.callback.on_attr(result)
        return result

    def _place(self, value: Any, like: Node | None) -> str:
        target = None if like is None else str(like.target)
        if target is not None and _holds(self.root, target, value):
            return target
        if target is None or not _can_hold(self.root, target):
            base = _constant_name(value) if target is None else f"{target.replace('.', '_')}_"
            count = 0
            while hasattr(self.root, f"{base}{count}") or hasattr(self._source, f"{base}{count}"):
                count += 1
            target = f"{base}{count}"
        _install(self.root, target, value)
        return target

    def _symbol(self, symbol: Any) -> Any:
        number = symbol.node.maybe_as_int() if isinstance(symbol, torch.SymInt) else None
        if number is not None:
            return number
        while self._sized < len(self._values):
            self._find_sizes(self._values[self._sized])
            self._sized += 1
        found = self._sizes.get(symbol.node.expr)
        if found is None:
            raise ContractError(
                code="EK405",
                message=f"symbolic number {symbol} is computed by no node before this one",
                hint="compute it with call_sym from sizes that the graph has, or read it with call_size_operator",
            )
        value, dim = found
        if dim is None:
            return value.node
        plain = torch.ops.aten.sym_size.int
        target = edge_operator(plain) if self._is_edge else plain
        node = self.append("call_function", target, (value.node, dim), {}, None)
        node.meta.update({key: self.provenance[key] for key in PROVENANCE_KEYS if key in self.provenance})
        node.meta["val"] = symbol
        self._sizes[symbol.node.expr] = (ProxyValue(symbol, node), None)
        return node

    def _find_sizes(self, value: ProxyValue) -> None:
        data = value.data
        if isinstance(data, SYMBOLIC):
            self._sizes.setdefault(data.node.expr, (value, None))
        elif isinstance(data, torch.Tensor):
            for dim, size in enumerate(data.shape):
                if isinstance(size, torch.SymInt):
                    self._sizes.setdefault(size.node.expr, (value, dim))

    def set_metadata(self, node: Node, value: Any) -> None:
        """Record what a node computes, for passes that make nodes with `create_proxy`."""
        node.meta["val"] = value
        node.meta.pop("tensor_meta", None)

    def finish(self, source: GraphModule) -> GraphModule:
        """Return the graph as a module; its code is generated when something calls or prints it."""
        result = lazy_graph_module(self.root, self.graph, type(source).__name__)
        result.meta.update(source.meta)
        result.training = source.training
        return result


class _Names:
    """Names of nodes: old ones stay with their successors, new ones avoid all old ones."""

    def __init__(self, reserved: Any) -> None:
        self._reserved = set(reserved)
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def take(self, name: str) -> None:
        self._taken.add(name)

    def is_free(self, name: str) -> bool:
        return name in self._reserved and name not in self._taken

    def fresh(self, wanted: str) -> str:
        base = re.sub(r"\W+", "_", wanted) or "node"
        is_legal = not keyword.iskeyword(base) and not hasattr(builtins, base)
        count = self._counts.get(base, 0 if is_legal else 1)
        name = base if count == 0 else f"{base}_{count}"
        while name in self._taken or name in self._reserved:
            count += 1
            name = f"{base}_{count}"
        self._counts[base] = count + 1
        return name


def _constant(value: Any) -> Any:
    if not isinstance(value, FakeTensor):
        return value
    if value.constant is None:
        raise ContractError(
            code="EK405",
            message=f"a fake tensor of shape {tuple(value.shape)} was given where a value of the graph belongs",
            hint="pass the ProxyValue itself, not its .data; build constants outside of a FakeTensorMode",
        )
    return value.constant


def _constant_name(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "_tensor_constant"
    return "lowered_module_" if hasattr(value, "backend_id") else "submodule_"


def _holds(root: torch.nn.Module, target: str, value: Any) -> bool:
    found: Any = root
    for atom in target.split("."):
        found = getattr(found, atom, None)
    return found is value


def _can_hold(root: torch.nn.Module, target: str) -> bool:
    # Only containers made here may be added to: any other module is shared with the graph that is being read.
    for atom in target.split(".")[:-1]:
        root = getattr(root, atom, _ABSENT)
        if root is _ABSENT:
            return True
        if type(root) is not torch.nn.Module:
            return False
    return not hasattr(root, target.rpartition(".")[2])


_ABSENT = torch.nn.Module()


def _install(root: torch.nn.Module, target: str, value: Any) -> None:
    *path, last = target.split(".")
    for atom in path:
        if not hasattr(root, atom):
            root.add_module(atom, torch.nn.Module())
        root = getattr(root, atom)
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        root.register_buffer(last, value)
    else:
        setattr(root, last, value)


if TYPE_CHECKING:
    from .export_pass import ExportPass

_PYTHON_MODULES = frozenset({"_operator", "builtins", "math"})
_DELEGATE_CALL = "executorch_call_delegate"


class GraphWalk:
    """Visits the nodes of a graph in order; nothing recurses along the graph.

    Attributes:
        module: The module being read; it is not changed.
        node: The node being visited.
    """

    def __init__(self, hooks: ExportPass, module: GraphModule, inputs: Sequence[Any], *, believe: bool = True) -> None:
        self.module = module
        self.node: Node | None = None
        self._hooks = hooks
        self._inputs = inputs
        self._position = 0
        self._results: dict[Node, Any] = {}
        # Nodes whose value in the new graph is what the old graph records for them.
        self._settled: set[Node] = set()
        self._args: tuple[Any, ...] = ()
        self._kwargs: Mapping[str, Any] = {}
        self._is_reusable = False
        self._is_named = False
        self._same_outputs: dict[int, tuple[GraphModule, GraphModule]] = {}
        self._known = known_values()
        self._believes_nothing = not believe

    def run(self) -> None:
        """Visit every node.

        Raises:
            ContractError: EK403, a hook raised; what it raised is the cause. EK416, a hook returned nothing.
            ModelError: EK415, the graph calls modules or methods.
        """
        for node in self.module.graph.nodes:
            self.node = node
            try:
                self._visit(node)
            except ContractError as error:
                raise self._placed(error) from error.__cause__
            except (InternalError, ModelError):
                raise
            except Exception as error:
                raise self._failed(node, error) from error

    def _visit(self, node: Node) -> None:
        self._args = map_arg(node.args, self._results.__getitem__)
        self._kwargs = map_arg(node.kwargs, self._results.__getitem__)
        self._is_named = False
        self._is_reusable = self._is_believed(node) and self._settled.issuperset(node.all_input_nodes)
        result = self._dispatch(node, NodeMetadata(node.meta))
        if result is None and node.op == "call_function" and node.users and node.meta.get("val") is not None:
            raise self._empty_handed(node)
        self._results[node] = result
        if self._stayed(node, result):
            self._settled.add(node)

    def _dispatch(self, node: Node, meta: NodeMetadata) -> Any:
        if node.op == "call_function":
            return self._call_function(node, meta)
        if node.op == "placeholder":
            return self._hooks.placeholder(str(node.target), self._next_input(node), meta)
        if node.op == "get_attr":
            return self._read(node)
        if node.op == "output":
            return self._hooks.output(self._args[0], meta)
        raise ModelError(
            code="EK415",
            message=f"%{node.name} is a {node.op} node, which exported graphs do not have",
            location=locate(node),
            hint="export the model with torch.export, or inline the call before running passes",
        )

    def _call_function(self, node: Node, meta: NodeMetadata) -> Any:
        target, args, hooks = node.target, self._args, self._hooks
        if target is operator.getitem:
            return hooks.call_getitem(args[0], args[1], meta)
        if not self._kwargs and _is_symbolic_function(target):
            return hooks.call_sym(cast("Callable[..., Any]", target), args, meta)
        name = getattr(target, "__name__", "")
        if name == _DELEGATE_CALL:
            return hooks.call_delegate(args[0], args[1:], dict(self._kwargs), meta)
        if isinstance(target, HigherOrderOperator):
            return self._call_higher_order(name, meta)
        return hooks.call_operator(target, args, self._kwargs, meta)

    def _call_higher_order(self, name: str, meta: NodeMetadata) -> Any:
        args, hooks = self._args, self._hooks
        # Operators that take other arguments than these are newer than this code, and pass through as unknown ones do.
        if not self._kwargs:
            if name == "cond" and len(args) == 4:
                return hooks.call_cond(args[0], args[1], args[2], args[3], meta)
            if name == "while_loop" and len(args) == 4:
                return hooks.call_while(args[0], args[1], args[2], args[3], meta)
            if name == "map_impl" and len(args) == 3:
                return hooks.call_map(args[0], args[1], args[2], meta)
            if name == "scan" and len(args) == 4:
                return hooks.call_scan(args[0], args[1], args[2], args[3], meta)
        assert self.node is not None
        return hooks._fx("call_function", self.node.target, args, self._kwargs, meta)

    def _next_input(self, node: Node) -> Any:
        if self._position >= len(self._inputs):
            raise ContractError(
                code="EK406",
                message=f"placeholder %{node.name} was given no value: there are {len(self._inputs)} inputs",
                location=locate(node),
                hint="inputs() and call_submodule need one value for each placeholder",
            )
        value = data_of(self._inputs[self._position])
        self._position += 1
        recorded = node.meta.get("val")
        # A branch records its own fake tensors for the values that it is given; keeping them lets its nodes be reused.
        return recorded if recorded is not None and same_value(value, recorded) else value

    def _read(self, node: Node) -> Any:
        value = attribute(self.module, str(node.target))
        tracer = self._hooks.active_tracer
        tracer.finalize(value, node)
        # Submodules reach the hooks as they are; a node is made for what the hook then uses.
        return tracer.read(value) if isinstance(value, torch.Tensor) else value

    def _is_believed(self, node: Node) -> bool:
        if "val" not in node.meta or self._believes_nothing:
            return False
        # Without a watch, the caller may have edited the graph: passes that bring their own `__call__` do.
        return self._known is not None and self._known.believes(node)

    def _stayed(self, node: Node, result: Any) -> bool:
        if node.op == "get_attr":
            return not isinstance(result, ProxyValue) or self._same_constant(node, result)
        return "val" in node.meta and same_value(data_of(result), node.meta["val"])

    def _same_constant(self, node: Node, result: ProxyValue) -> bool:
        recorded = node.meta.get("val")
        inference = self._hooks.active_tracer.inference
        return recorded is None or inference is None or same_value(inference.fake(result.data), recorded)

    def reuses(self, target: Any, args: Any, kwargs: Any) -> bool:
        """Return whether a node about to be made is the visited one again, on values with equal metadata."""
        return (
            self._is_reusable
            and self.node is not None
            and target == self.node.target
            and self._is_same_operand(args, self._args)
            and self._is_same_operand(kwargs, self._kwargs)
        )

    def _is_same_operand(self, given: Any, loaded: Any) -> bool:
        if given is loaded:
            return True
        if isinstance(loaded, ProxyValue):
            return isinstance(given, ProxyValue) and same_value(given.data, loaded.data)
        if isinstance(loaded, list | tuple):
            return (
                isinstance(given, list | tuple)
                and len(given) == len(loaded)
                and all(map(self._is_same_operand, given, loaded))
            )
        if isinstance(loaded, dict):
            return (
                isinstance(given, dict)
                and given.keys() == loaded.keys()
                and all(self._is_same_operand(given[key], value) for key, value in loaded.items())
            )
        if isinstance(loaded, GraphModule):
            return self._same_outputs.get(id(given), (None, None))[1] is loaded
        return not isinstance(given, ProxyValue) and same_argument(given, loaded)

    def claim_name(self, target: Any) -> str | None:
        """Return the visited node's name for the first node of the same target that replaces it."""
        if self.node is None or self._is_named or target != self.node.target:
            return None
        self._is_named = True
        return self.node.name

    def rebuilt(self, old: GraphModule, new: GraphModule) -> None:
        """Take note that a hook turned one submodule of this graph into another."""
        if same_value(_outputs(old), _outputs(new)):
            self._same_outputs[id(new)] = (new, old)
        self._hooks.active_tracer.succeed(old, new)

    def location(self) -> Location:
        """Return the place of the visited node, for diagnostics."""
        return Location() if self.node is None else locate(self.node)

    def _failed(self, node: Node, error: Exception) -> ContractError:
        return ContractError(
            code="EK403",
            message=f"pass {self._author} failed on %{node.name} ({_shown_target(node)}): {brief(error)}",
            location=locate(node).model_copy(update=line_that_raised(error).model_dump(include={"file", "line"})),
        )

    def _empty_handed(self, node: Node) -> ContractError:
        return ContractError(
            code="EK416",
            message=f"pass {self._author} returned nothing for %{node.name} ({_shown_target(node)}), which is used",
            location=locate(node),
        )

    def _placed(self, error: ContractError) -> ContractError:
        if any(finding.location.node is not None for finding in error.diagnostics):
            return error
        note = f"in pass {self._author}"
        return ContractError(
            finding.model_copy(update={"location": self.location(), "notes": (*finding.notes, note)})
            for finding in error.diagnostics
        )

    @property
    def _author(self) -> str:
        return type(self._hooks).__name__


def _shown_target(node: Node) -> str:
    return str(node.target) if node.op != "call_function" else str(getattr(node.target, "__name__", node.target))


def _is_symbolic_function(target: Any) -> bool:
    module = getattr(target, "__module__", None)
    if module in _PYTHON_MODULES:
        return True
    return module == "torch" and getattr(target, "__name__", "").lstrip("_").startswith("sym_")


def _outputs(module: GraphModule) -> Any:
    output = next(iter(reversed(module.graph.nodes)))
    return map_arg(output.args, lambda node: node.meta.get("val"))

"""The graph that an `ExportPass` builds: its nodes, their names, and the attributes that they read."""

from __future__ import annotations

import builtins
import copy
import keyword
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensor
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module
from torch.fx.graph import CodeGen
from torch.fx.node import map_aggregate
from torch.fx.proxy import GraphAppendingTracer

from exirkit.ir import PROVENANCE_KEYS, ContractError, Diagnostic, EdgeOpOverload, edge_operator

from .inference import Inference
from .values import SYMBOLIC, ProxyValue


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

    def settle(self, value: Any, reader: Node) -> None:
        """Say which node of the old graph read a value: it keeps its attribute name."""
        self._homes.setdefault(id(value), (value, reader))

    def succeed(self, old: Any, new: Any) -> None:
        """Give the attribute name of one value to another that takes its place."""
        if id(old) in self._homes:
            self.settle(new, self._homes[id(old)][1])

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
                Diagnostic(
                    code="EK405",
                    message=f"%{node.name} is not a node of the graph being built",
                    hint="use the values that the hook was given: nodes of the old graph, and values of an outer graph "
                    "inside a branch, have no place here",
                )
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
                Diagnostic(
                    code="EK405",
                    message=f"symbolic number {symbol} is computed by no node before this one",
                    hint="compute it with call_sym from sizes that the graph has, or read it with call_size_operator",
                )
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
        """Return the graph as a module; its code is generated when somebody calls or prints it."""
        with _use_lazy_graph_module(True):
            result = _make_graph_module(self.root, self.graph, class_name=type(source).__name__)
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
            Diagnostic(
                code="EK405",
                message=f"a fake tensor of shape {tuple(value.shape)} was given where a value of the graph belongs",
                hint="pass the ProxyValue itself, not its .data; build constants outside of a FakeTensorMode",
            )
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

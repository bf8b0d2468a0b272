"""Graphs of the ExecuTorch dialect, built by hand."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node

from exirkit.ir import TensorSpec, alloc, view

ATEN = torch.ops.aten


@dataclass
class GraphBuilder:
    """Builds nodes with specs; sizes are in bytes (uint8) unless a dtype is given."""

    graph: Graph = field(default_factory=Graph)
    root: torch.nn.Module = field(default_factory=torch.nn.Module)
    inputs: list[InputSpec] = field(default_factory=list)
    mutations: list[OutputSpec] = field(default_factory=list)

    def input(
        self, name: str, shape: Sequence[int], kind: InputKind = InputKind.USER_INPUT, dtype: torch.dtype = torch.uint8
    ) -> Node:
        node = self.graph.placeholder(name)
        is_constant = kind in (InputKind.PARAMETER, InputKind.CONSTANT_TENSOR)
        node.meta["spec"] = TensorSpec(dtype, shape, const=is_constant)
        target = None if kind is InputKind.USER_INPUT else f"model.{name}"
        persistent = True if kind is InputKind.BUFFER else None
        self.inputs.append(InputSpec(kind, TensorArgument(name), target, persistent))
        return node

    def op(self, arg: Node, shape: Sequence[int], dtype: torch.dtype = torch.uint8, target: object = None) -> Node:
        spec = TensorSpec(dtype, shape)
        out = self.graph.call_function(alloc, ((tuple(shape), dtype),))
        node = self.graph.call_function(target or ATEN.neg.out, (arg,), {"out": out})  # type: ignore[arg-type]
        out.meta["spec"] = node.meta["spec"] = spec
        return node

    def add(self, left: Node, right: Node, shape: Sequence[int]) -> Node:
        node = self.op(left, shape, target=ATEN.add.out)
        node.args = (left, right)
        return node

    def topk(self, arg: Node, shape: Sequence[int]) -> tuple[Node, Node]:
        specs = [TensorSpec(torch.float32, shape), TensorSpec(torch.int64, shape)]
        outs = [self.graph.call_function(alloc, ((tuple(shape), spec.dtype),)) for spec in specs]
        kwargs: dict[str, Any] = {"values": outs[0], "indices": outs[1]}
        node = self.graph.call_function(ATEN.topk.values, (arg, shape[-1]), kwargs)
        for out, spec in zip(outs, specs, strict=True):
            out.meta["spec"] = spec
        node.meta["spec"] = specs
        items = [self.graph.call_function(operator.getitem, (node, index)) for index in range(2)]
        for item, spec in zip(items, specs, strict=True):
            item.meta["spec"] = spec
        return items[0], items[1]

    def view(self, base: Node, shape: Sequence[int], offset_bytes: int = 0, *, linked: bool = True) -> Node:
        node = self.graph.call_function(view, (base, list(shape)))
        spec = TensorSpec(base.meta["spec"].dtype, shape)
        if linked:
            spec.storage_base = base.meta["spec"]
            spec.storage_offset_bytes = offset_bytes
        node.meta["spec"] = spec
        return node

    def write(self, buffer: Node, value: Node) -> Node:
        node = self.graph.call_function(ATEN.copy_.default, (buffer, value))
        node.meta["spec"] = buffer.meta["spec"]
        kind, target = OutputKind.BUFFER_MUTATION, f"model.{buffer.name}"
        if self.inputs[[one.arg.name for one in self.inputs].index(buffer.name)].kind is InputKind.USER_INPUT:
            kind, target = OutputKind.USER_INPUT_MUTATION, buffer.name
        self.mutations.append(OutputSpec(kind, TensorArgument(node.name), target))
        return node

    def submodule(self, name: str, graph_module: GraphModule) -> Node:
        self.root.add_module(name, graph_module)
        return self.graph.get_attr(name)

    def cond(self, pred: Node, branches: Sequence[Node], operands: Sequence[Node], shape: Sequence[int]) -> Node:
        node = self.graph.call_function(torch.ops.higher_order.cond, (pred, *branches, tuple(operands)))
        node.meta["spec"] = [TensorSpec(torch.uint8, shape)]
        item = self.graph.call_function(operator.getitem, (node, 0))
        item.meta["spec"] = node.meta["spec"][0]
        for name in branches:
            branch: Any = self.root.get_submodule(str(name.target))
            for inner, outer in zip(branch.graph.find_nodes(op="placeholder"), operands, strict=False):
                share_spec(branch, inner.meta["spec"], outer.meta["spec"])
            (result,) = branch.graph.output_node().args[0]
            if result.op != "placeholder":
                share_spec(branch, result.meta["spec"], item.meta["spec"])
        return item

    def finish(self, *outputs: Node) -> tuple[GraphModule, ExportGraphSignature]:
        self.graph.output(outputs)
        user = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in outputs]
        module = GraphModule(self.root, self.graph)
        return module, ExportGraphSignature(self.inputs, [*self.mutations, *user[len(self.mutations) :]])

    def branch(self, size: int, result: int) -> GraphModule:
        """Return a graph that makes a tensor of `size` bytes and from it one of `result` bytes."""
        inner = GraphBuilder()
        return inner.finish(inner.op(inner.op(inner.input("arg", [4]), [size]), [result]))[0]


def share_spec(module: GraphModule, old: TensorSpec, new: TensorSpec) -> None:
    """Put one spec instead of another one, everywhere in a graph and in those that it calls."""
    for one in module.modules():
        for node in one.graph.nodes if isinstance(one, GraphModule) else ():
            spec = node.meta.get("spec")
            if isinstance(spec, list):
                node.meta["spec"] = [new if each is old else each for each in spec]
            elif spec is old:
                node.meta["spec"] = new
            elif isinstance(spec, TensorSpec) and spec.storage_base is old:
                spec.storage_base = new


@pytest.fixture
def builder() -> GraphBuilder:
    return GraphBuilder()


@pytest.fixture
def new_builder() -> Callable[[], GraphBuilder]:
    return GraphBuilder

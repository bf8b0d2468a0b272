"""Valid programs of every dialect with state, dynamic sizes and control flow, for tests to break."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._ops import OpOverload
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule, Node

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.ir import TensorSpec, alloc, called_graphs, copy_program, edge_operator, find_out_variant, underlying


class Choosing(torch.nn.Module):
    """A model with a weight, a buffer that it changes, and a branch within a branch."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4,), 0.5))
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(self.weight)
        y = x * self.weight
        chosen: torch.Tensor = torch.cond(y.sum() > 0, _outer, lambda a: a.cos() - a, (y,))
        return torch.relu(chosen), chosen + y


def _outer(a: torch.Tensor) -> torch.Tensor:
    inner: torch.Tensor = torch.cond(a.amax() > 1, lambda b: b.sin() * b, lambda b: b.tanh() + b, (a,))
    return inner.abs() * inner


class Plain(torch.nn.Module):
    """The same without branches: what the chain lowers to the end."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4,), 0.5))
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(self.weight)
        y = (x * self.weight).sin()
        return torch.relu(y) * y, y.permute(1, 0).cos() + self.count.sum()


class Looping(torch.nn.Module):
    """Three kinds of loops."""

    def forward(self, x: torch.Tensor) -> Any:
        def rounds(at: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return at + 1, a * a

        def one(row: torch.Tensor) -> torch.Tensor:
            return row.sin() * row

        mapped: Any = map_rows(one, x)  # type: ignore[arg-type]
        carry, rows = scan(lambda c, row: (c + row, c * row), torch.zeros(4), x, dim=0)
        last, power = while_loop(lambda at, a: at < 3, rounds, (torch.tensor(0), x))
        return mapped, carry, rows, last, power


def _exported(module: torch.nn.Module, rows: Any = None) -> ExportedProgram:
    shapes = None if rows is None else ({0: rows},)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(
            module.eval(), (torch.ones(3, 4),), dynamic_shapes=shapes, strict=False
        ).run_decompositions()


@cache
def _original(name: str) -> ExportedProgram:
    if name == "aten":
        return _exported(Choosing(), Dim("rows", min=2, max=7))
    if name == "loops":
        return _exported(Looping())
    if name == "edge":
        return _as_edge(_original("aten"))
    if name == "plain edge":
        return to_edge(_exported(Plain(), Dim("rows", min=2, max=7))).exported_program()
    if name == "planned":
        manager = to_edge(_exported(Plain(), Dim("rows", min=2, max=7)))
        return manager.to_executorch(ExecutorchBackendConfig(optimization_level=0)).exported_program()
    assert name == "executorch"
    return _as_executorch(_original("edge"))


def program(name: str) -> ExportedProgram:
    """Return a copy of a valid program.

    Args:
        name: `aten`, `loops`, `edge`, `executorch`, with control flow; `plain edge` and `planned`, without.
    """
    copied = copy_program(_original(name))
    for graph in called_graphs(copied.graph_module):
        for node in graph.graph.nodes:
            node.meta = dict(node.meta)
    return copied


def forget_programs() -> None:
    """Let the next programs have sizes of their own; copies share what torch knows of theirs."""
    _original.cache_clear()


def _as_edge(source: ExportedProgram) -> ExportedProgram:
    """Put edge handles instead of ATen operators, in bodies as well."""
    made = copy_program(source)
    for number, node in enumerate(_calls(made), start=1):
        node.meta = {**node.meta, "debug_handle": number}
        node.meta.pop("from_node", None)
        if isinstance(node.target, OpOverload):
            node.target = edge_operator(node.target)
    return made


def _as_executorch(source: ExportedProgram) -> ExportedProgram:
    """Put out variants instead of edge operators, each with an alloc, in bodies as well."""
    made = copy_program(source)
    for graph in called_graphs(made.graph_module):
        for node in list(graph.graph.nodes):
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                node.meta["spec"] = _spec(value)
            elif isinstance(value, list | tuple):
                node.meta["spec"] = [_spec(one) for one in value]
            if node.op == "call_function" and underlying(node.target) is not node.target:
                _give_memory(node)
    return made


def _spec(value: torch.Tensor) -> TensorSpec:
    spec = TensorSpec.from_tensor(value)
    spec.shape = [
        size if isinstance(size, int) else int(size.node.shape_env.bound_sympy(size.node.expr).upper)
        for size in spec.shape
    ]
    spec.stride = TensorSpec(spec.dtype, spec.shape).stride
    return spec


def _give_memory(node: Node) -> None:
    out = find_out_variant(underlying(node.target))
    assert out is not None
    spec = node.meta["spec"]
    with node.graph.inserting_before(node):
        memory = node.graph.create_node("call_function", alloc, ((tuple(spec.shape), spec.dtype),))
    memory.meta = dict(node.meta)
    node.target = out
    node.kwargs = {**node.kwargs, "out": memory}


def _calls(made: ExportedProgram) -> Iterator[Node]:
    for graph in called_graphs(made.graph_module):
        yield from (node for node in graph.graph.nodes if node.op == "call_function")


def bodies(made: ExportedProgram, *, depth: int) -> GraphModule:
    """Return the first graph at a depth: 0 is the method, 1 a branch, 2 a branch within that."""
    module = made.graph_module
    for _ in range(depth):
        node = next(one for one in module.graph.nodes if one.op == "get_attr")
        module = getattr(module, str(node.target))
    return module


def call_in(module: GraphModule, name: str) -> Node:
    """Return the first call in a graph whose target has `name` in its name."""
    return next(
        node
        for node in module.graph.nodes
        if node.op == "call_function" and name in str(getattr(node.target, "__name__", node.target))
    )


def calls_where(module: GraphModule, wanted: Callable[[Node], bool]) -> list[Node]:
    """Return the calls of a graph that fulfil a condition."""
    return [node for node in module.graph.nodes if node.op == "call_function" and wanted(node)]

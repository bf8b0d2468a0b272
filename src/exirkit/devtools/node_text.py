"""Everything that is known of a node, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from exirkit.ir import (
    ProgramInterface,
    TensorSpec,
    dim_order_from_stride,
    graphs_by_path,
    module_path,
    module_types,
    named_arguments,
    source_line,
    underlying,
)

# Metadata that has a line of its own, and what the modules and the source line are found in.
_SHOWN = frozenset({"val", "spec", "debug_handle", "stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn"})


def inspect_node(graph: Graph, node: Node) -> str:
    """Return a graph as text with an arrow at one node, and everything that is known of that node.

    Source: `executorch.exir.print_program.inspect_node` of the ExecuTorch documentation.
    """
    lines = [f"{'-->' if one is node else '   '} {text}" for one in graph.nodes if (text := one.format_node())]
    return "\n".join([*lines, "", describe_node(node)])


def describe_node(node: Node, program: ExportedProgram | None = None) -> str:
    """Return what is known of a node: operator, schema, arguments, value, users, memory, debug handle, origin.

    Args:
        node: A node, of the graph of a method or of a body of control flow.
        program: Its program, which knows what is stored under inputs, which results are outputs, and what body it is.
    """
    return "\n".join([*_lines(node), *(_of_program(node, program) if program is not None else ()), *_origin(node)])


def nodes_named(program: ExportedProgram, name: str) -> list[Node]:
    """Return the nodes of a name: that of the method's graph first, then those of bodies of control flow."""
    graphs = (module.graph for _, module in graphs_by_path(program.graph_module))
    return [node for graph in graphs for node in graph.nodes if node.name == name]


def _of_program(node: Node, program: ExportedProgram) -> Iterator[str]:
    interface = ProgramInterface.of(program)
    spec = interface.inputs.get(node)
    if spec is not None:
        written = ", which changes" if interface.is_written(node) else ""
        yield f"stands for: {spec.kind.name.lower()} {spec.target or node.name}{written}"
    for at, (value, result) in enumerate(interface.results):
        if value is node and result is not None:
            of = f" of {result.target}" if result.target else ""
            yield f"result {at}: {result.kind.name.lower()}{of}"
    for path, module in graphs_by_path(program.graph_module):
        if path and module.graph is node.graph:
            yield f"in the body: {path}"


def _lines(node: Node) -> Iterator[str]:
    yield f"%{node.name}: {node.op} {_operator(node)}"
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is not None:
        yield f"schema: {schema}"
        for name, value in named_arguments(node, schema).items():
            yield f"  {name}: {_argument(value)}"
    else:
        for at, value in enumerate(node.args):
            yield f"  {at}: {_argument(value)}"
        for name, value in node.kwargs.items():
            yield f"  {name}: {_argument(value)}"
    yield f"value: {_value(node.meta.get('val'))}"
    users = (f"%{user.name}" + (f" ({_operator(user)})" if user.op == "call_function" else "") for user in node.users)
    yield f"users: {', '.join(users) or 'none'}"
    spec = node.meta.get("spec")
    if isinstance(spec, TensorSpec):
        place = "none" if spec.mem_id is None else f"arena {spec.mem_id} at {spec.mem_offset}"
        yield f"memory: {spec.nbytes():,} bytes, {'constant' if spec.const else place}"
    if "debug_handle" in node.meta:
        yield f"debug handle: {node.meta['debug_handle']}"


def _origin(node: Node) -> Iterator[str]:
    others = sorted(key for key in node.meta if key not in _SHOWN)
    if others:
        yield f"other metadata: {', '.join(others)}"
    kinds = module_types(node)
    if kinds:
        yield f"module: {module_path(node) or 'the model itself'} ({kinds[-1]})"
    line = source_line(node)
    if line is not None:
        yield f"line: {line}"
    yield f"comes from:\n{(node.meta.get('stack_trace') or 'unknown').rstrip()}"


def _operator(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _argument(value: Any) -> str:
    if isinstance(value, Node):
        return f"%{value.name}  {_value(value.meta.get('val'))}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(f'%{one.name}' if isinstance(one, Node) else repr(one) for one in value)}]"
    return repr(value)


def _value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        dtype, sizes = str(value.dtype).removeprefix("torch."), ", ".join(map(str, value.shape))
        order = ", ".join(map(str, dim_order_from_stride(value.stride(), value.shape)))
        return f"{dtype} [{sizes}], dim order [{order}]"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_value, value))})"
    return "unknown" if value is None else f"{type(value).__name__} {value}"

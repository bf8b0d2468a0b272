"""Everything that is known of a node, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from exirkit.ir import (
    TensorSpec,
    dim_order_from_stride,
    module_path,
    module_types,
    named_arguments,
    source_line,
    underlying,
)


def inspect_node(graph: Graph, node: Node) -> str:
    """Return a graph as text with an arrow at one node, and everything that is known of that node.

    Source: `executorch.exir.print_program.inspect_node` of the ExecuTorch documentation.
    """
    lines = [f"{'-->' if one is node else '   '} {text}" for one in graph.nodes if (text := one.format_node())]
    return "\n".join([*lines, "", describe_node(node)])


def describe_node(node: Node) -> str:
    """Return what is known of a node: operator, schema, arguments, value, users, memory, origin."""
    return "\n".join(_lines(node))


def _lines(node: Node) -> Iterator[str]:
    yield f"%{node.name}: {node.op} {getattr(node.target, '__name__', node.target)}"
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
    yield f"users: {', '.join(f'%{user.name}' for user in node.users) or 'none'}"
    spec = node.meta.get("spec")
    if isinstance(spec, TensorSpec):
        place = "none" if spec.mem_id is None else f"arena {spec.mem_id} at {spec.mem_offset}"
        yield f"memory: {spec.nbytes():,} bytes, {'constant' if spec.const else place}"
    if "debug_handle" in node.meta:
        yield f"debug handle: {node.meta['debug_handle']}"
    kinds = module_types(node)
    if kinds:
        yield f"module: {module_path(node) or 'the model itself'} ({kinds[-1]})"
    line = source_line(node)
    if line is not None:
        yield f"line: {line}"
    yield f"comes from:\n{(node.meta.get('stack_trace') or 'unknown').rstrip()}"


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

"""Edge programs in the form in which the official package stores them in a record.

Source: the serialised form of exported programs that ExecuTorch keeps, version 5.4. It is torch's own form of an
earlier version, in which operators of the Edge dialect are names of the official package and nodes have debug handles.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from exirkit.ir import (
    EdgeOpOverload,
    copy_graph_module,
    serialized_expression_text,
    serialized_graph,
    serialized_ranges,
)

_VERSION: Final = {"major": 5, "minor": 4}
_EDGE_PREFIX: Final = "executorch.exir.dialects.edge.ops"
# What the later version of torch added, by what the table has besides.
_ADDED: Final = {
    "Node": ("is_hop_single_tensor_return",),
    "NamedArgument": ("kind",),
    "Graph": ("sym_float_values",),
    "ModuleCallSignature": ("forward_arg_names",),
    "GraphModule": ("metadata", "treespec_namedtuple_fields"),
}


def stored_program(program: ExportedProgram, handles: Mapping[str, int], *, weights: bool) -> dict[str, bytes]:
    """Return the members of an archive that hold a program, by what is added to its name.

    Args:
        program: A program of the Edge dialect without delegates.
        handles: Debug handle by the name of a node.
        weights: Whether to store the values of weights; else each is an empty place of its dtype and sizes.

    Raises:
        Exception: What torch raises if it does not serialise the program.
    """
    module = _with_aten_operators(program.graph_module)
    found = _plain(serialized_graph(program.graph_signature, program.module_call_graph, module))
    _finish_nodes(found["graph"], handles, _edge_targets(program.graph_module))
    document = {
        "graph_module": found,
        "opset_version": {"aten": 10},
        "range_constraints": _plain(serialized_ranges(program.range_constraints)),
        "schema_version": _VERSION,
        "dialect": "EDGE",
        "verifiers": [],
    }
    return {
        "": json.dumps(document).encode(),
        "_state_dict": _saved(_stored_weights(program.state_dict, weights)),
        "_constants": _saved(_stored_weights(program.constants, weights)),
        "_example_inputs": _saved(program.example_inputs or ((), {})),
    }


def _with_aten_operators(module: GraphModule) -> GraphModule:
    copied = copy_graph_module(module)
    for part in [copied, *(each for each in copied.modules() if isinstance(each, GraphModule))]:
        for node in part.graph.nodes:
            if isinstance(node.target, EdgeOpOverload):
                node.target = node.target._op
    return copied


def _edge_targets(module: GraphModule) -> set[str]:
    parts = [module, *(each for each in module.modules() if isinstance(each, GraphModule))]
    return {node.name for part in parts for node in part.graph.nodes if isinstance(node.target, EdgeOpOverload)}


def _plain(value: Any) -> Any:
    """Return dataclasses as dicts of what the earlier version has; of unions, the member that is set."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_fields(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    # JSON has no such numbers, and the official reader takes what Python's json writes for them.
    return value


def _plain_fields(value: Any) -> dict[str, Any]:
    if hasattr(value, "type") and hasattr(type(value), "create"):
        return {value.type: _plain(value.value)}
    if type(value).__name__ == "SymExpr":
        return {"expr_str": serialized_expression_text(value.expr_str), "hint": _plain(value.hint)}
    left_out = _ADDED.get(type(value).__name__, ())
    fields = (each.name for each in dataclasses.fields(value))
    return {name: _plain(getattr(value, name)) for name in fields if name not in left_out}


def _finish_nodes(graph: dict[str, Any], handles: Mapping[str, int], edge: set[str]) -> None:
    for node in graph["nodes"]:
        name = node.get("name") or _first_output(node)
        if name in edge:
            node["target"] = node["target"].replace("torch.ops", _EDGE_PREFIX, 1)
        if name in handles:
            node["metadata"]["debug_handle"] = str(handles[name])
        node["metadata"].pop("from_node", None)
        node["name"] = name
        for argument in node["inputs"]:
            subgraph = argument["arg"].get("as_graph")
            if subgraph is not None:
                _finish_nodes(subgraph["graph"], handles, edge)


def _first_output(node: dict[str, Any]) -> str:
    for output in node["outputs"]:
        for found in output.values():
            if isinstance(found, dict) and "name" in found:
                return str(found["name"])
    return ""


def _stored_weights(weights: Mapping[str, Any], keep: bool) -> dict[str, Any]:
    return {name: one if keep else _without_values(one) for name, one in weights.items()}


def _without_values(weight: Any) -> Any:
    """Return a weight of the same dtype and sizes, of which a single element is stored."""
    if not isinstance(weight, torch.Tensor):
        return weight
    empty = torch.zeros((), dtype=weight.dtype).expand(weight.shape)
    return torch.nn.Parameter(empty, requires_grad=False) if isinstance(weight, torch.nn.Parameter) else empty


def _saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()

"""Edge programs in the form in which the official package stores them in a record.

Source: the serialised form of exported programs that ExecuTorch keeps, version 5.4. It is torch's own form of an
earlier version, in which operators of the Edge dialect are names of the official package and nodes have debug handles.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    EdgeOpOverload,
    check_stored_program,
    copy_graph_module,
    edge_operator,
    operator_named,
    program_from_json,
    serialized_expression_text,
    serialized_graph,
    serialized_ranges,
    serialized_version,
)

_VERSION: Final = {"major": 5, "minor": 4}
_EDGE_PREFIX: Final = "executorch.exir.dialects.edge.ops"
_OWN_PREFIX: Final = "exirkit.ops."
# What the later version of torch added, by what the table has besides.
_ADDED: Final = {
    "Node": ("is_hop_single_tensor_return",),
    "NamedArgument": ("kind",),
    "Graph": ("sym_float_values",),
    "ModuleCallSignature": ("forward_arg_names",),
    "GraphModule": ("metadata", "treespec_namedtuple_fields"),
}


def stored_program(
    program: ExportedProgram, handles: Mapping[str, Sequence[int | None]], *, weights: bool
) -> dict[str, bytes]:
    """Return the members of an archive that hold a program, by what is added to its name.

    Args:
        program: A program of the Edge dialect without delegates.
        handles: Debug handles of the nodes of a name, in the order of the graphs; bodies follow on their calls.
        weights: Whether to store the values of weights; else each is an empty place of its dtype and sizes.

    Raises:
        Exception: What torch raises if it does not serialise the program.
    """
    module = _with_aten_operators(program.graph_module)
    found = _plain(serialized_graph(program.graph_signature, program.module_call_graph, module))
    left = {name: iter(each) for name, each in handles.items()}
    _finish_nodes(found["graph"], left, _edge_targets(program.graph_module))
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


def _finish_nodes(graph: dict[str, Any], handles: Mapping[str, Iterator[int | None]], edge: set[str]) -> None:
    for node in graph["nodes"]:
        name = node.get("name") or _first_output(node)
        if name in edge:
            operator = node["target"].removeprefix("torch.ops.")
            if operator.startswith(_OWN_PREFIX):
                # Of an operator that it does not know, torch does not say which arguments are given.
                operator = operator.removeprefix(_OWN_PREFIX)
                for declared, argument in zip(operator_named(operator)._schema.arguments, node["inputs"], strict=False):
                    argument["name"] = argument["name"] or declared.name
            node["target"] = f"{_EDGE_PREFIX}.{operator}"
        handle = next(handles[name], None) if name in handles else None
        if handle is not None:
            node["metadata"]["debug_handle"] = str(handle)
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


# Operators that torch does not know, by those that take the same arguments but for the order of dims.
_IN_TORCH: Final = {
    "dim_order_ops._to_dim_order_copy.default": "aten._to_copy.default",
    "dim_order_ops._clone_dim_order.default": "aten.clone.default",
    "dim_order_ops._empty_dim_order.default": "aten.empty.memory_format",
}
_ORDER: Final = "dim_order"
_KEPT: Final = ("stack_trace", "nn_module_stack")


def restored_program(document: dict[str, Any], state: dict[str, Any], constants: dict[str, Any]) -> ExportedProgram:
    """Return the program of the Edge dialect that an archive holds, with its debug handles.

    It may come from anyone: nothing in it is unpickled or run.

    Args:
        document: The member with the graph; it is changed.
        state: Its parameters and buffers.
        constants: Its constants.

    Raises:
        Exception: What torch raises if it does not read the program; ValueError for what it is not let read.
    """
    for name, one in [*state.items(), *constants.items()]:
        if isinstance(one, torch.Tensor) and one.untyped_storage().nbytes() < one.numel() * one.element_size():
            raise ValueError(f"the values of {name} were not saved")
    notes = _take_notes(document["graph_module"]["graph"])
    document |= {"schema_version": serialized_version(), "dialect": "ATEN", "verifiers": [], "guards_code": []}
    check_stored_program(document)
    program = program_from_json(json.dumps(document).encode(), state, constants, None)
    _restore_graph(program.graph_module, notes)
    return program


@dataclasses.dataclass
class _Notes:
    """What a graph in torch's form does not say: by names of nodes, and for the graphs in it by their names."""

    nodes: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    graphs: dict[str, _Notes] = dataclasses.field(default_factory=dict)


def _take_notes(graph: dict[str, Any]) -> _Notes:
    """Make the calls of a graph those of torch, and note what is lost by that."""
    notes = _Notes()
    for node in graph["nodes"]:
        metadata = node["metadata"]
        note = notes.nodes[node.get("name") or _first_output(node)] = {"handle": metadata.get("debug_handle")}
        node["metadata"] = {key: metadata[key] for key in _KEPT if key in metadata}
        name = node["target"].removeprefix(f"{_EDGE_PREFIX}.")
        if name != node["target"]:
            note["edge"] = name
            node["target"] = f"torch.ops.{_IN_TORCH.get(name, name)}"
        if name in _IN_TORCH:
            given = {one["name"]: one["arg"] for one in node["inputs"]}
            note[_ORDER] = given.get(_ORDER, {}).get("as_ints")
            node["inputs"] = [one for one in node["inputs"] if one["name"] != _ORDER]
        for argument in node["inputs"]:
            if "as_graph" in argument["arg"]:
                part = argument["arg"]["as_graph"]
                notes.graphs[part["name"]] = _take_notes(part["graph"])
    return notes


def _restore_graph(module: GraphModule, notes: _Notes) -> None:
    for node in module.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, str):
            raise ValueError(f"there is no operator {node.target[:80]!r}")
        _restore(node, notes.nodes.get(node.name, {}))
    for name, inner in notes.graphs.items():
        part = getattr(module, name, None)
        if isinstance(part, GraphModule):
            _restore_graph(part, inner)
    module.recompile()


def _restore(node: Node, note: Mapping[str, Any]) -> None:
    if note.get("handle") is not None:
        node.meta["debug_handle"] = int(note["handle"])
    if "edge" in note:
        node.target = edge_operator(operator_named(note["edge"]))
        if note.get(_ORDER) is not None:
            node.kwargs = {**node.kwargs, _ORDER: [int(one) for one in note[_ORDER]]}


def _saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()

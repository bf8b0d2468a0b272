"""A second opinion on what a program is: descriptions to compare, and values computed by running the whole graph.

Nothing here uses the editor, the journal or their comparisons.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

# What torch infers for this one is a guess about dynamic sizes.
INSTEAD: dict[Any, Any] = {
    torch.ops.aten.permute_copy.default: lambda x, dims: x.permute(dims).clone(memory_format=torch.contiguous_format)
}

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def exact(program: ExportedProgram) -> dict[str, Any]:
    """Describe everything that an undo must bring back, down to object identity, order of users and free names."""
    graph = program.graph_module.graph
    namespace = graph._graph_namespace
    nodes = list(graph.nodes)
    return {
        "nodes": [
            (id(node), node.name, node.op, node.target, described(node.args), described(node.kwargs), node._erased)
            for node in nodes
        ],
        "users": [[user.name for user in node.users] for node in nodes],
        "inputs": [[source.name for source in node.all_input_nodes] for node in nodes],
        "meta": [{key: described(value) for key, value in node.meta.items()} for node in nodes],
        "length": len(graph.nodes),
        "found": [node in graph._find_nodes_lookup_table for node in nodes],
        "listed": sorted(
            (str(key), sorted(node.name for node in found))
            for key, found in graph._find_nodes_lookup_table.table.items()
            if found
        ),
        "names": set(namespace._used_names),
        "numbers": dict(namespace._base_count),
        "registered": {node.name: name for node, name in namespace._obj_to_name.items()},
        "signature": signature(program),
        "state": [(name, id(value)) for name, value in program.state_dict.items()],
        "constants": [(name, id(value)) for name, value in program.constants.items()],
        "ranges": [(str(symbol), str(bounds)) for symbol, bounds in program.range_constraints.items()],
    }


def meaning(program: ExportedProgram) -> dict[str, Any]:
    """Describe what makes two programs different programs: graph, metadata, signature and the stored bytes."""
    return {
        "nodes": [
            (node.name, node.op, target_of(node), described(node.args), described(node.kwargs))
            for node in program.graph_module.graph.nodes
        ],
        "meta": [sorted_meta(node) for node in program.graph_module.graph.nodes],
        "signature": signature(program),
        "state": {name: stored(value) for name, value in program.state_dict.items()},
        "constants": {name: stored(value) for name, value in program.constants.items()},
        "ranges": {str(symbol): str(bounds) for symbol, bounds in program.range_constraints.items()},
    }


def sorted_meta(node: Node) -> list[tuple[str, Any]]:
    return sorted((key, described(value)) for key, value in node.meta.items())


def target_of(node: Node) -> Any:
    # The target of an input is its name in generated code and nothing else.
    return None if node.op == "placeholder" else node.target


def signature(program: ExportedProgram) -> list[str]:
    return [repr(spec) for spec in (*program.graph_signature.input_specs, *program.graph_signature.output_specs)]


def stored(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (type(value), value.dtype, tuple(value.shape), value.stride(), value.data_ptr(), value.requires_grad)
    return repr(value)


def described(value: Any) -> Any:
    """Describe an argument or a metadata entry; lists and tuples are alike, numbers are exact in type and bits."""
    if isinstance(value, Node):
        return ("node", value.name)
    if isinstance(value, SYMBOLIC):
        return (type(value).__name__, str(value.node.expr))
    if isinstance(value, FakeTensor):
        return ("tensor", value.dtype, described(tuple(value.shape)), described(value.stride()), str(value.device))
    if isinstance(value, torch.Tensor):
        return ("memory", id(value))
    if isinstance(value, list | tuple):
        return ("sequence", *map(described, value))
    if isinstance(value, dict):
        return ("mapping", *((described(key), described(entry)) for key, entry in value.items()))
    if isinstance(value, float):
        return ("float", value.hex())
    return (type(value).__name__, repr(value))


def agrees(program: ExportedProgram) -> None:
    """Assert that graph and signature tell the same story, by position."""
    graph = program.graph_module.graph
    graph.lint()
    nodes = list(graph.nodes)
    assert all(earlier < later for earlier, later in itertools.pairwise(nodes))
    assert len({node.name for node in nodes}) == len(nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    specs = program.graph_signature.input_specs
    assert [spec.arg.name for spec in specs] == [node.name for node in placeholders]
    for spec in specs:
        if spec.target is not None:
            assert spec.target in program.state_dict or spec.target in program.constants
    results: Any = graph.output_node().args[0]
    outputs = program.graph_signature.output_specs
    assert len(results) == len(outputs)
    for result, output in zip(results, outputs, strict=True):
        kind = type(output.arg).__name__
        if isinstance(result, Node):
            assert output.arg.name == result.name
            value = result.meta.get("val")
            if isinstance(value, torch.Tensor):
                assert kind == "TensorArgument"
            elif isinstance(value, SYMBOLIC):
                assert kind == f"{type(value).__name__}Argument"
        else:
            assert kind == "ConstantArgument"
            assert described(output.arg.value) == described(result)


def recomputed(program: ExportedProgram) -> dict[str, Any]:
    """Run the whole graph on fake inputs and return what each call computes, described."""
    modes = [
        node.meta["val"].fake_mode
        for node in program.graph_module.graph.nodes
        if isinstance(node.meta.get("val"), FakeTensor)
    ]
    env = modes[0].shape_env
    assert env is not None
    values: dict[Node, Any] = {}
    found: dict[str, Any] = {}
    with env.error_on_new_guards(), modes[0], torch.no_grad():
        for node in program.graph_module.graph.nodes:
            if node.op == "placeholder":
                values[node] = node.meta["val"]
            elif node.op == "get_attr":
                values[node] = getattr(program.graph_module, node.target)
            elif node.op == "call_function":
                args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = INSTEAD.get(node.target, node.target)(*args, **kwargs)
                found[node.name] = described(values[node])
    return found


def recorded(program: ExportedProgram) -> dict[str, Any]:
    """Return what the metadata says that each call computes."""
    return {
        node.name: described(node.meta.get("val"))
        for node in program.graph_module.graph.nodes
        if node.op == "call_function"
    }

"""Running graphs of every dialect on torch, and pieces of lowering, for tests of the passes to ExecuTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tests.passes.programs import core
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import GraphEditor, alloc, copy_program
from exirkit.passes import Pass, run_passes, to_edge_passes, to_executorch_passes


def edge_program(model: torch.nn.Module | Callable[..., Any], *args: Any, **options: Any) -> ExportedProgram:
    """Trace, decompose and lower to Edge."""
    program = core(model, *args, **options)
    run_passes(GraphEditor(program), to_edge_passes())
    return program


def executorch_program(program: ExportedProgram, **options: Any) -> ExportedProgram:
    """Lower a copy of an Edge program to the ExecuTorch dialect."""
    lowered = copy_program(program)
    run_passes(GraphEditor(lowered), to_executorch_passes(**options))
    return lowered


def after(program: ExportedProgram, *passes: Pass) -> ExportedProgram:
    """Run passes on a copy."""
    changed = copy_program(program)
    run_passes(GraphEditor(changed), passes)
    return changed


def run(program: ExportedProgram, inputs: Sequence[Any], state: dict[str, torch.Tensor] | None = None) -> list[Any]:
    """Run a graph node by node on real tensors and return its outputs.

    Placeholders of one name are one tensor, as in a runtime: writes to them are seen by whatever reads them later.

    Args:
        program: A program of any dialect.
        inputs: What the caller passes.
        state: Tensors of buffers by their names, changed in place; copies of the program's own when absent.
    """
    tables = {name: one.clone() for name, one in {**program.state_dict, **program.constants}.items()}
    tables.update(state or {})
    pending = iter(inputs)
    values: dict[Node, Any] = {}
    placeholders = program.graph.find_nodes(op="placeholder")
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        values[node] = next(pending) if spec.target is None else tables[spec.target]
    with torch.no_grad():
        for node in program.graph.nodes:
            if node.op == "get_attr":
                values[node] = getattr(program.graph_module, str(node.target))
            elif node.op == "call_function":
                values[node] = _call(node, values)
    results: Any = program.graph.output_node().args[0]
    return [values[one] if isinstance(one, Node) else one for one in results]


def _call(node: Node, values: dict[Node, Any]) -> Any:
    if node.target is alloc:
        # Real sizes can be smaller than the bounds; out variants resize.
        return torch.empty(0, dtype=node.meta["val"].dtype)
    args, kwargs = map_arg((node.args, dict(node.kwargs)), values.__getitem__)
    result = node.target(*args, **kwargs)  # type: ignore[operator]
    return kwargs["out"] if result is None and "out" in kwargs else result


def call_nodes(program: ExportedProgram, target: Any) -> list[Any]:
    """Return the calls of one target, in graph order."""
    return [node for node in program.graph.nodes if node.op == "call_function" and node.target is target]


def results(program: ExportedProgram) -> list[Any]:
    """Return what the output node returns."""
    returned: Any = program.graph.output_node().args[0]
    return list(returned)

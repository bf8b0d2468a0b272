"""Tensor specs against the values that they describe; outputs and new values of inputs in memory of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Node

from exirkit.ir import (
    COND,
    MAP,
    Diagnostic,
    ProgramInterface,
    TensorShapeDynamism,
    TensorSpec,
    control_flow_call,
    dim_order_from_stride,
    pytree,
    results_of_graph,
    stride_from_dim_order,
    value_of,
    written_in_place,
)

from .structure import ProgramGraph, graphs_of, is_bound, type_of

_COPY = torch.ops.aten.copy_.default


def check_specs(program: ExportedProgram | GraphModule, *, bounded: bool = True) -> list[Diagnostic]:
    """Check that every tensor has a spec, and that this says what the tensor is.

    Args:
        program: Program whose specs have been propagated.
        bounded: Every size has been replaced by its upper bound.

    Returns:
        All findings (EK338: no spec, or one that says otherwise, EK339: a dim order that is none, EK340: a size without
        upper bound), in graph order.
    """
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        for node in graph.module.graph.nodes:
            if node.op in ("placeholder", "call_function"):
                findings += _findings(graph, node, bounded)
    if isinstance(program, ExportedProgram):
        findings += _wrong_constants(program)
    return findings


def _wrong_constants(program: ExportedProgram) -> Iterator[Diagnostic]:
    """Yield constants that are passed in each run, or written to: what is stored as one never changes."""
    graph, interface = ProgramGraph(program.graph_module, ""), ProgramInterface.of(program)
    copied = {call.args[0] for call in program.graph.find_nodes(op="call_function", target=_COPY)}
    for node in interface.placeholders:
        spec = node.meta.get("spec")
        if not isinstance(spec, TensorSpec) or not spec.const:
            continue
        if not interface.is_stored(node):
            yield _wrong(graph, node, f"the spec of %{node.name} says that the input is a constant")
        elif node in copied or interface.is_written(node):
            yield _wrong(graph, node, f"the spec of %{node.name} says that it is a constant, and the program writes it")


def _findings(graph: ProgramGraph, node: Node, bounded: bool) -> Iterator[Diagnostic]:
    value = node.meta.get("val")
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not any(isinstance(one, torch.Tensor) for one in values):
        return
    spec = node.meta.get("spec")
    specs: list[Any] = list(pytree.tree_leaves(spec)) if isinstance(spec, list | tuple) else [spec]
    if len(specs) != len(values):
        yield _wrong(graph, node, f"%{node.name} has {len(specs)} specs for {len(values)} results")
        return
    for one, tensor in zip(specs, values, strict=True):
        if not isinstance(tensor, torch.Tensor):
            continue
        if not isinstance(one, TensorSpec):
            yield _wrong(graph, node, f"%{node.name} has no spec")
        elif sorted(one.dim_order) != list(range(len(one.shape))):
            yield _no_dim_order(graph, node, one)
        else:
            yield from _disagreement(graph, node, one, tensor)
            if bounded and not all(isinstance(size, int) for size in one.shape):
                yield _unbounded(graph, node, one)


def _disagreement(graph: ProgramGraph, node: Node, spec: TensorSpec, value: torch.Tensor) -> Iterator[Diagnostic]:
    if spec.dtype != value.dtype or not _bounds(spec, value):
        yield _wrong(graph, node, f"the spec of %{node.name} says {spec}, its value is {type_of(value)}")
        return
    if not _same_numbers(spec.stride, stride_from_dim_order(spec.shape, spec.dim_order)):
        yield _wrong(graph, node, f"the spec of %{node.name} has strides {spec.stride} in order {spec.dim_order}")
    if spec.shape_dynamism == TensorShapeDynamism.STATIC and _varies(value):
        yield _wrong(
            graph, node, f"the spec of %{node.name} says {spec}, which is static; its value is {type_of(value)}"
        )
    order = None if spec.const or _is_ambiguous(value) else dim_order_from_stride(value.stride(), value.shape)
    if order is not None and order != list(spec.dim_order):
        yield _wrong(graph, node, f"the spec of %{node.name} has dim order {spec.dim_order}, its value {order}")


def _bounds(spec: TensorSpec, value: torch.Tensor) -> bool:
    # A branch may write less into the result of the call than another branch does.
    varies = spec.shape_dynamism != TensorShapeDynamism.STATIC
    # The runtime finds out how large the others are.
    is_open = spec.is_dynamic_unbound_tensor
    return len(spec.shape) == value.dim() and all(
        (bound == size if type(bound) is int and type(size) is int else is_bound(bound, size))
        or (varies and type(size) is int and size <= bound)
        or (is_open and bound == 0)
        for bound, size in zip(spec.shape, value.shape, strict=True)
    )


def _varies(value: torch.Tensor) -> bool:
    return any(isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None for size in value.shape)


def _same_numbers(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Compare numbers of which some may be symbolic, without asking torch for a guard."""
    return len(some) == len(others) and all(
        one == other if type(one) is int and type(other) is int else str(one) == str(other)
        for one, other in zip(some, others, strict=True)
    )


def _is_ambiguous(value: torch.Tensor) -> bool:
    """Return whether memory could be ordered in several ways: dynamic sizes, sizes 0 and 1, or expanded dims."""
    return (
        value.layout is not torch.strided
        or any(type(number) is not int or number <= 1 for number in value.shape)
        or any(type(step) is not int or step == 0 for step in value.stride())
    )


def _wrong(graph: ProgramGraph, node: Node, message: str) -> Diagnostic:
    return graph.finding("EK338", node, message)


def _unbounded(graph: ProgramGraph, node: Node, spec: TensorSpec) -> Diagnostic:
    return graph.finding("EK340", node, f"%{node.name} has sizes without upper bound: {spec}")


def _no_dim_order(graph: ProgramGraph, node: Node, spec: TensorSpec) -> Diagnostic:
    return graph.finding(
        "EK339",
        node,
        f"the dim order {spec.dim_order} of %{node.name} is not an order of {len(spec.shape)} dims",
        expected=f"each of {list(range(len(spec.shape)))} once",
    )


def check_separate_outputs(
    program: ExportedProgram, *, alloc_graph_input: bool = True, alloc_graph_output: bool = True
) -> list[Diagnostic]:
    """Check that no output has to be in two places at once.

    Args:
        program: Program whose outputs have been separated.
        alloc_graph_input: Memory of inputs is planned.
        alloc_graph_output: Memory of outputs is planned.

    Returns:
        All findings (EK356), in the order of the outputs.
    """
    return list(_output_findings(program, alloc_graph_input, alloc_graph_output))


def _output_findings(program: ExportedProgram, plans_inputs: bool, plans_outputs: bool) -> Iterator[Diagnostic]:
    graph, interface = ProgramGraph(program.graph_module, ""), ProgramInterface.of(program)
    inputs = set(interface.user_inputs)
    seen: dict[Node, int] = {}
    for place, (result, entry) in enumerate(interface.results):
        if entry is None or entry.kind is not OutputKind.USER_OUTPUT or not isinstance(result, Node):
            continue
        if not isinstance(value_of(result), torch.Tensor):
            continue
        what = None
        if result in inputs and not (plans_inputs and plans_outputs):
            what = "an input"
        elif not plans_outputs and result.op == "placeholder":
            what = "stored with the program"
        elif not plans_outputs and result in seen:
            what = f"output {seen[result]} as well"
        seen.setdefault(result, place)
        if what is not None:
            yield graph.finding("EK356", result, f"output {place}, %{result.name}, is {what}")


def check_separate_body_results(program: ExportedProgram) -> list[Diagnostic]:
    """Check that results of branches can be computed into the result of the call.

    Returns:
        All findings (EK357): a result of a branch is one of its inputs, a constant, or another of its results; or what
        a loop carries changes its place from round to round.
    """
    return [finding for graph in graphs_of(program) for node in graph.calls() for finding in _of_bodies(graph, node)]


def _of_bodies(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    call = control_flow_call(node)
    if call is None or call.kind == MAP:
        return
    for body in call.subgraphs if call.kind == COND else (call.body,):
        inputs = body.graph.find_nodes(op="placeholder")[: len(call.carried)]
        results = results_of_graph(body)
        for place, result in enumerate(results):
            if not isinstance(result, Node) or not isinstance(value_of(result), torch.Tensor):
                continue
            if call.kind == COND:
                is_wrong = result.op != "call_function" or result in results[:place]
            else:
                is_wrong = result in inputs and (place >= len(inputs) or result is not inputs[place])
            if is_wrong:
                yield graph.finding(
                    "EK357",
                    node,
                    f"result {place} of a body of %{node.name} is %{result.name}, which has a place of its own",
                )


def check_written_back(program: ExportedProgram) -> list[Diagnostic]:
    """Check that every output that the signature calls a new value is written to the input that has the old one.

    Returns:
        All findings (EK358), in the order of the outputs.
    """
    return list(_unwritten(program))


def _is_kept_at(owner: Node, result: Node) -> bool:
    """Return whether a value is computed in the memory of an input: one spec is one tensor."""
    spec = result.meta.get("spec")
    return isinstance(spec, TensorSpec) and spec is owner.meta.get("spec")


def _unwritten(program: ExportedProgram) -> Iterator[Diagnostic]:
    graph, interface = ProgramGraph(program.graph_module, ""), ProgramInterface.of(program)
    for owner, result, entry in interface.mutations:
        if not isinstance(result, Node) or result is owner:
            continue
        if written_in_place(result) is not owner and not _is_kept_at(owner, result):
            yield graph.finding(
                "EK358",
                result,
                f"%{result.name} is the new value of {entry.target}, and nothing writes it to %{owner.name}",
                expected=f"copy_(%{owner.name}, ...)",
            )

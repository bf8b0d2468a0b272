"""The tensors that out variants write into: they are given, hold nothing else, and have room for the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import DefinedOperator, Diagnostic, OpOverload, TensorShapeDynamism, TensorSpec, alloc

from .structure import ProgramGraph, graphs_of, is_bound, type_of


def check_out_arguments(program: ExportedProgram | GraphModule) -> list[Diagnostic]:
    """Check the tensors that out variants are given to write into.

    Returns:
        All findings (EK335: no such tensor is given, EK336: it holds something else, too, EK337: it is of another dtype
        or size than the result, EK349: its spec is not that of the result), in graph order.
    """
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        writers: dict[Node, Node] = {}
        for node in graph.calls():
            findings += _findings(graph, node, writers)
    return findings


def _findings(graph: ProgramGraph, node: Node, writers: dict[Node, Node]) -> Iterator[Diagnostic]:
    if not isinstance(node.target, OpOverload | DefinedOperator):
        return
    names = [argument.name for argument in node.target._schema.arguments if argument.is_out]
    given = _given(node, names)
    for name, out in given:
        if out is None and not _may_be_left_out(node, len(given)):
            yield _missing(graph, node, name, "nothing")
        elif out is not None and (not isinstance(out, Node) or out.target is not alloc):
            yield _missing(graph, node, name, f"%{out.name}" if isinstance(out, Node) else repr(out))
    outs = [out for _, out in given if isinstance(out, Node)]
    yield from _shared(graph, node, outs, names, writers)
    yield from _sizes(graph, node, [out for _, out in given])
    yield from _other_specs(graph, node, outs)


def _other_specs(graph: ProgramGraph, node: Node, outs: list[Node]) -> Iterator[Diagnostic]:
    """Yield if results have other specs than what they are written to, as far as there are specs."""
    written = [spec for out in outs for spec in _specs_of(out)]
    if written and [id(spec) for spec in written] != [id(spec) for spec in _specs_of(node)]:
        yield graph.finding(
            "EK349",
            node,
            "an operator's result and the tensor it writes to have different specs",
            expected="one `TensorSpec` object, for it is one piece of memory",
            notes=tuple(f"it writes to {spec}" for spec in written),
        )


def _specs_of(node: Node) -> list[TensorSpec]:
    spec = node.meta.get("spec")
    return [one for one in (spec if isinstance(spec, list | tuple) else (spec,)) if isinstance(one, TensorSpec)]


def _given(node: Node, names: list[str]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name in names:
        value = node.kwargs.get(name)
        if isinstance(value, list | tuple):
            found += [(f"{name}[{place}]", one) for place, one in enumerate(value)]
        else:
            found.append((name, value))
    return found


def _may_be_left_out(node: Node, number: int) -> bool:
    # Some results of operators for training are not computed; they are None.
    value = node.meta.get("val")
    return number > 1 and isinstance(value, list | tuple) and None in [type_of(one) for one in value]


def _missing(graph: ProgramGraph, node: Node, name: str, found: str) -> Diagnostic:
    return graph.finding("EK335", node, f"argument {name} is {found} where the memory of the result must stand")


def _shared(
    graph: ProgramGraph, node: Node, outs: list[Node], names: list[str], writers: dict[Node, Node]
) -> Iterator[Diagnostic]:
    inputs = {
        one
        for given in (*node.args, *(value for name, value in node.kwargs.items() if name not in names))
        for one in (given if isinstance(given, list | tuple) else (given,))
        if isinstance(one, Node)
    }
    for place, out in enumerate(outs):
        other = None
        if out in inputs:
            other = "is read by the same call"
        elif out in outs[:place]:
            other = "is written by the same call twice"
        elif out in writers:
            other = f"holds the result of %{writers[out].name}"
        if other is not None:
            yield graph.finding("EK336", node, f"%{out.name}, into which %{node.name} writes, {other}")
    for out in outs:
        writers.setdefault(out, node)


def _sizes(graph: ProgramGraph, node: Node, outs: list[Any]) -> Iterator[Diagnostic]:
    value = node.meta.get("val")
    results = list(value) if isinstance(value, list | tuple) else [value]
    if len(results) != len(outs):
        return
    for out, result in zip(outs, results, strict=True):
        if not isinstance(out, Node) or out.target is not alloc or not isinstance(result, torch.Tensor):
            continue
        described = out.args[0] if out.args else None
        if not isinstance(described, tuple) or len(described) != 2:
            yield _misfit(graph, out, f"%{out.name} allocates {described!r}", "a pair of sizes and a dtype")
            continue
        sizes: Any
        sizes, dtype = described
        spec = out.meta.get("spec")
        varies = isinstance(spec, TensorSpec) and spec.shape_dynamism != TensorShapeDynamism.STATIC
        if isinstance(spec, TensorSpec) and spec.is_dynamic_unbound_tensor and dtype == result.dtype:
            # The operator makes room.
            continue
        if dtype != result.dtype or not _has_room(sizes, result, varies):
            yield _misfit(
                graph,
                out,
                f"%{out.name} allocates {str(dtype).removeprefix('torch.')}[{', '.join(map(str, sizes))}], "
                f"into which %{node.name} writes {type_of(result)}",
                "dtype and sizes of the result, or upper bounds of these",
            )


def _misfit(graph: ProgramGraph, out: Node, message: str, expected: str) -> Diagnostic:
    return graph.finding("EK337", out, message, expected=expected)


def _has_room(sizes: Any, result: torch.Tensor, varies: bool) -> bool:
    # A branch may write less into the result of the call than another branch does.
    return len(sizes) == result.dim() and all(
        is_bound(bound, size) or (varies and type(size) is int and size <= bound)
        for bound, size in zip(sizes, result.shape, strict=True)
    )

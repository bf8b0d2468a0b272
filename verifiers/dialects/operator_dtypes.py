"""Dtypes of arguments and results against the catalogue of what operators take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    OperatorDtypes,
    functional_variant,
    is_out_variant,
    known_dtypes,
    named_arguments,
    operator_name,
    underlying,
    value_of,
)
from exirkit.verifiers.graph.program_graphs import ProgramGraph, graphs_of


def check_dtypes(program: ExportedProgram | GraphModule, *, runtime: bool = False) -> list[Diagnostic]:
    """Look up whether operators take the dtypes that they are given, and return those that are recorded.

    Args:
        program: Program of any dialect.
        runtime: Look up what kernels of the ExecuTorch runtime take; without, what those of torch take.

    Returns:
        All findings (EK353: no kernel takes these arguments, EK354: it returns another dtype), in graph order.
        Operators and dtypes that the catalogue does not know are passed over.
    """
    known = known_dtypes(runtime)
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        for node in graph.calls():
            op = _functional(node)
            entry = None if op is None else known.get(operator_name(op))
            if entry is not None:
                findings += _findings(graph, node, entry, runtime)
    return findings


def _functional(node: Node) -> OpOverload | DefinedOperator | None:
    op = underlying(node.target)
    if not isinstance(op, OpOverload | DefinedOperator):
        return None
    if is_out_variant(op):
        functional: OpOverload | DefinedOperator | None = functional_variant(op)
        return functional
    return op


def _findings(graph: ProgramGraph, node: Node, entry: OperatorDtypes, runtime: bool) -> Iterator[Diagnostic]:
    arguments = named_arguments(node)
    given = tuple(_dtype(arguments.get(name)) for name in entry.arguments)
    if None in given or not entry.is_known(given) or _is_weak(arguments.values()):  # type: ignore[arg-type]
        return
    where = "the ExecuTorch runtime" if runtime else "torch"
    possible = entry.results.get(given)  # type: ignore[arg-type]
    if possible is None:
        shown = ", ".join(f"{name}: {dtype}" for name, dtype in zip(entry.arguments, given, strict=True))
        yield graph.finding(
            "EK353",
            node,
            f"no kernel of {where} takes {shown}",
            expected=f"one of: {'  /  '.join(entry.rules[:4])}{'  ...' if len(entry.rules) > 4 else ''}",
            hint="cast the arguments first, for example by LegalizeDtypes",
        )
        return
    returned = _returned(node)
    if returned is not None and returned not in possible and _says_dtype(node):
        yield graph.finding(
            "EK354",
            node,
            f"%{node.name} is recorded to be {', '.join(returned)}",
            expected=" or ".join(sorted(", ".join(each) for each in possible)),
            hint="record the dtype that the operator returns, and cast it where another is wanted",
        )


def _is_weak(arguments: Iterable[Any]) -> bool:
    """Tell whether tensors without dims stand beside others of another dtype, which they do not widen in their kind."""
    tensors = [value for one in arguments if isinstance(value := value_of(one), torch.Tensor)]
    return len({one.dtype for one in tensors}) > 1 and len({one.dim() == 0 for one in tensors}) > 1


def _says_dtype(node: Node) -> bool:
    """Tell whether the dtype of the result follows from the arguments: not if it went with the conversion to `out`."""
    return not is_out_variant(underlying(node.target))


def _returned(node: Node) -> tuple[str, ...] | None:
    value = node.meta.get("val")
    values: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not values or not all(isinstance(one, torch.Tensor) for one in values):
        return None
    returns = underlying(node.target)._schema.returns
    if len(returns) == 1 and isinstance(value, list | tuple):
        values = values[:1]
    return tuple(str(one.dtype).removeprefix("torch.") for one in values)


def _dtype(argument: Any) -> str | None:
    """Return the dtype of an argument, `none` if it is not given, or None if there is no saying."""
    if isinstance(argument, list | tuple):
        found = {_dtype(one) for one in argument} - {"none"}
        return found.pop() if len(found) == 1 else "none" if not found else None
    value = value_of(argument)
    if value is None:
        return None if isinstance(argument, Node) else "none"
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else None

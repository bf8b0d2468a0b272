"""Which pass should have replaced a call that kernels of the target do not take, or compute otherwise than torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.fuzz.compilers import Snapshot
from exirkit.fuzz.examination import difference
from exirkit.ir import Diagnostic, graphs_by_path
from exirkit.runtime_ref import OperatorRegistry, Runtime, deviating_operators

NO_KERNEL = frozenset(("EK359", "EK360"))
"""Codes of the findings about calls that no kernel takes."""

_OPERATOR = re.compile(r"\b(\w+)::(\w+)")
_OF_LAYOUTS = re.compile(r"\b(contiguous|one_layout|same_order|channels_last)\(")


def pass_against_deviations(
    program: ExportedProgram, data: bytes, method: str, calls: Sequence[Sequence[Any]]
) -> tuple[str, str] | None:
    """Return the pass that should have replaced a call whose kernel computes otherwise than torch, and why.

    Args:
        program: A planned program, which computes something wrong because of one of its kernels.
        data: Its file.
        method: Its name there.
        calls: Inputs of every run.

    Returns:
        None if no operator alone changes a result.
    """
    nodes = (node for _, module in graphs_by_path(program.graph_module) for node in module.graph.nodes)
    called = {node.target._schema.name: node for node in nodes if hasattr(node.target, "_schema")}
    as_torch = _results(data, method, calls, ())
    for operator in sorted(called.keys() & deviating_operators()):
        if difference(_results(data, method, calls, (operator,)), as_torch) is not None:
            value = called[operator].meta.get("val")
            is_integer = isinstance(value, torch.Tensor) and not value.dtype.is_floating_point
            usual = "legalize-integers" if is_integer else "legalize-special-values"
            found = _AGAINST_DEVIATIONS.get(operator, usual)
            return found, f"the kernel of {operator} computes otherwise than torch"
    return None


def _results(data: bytes, method: str, calls: Sequence[Sequence[Any]], deviating: Collection[str]) -> list[Any]:
    loaded = Runtime(OperatorRegistry(deviations=deviating)).load_program(data).load_method(method)
    return [
        loaded.execute([one.clone() if isinstance(one, torch.Tensor) else one for one in inputs]) for inputs in calls
    ]


_AGAINST_DEVIATIONS = {"aten::add": "legalize-scaled-sums"}


def pass_in_charge(finding: Diagnostic, path: Sequence[Snapshot]) -> tuple[str, str] | None:
    """Return the pass that is to blame for a call, and why.

    Args:
        finding: EK359, EK360 or EK657, about a call of the last program.
        path: The programs of its method, from the export on.

    Returns:
        The pass that gives kernels one layout, if the kernel asks for another layout; otherwise the first one that has
        made calls of the operator. If torch.export has, the one that casts parameters of quantized values for an
        operator on these, and None for others.
    """
    asked = _OF_LAYOUTS.search(finding.expected or "")
    if finding.code == "EK360" and asked is not None:
        return "legalize-dim-order", f"the kernel asks for another layout: {finding.expected}"
    operator = _OPERATOR.search(finding.message)
    first = operator and next((at for at, one in enumerate(path) if _calls(one.program, operator)), None)
    if operator and first:
        return path[first].stage, f"{path[first].stage} has made calls of {operator[0]}"
    if "quantized_decomposed::" in finding.message:
        return "legalize-quantized", f"the kernel asks for other parameters: {finding.expected}"
    return None


def _calls(program: ExportedProgram, operator: re.Match[str]) -> bool:
    """Whether a program has a call of an operator."""
    start = f"{operator[1]}.{operator[2]}."
    graphs = (module.graph for _, module in graphs_by_path(program.graph_module))
    return any(str(node.target).startswith(start) for graph in graphs for node in graph.nodes)

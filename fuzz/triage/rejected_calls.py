"""Which pass should have replaced a call that kernels of the target do not take, or compute otherwise than torch."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch.export import ExportedProgram

from exirkit.fuzz.compilers import Snapshot
from exirkit.ir import Diagnostic, graphs_by_path
from exirkit.runtime_ref import deviating_operators

NO_KERNEL = frozenset(("EK359", "EK360"))
"""Codes of the findings about calls that no kernel takes."""

_OPERATOR = re.compile(r"\b(\w+)::(\w+)")
_OF_LAYOUTS = re.compile(r"\b(contiguous|one_layout|same_order|channels_last)\(")


def pass_against_deviations(program: ExportedProgram) -> tuple[str, str] | None:
    """Return the pass that should have replaced the first call whose kernel computes otherwise than torch, and why.

    Args:
        program: A planned program, which computes something wrong because of one of its kernels.
    """
    for _, module in graphs_by_path(program.graph_module):
        for node in module.graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if node.op != "call_function" or schema is None or schema.name not in deviating_operators():
                continue
            value = node.meta.get("val")
            is_integer = isinstance(value, torch.Tensor) and not value.dtype.is_floating_point
            usual = "legalize-integers" if is_integer else "legalize-special-values"
            found = _AGAINST_DEVIATIONS.get(schema.name, usual)
            return found, f"the kernel of %{node.name}, {schema.name}, computes otherwise than torch"
    return None


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
    call = f"{operator[1]}.{operator[2]}." if operator else ""
    for at, one in enumerate(path):
        nodes = (node for _, module in graphs_by_path(one.program.graph_module) for node in module.graph.nodes)
        if operator and any(str(node.target).startswith(call) for node in nodes):
            if at:
                return one.stage, f"{one.stage} has made calls of {operator[0]}"
            break
    if "quantized_decomposed::" in finding.message:
        return "legalize-quantized", f"the kernel asks for other parameters: {finding.expected}"
    return None

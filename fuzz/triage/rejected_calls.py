"""Which pass should have replaced a call that no kernel of the target takes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from exirkit.fuzz.compilers import Snapshot
from exirkit.ir import Diagnostic, graphs_by_path

NO_KERNEL = frozenset(("EK359", "EK360"))
"""Codes of the findings about calls that no kernel takes."""

_OPERATOR = re.compile(r"\b(\w+)::(\w+)")
_OF_LAYOUTS = re.compile(r"\b(contiguous|one_layout|same_order|channels_last)\(")


def pass_in_charge(finding: Diagnostic, path: Sequence[Snapshot]) -> tuple[str, str] | None:
    """Return the pass that is to blame for a call, and why.

    Args:
        finding: EK359 or EK360, about a call of the last program.
        path: The programs of its method, from the export on.

    Returns:
        The pass that gives kernels one layout, if the kernel asks for another layout; the one that casts parameters of
        quantized values, if its operator has them; otherwise the pass that has made the call. None if torch.export has.
    """
    asked = _OF_LAYOUTS.search(finding.expected or "")
    if finding.code == "EK360" and asked is not None:
        return "legalize-dim-order", f"the kernel asks for another layout: {finding.expected}"
    if "quantized_decomposed::" in finding.message:
        return "legalize-quantized", f"the kernel asks for other parameters: {finding.expected}"
    name, operator = (finding.location.node or "").removeprefix("%"), _OPERATOR.search(finding.message)
    call = f"{operator[1]}.{operator[2]}." if operator else ""
    for at, one in enumerate(path):
        nodes = (node for _, module in graphs_by_path(one.program.graph_module) for node in module.graph.nodes)
        if any(node.name == name and str(node.target).startswith(call) for node in nodes):
            return (one.stage, f"{one.stage} has made %{name}") if at else None
    return None

"""Whether a program has operators that are replaced for targets without a kernel for them."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import GraphModule

from .empties import LegalizeEmpties
from .integers import LegalizeIntegers
from .sorts import LegalizeSorts
from .splits import LegalizeSplits
from .volumes import LegalizeVolumes

_PASSES = (LegalizeSorts, LegalizeVolumes, LegalizeIntegers, LegalizeSplits, LegalizeEmpties)


def needs_legalizing(program: ExportedProgram) -> bool:
    """Return whether a pass of the shipped pipeline `legalize` would change an Edge program; few programs need it."""
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    return any(one.concerns(node) for graph in graphs for node in graph.nodes for one in _PASSES)

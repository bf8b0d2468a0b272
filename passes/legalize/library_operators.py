"""Composite operators of libraries: whole in Edge, where passes and partitioners recognize them, and decomposed later.

A library may implement an operator in terms of others for all devices, such as `torchao.dequantize_affine`. Written
out in Edge, it is a dozen calls that no pattern of a quantization backend matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import EdgeOpOverload, GraphEditor, called_graphs, underlying
from exirkit.passes.contract import BROKEN_BY_EDITS
from exirkit.passes.to_aten.decompose_to_core import DecomposeToCore, is_library_composite
from exirkit.passes.to_executorch.out_variants import OutVariantTable


@dataclass(eq=False, kw_only=True)
class DecomposeLibraryOperators(DecomposeToCore):
    """Decompose the composite operators of libraries that have no out variant, in an Edge program.

    What they decompose into are ATen operators, which the passes of `to_edge` legalize.

    Args:
        overrides: Names of overloads that write their results (`library.name.out`), by names of operators.

    Raises:
        UsageError: EK436, an override names what does not exist or does not fit.
        WholeGraphNeededError: A call cannot be decomposed on its own; nothing was changed.
    """

    name = "decompose-library-operators"
    requires = ("edge-operators",)
    ensures = ()
    invalidates = ("edge-operators", "tensor-arguments", "no-views", "constants-lifted", *BROKEN_BY_EDITS)
    after = ()

    overrides: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._variants = OutVariantTable().with_overrides(self.overrides)

    def edit(self, editor: GraphEditor) -> None:
        """Decompose the calls."""
        for node in list(editor.graph.nodes):
            if self.concerns(node, self._variants):
                editor.retarget(node, underlying(node.target), val=node.meta["val"])
        super().edit(editor)

    def _is_composite(self, op: OpOverload) -> bool:
        return is_library_composite(op) or super()._is_composite(op)

    @staticmethod
    def concerns(node: Node, table: OutVariantTable) -> bool:
        """Return whether the pass decomposes a call."""
        if not isinstance(node.target, EdgeOpOverload):
            return False
        op = underlying(node.target)
        return isinstance(op, OpOverload) and is_library_composite(op) and table.find(op) is None


def has_library_operators(program: ExportedProgram, table: OutVariantTable | None = None) -> bool:
    """Return whether `decompose-library-operators` changes an Edge program; few programs need it."""
    table = table or OutVariantTable()
    graphs = [module.graph for module in called_graphs(program.graph_module)]
    return any(DecomposeLibraryOperators.concerns(node, table) for graph in graphs for node in graph.nodes)
